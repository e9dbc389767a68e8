"""UDFs of each sort that need no other code."""

from __future__ import annotations

from collections import namedtuple

from numba import cuda
from numba.cuda import types

from numba_ptxlink import kernel, udf

Body = namedtuple("Body", "mass speed tag")  # noqa: PYI024 - Numba's type of it is given below
BODY = types.NamedTuple([types.float64, types.float32, types.int8], Body)
VECTOR = types.Array(types.float32, 1, "C")


@udf("float32(float32, int8)")
def damp(value, steps):
    """Take scalars."""
    return value * 0.5**steps


@udf("complex64(complex64, float32)")
def turn(value, factor):
    """Take a complex number."""
    return value * value + factor


@udf(BODY(BODY, types.float64))
def grown(body, factor):
    """Take and return a struct."""
    return Body(body.mass * factor, body.speed, body.tag)


@udf(types.float32(VECTOR, types.int64))
def second(values, index):
    """Read an array."""
    return values[index] + values[1]


@udf("int32(int32)", on_error="trap")
def checked(number):
    """Raise where *number* is negative."""
    if number < 0:
        raise ValueError
    return 2 * number


@kernel(types.void(VECTOR, types.float32))
def scale(values, factor):
    """Multiply each element."""
    values[cuda.grid(1)] *= factor
