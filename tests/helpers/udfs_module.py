"""A module of UDFs, as a user writes it."""

import math

from numba import cuda, njit

from numba_ptxlink import udf

SCALE = 3


@cuda.jit(device=True)
def square(x):
    """Help from the device side."""
    return x * x


@njit
def wave(x):
    """Help from the CPU side."""
    return math.sin(x)


@udf("float32(float32, int8)")
def blend(x, n):
    """Blend */ square and wave."""
    return square(x) + wave(x) * n + SCALE


@udf("void(CPointer(float32), int32)", name="scale_in_place")
def scale(p, i):
    p[i] = p[i] * SCALE


@udf("int8(int8, uint8, int16, uint16, int32, uint32, int64, uint64, boolean, float32, float64, voidptr)")
def every_type(int, b, c, d, e, f, g, h, i, j, k, m):  # noqa: A002, PLR0917
    return int


@udf("boolean(boolean)")
def negate(b):
    return not b


@udf("int32(int32)", on_error="trap")
def checked(i):
    if i < 0:
        raise ValueError
    return i


@udf("float64(float64)")
def calls_another(x):
    return blend(x, 1)
