"""The function that a user writes: plain Python, exported as the C symbol `user_transform`."""

import math

from numba_ptxlink import udf


@udf("float32(float32, int32)")
def user_transform(value, index):
    """Damp every second value; add one to the others."""
    if index % 2:
        return value * math.exp(-0.001 * index)
    return value + 1.0
