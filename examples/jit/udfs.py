"""The function that a C++ program links into its kernel at run time."""

import math

from numba_ptxlink import udf


@udf("float32(float32, int32)")
def transform(value, index):
    """Damp every second value; add one to the others."""
    return value * math.exp(-0.001 * index) if index % 2 else value + 1
