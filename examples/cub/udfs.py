"""Operators that CUB's algorithms apply to each element, in Python."""

from numpy import float32

from numba_ptxlink import udf

# Python's own 1 is a 64-bit integer, whose sum with a float32 is a float64.
ONE = float32(1)


@udf("float32(float32)")
def squash(value):
    """Map all numbers to those between -1 and 1."""
    return value / (ONE + abs(value))


@udf("float32(float32, float32)")
def farther(first, second):
    """Return which of two numbers is farther from zero; of equals the first."""
    return second if abs(second) > abs(first) else first
