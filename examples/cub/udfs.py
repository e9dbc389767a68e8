"""Operators that CUB's algorithms apply to each element, in Python."""

from numpy import float32

from numba_ptxlink import udf

# Python's own 1 is a 64-bit integer, whose sum with a float32 is a float64.
ONE = float32(1)


@udf("float32(float32)")
def squash(value):
    """Map a number to one between -1 and 1."""
    return value / (ONE + abs(value))


@udf("float32(float32, float32)")
def farther(first, second):
    """Return the number that is farther from zero; the first if both are as far."""
    return second if abs(second) > abs(first) else first
