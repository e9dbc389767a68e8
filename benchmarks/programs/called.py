"""The Python functions that calls.py exports and calls from C++."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numba
import numpy as np
from numba import cuda
from numba.cuda import types

import numba_ptxlink as pl

Body = namedtuple("Body", "x y vx vy")  # noqa: PYI024 - the types are in BODY, for Numba
BODY = types.NamedUniTuple(types.float32, 4, Body)


@pl.udf(BODY(BODY, types.float32), name="step")
def step(body: Any, dt: Any) -> Any:
    """Move a body that a spring pulls to the origin: a struct by value, both ways."""
    vx = body.vx - dt * body.x
    vy = body.vy - dt * body.y
    return Body(body.x + dt * vx, body.y + dt * vy, vx, vy)


@pl.udf("complex64(complex64, complex64)", name="iterate")
def iterate(z: Any, c: Any) -> Any:
    """Compute z*z + c."""
    return z * z + c


@pl.udf("float32(float32[::1], int64)", name="pick")
def pick(table: Any, turn: Any) -> Any:
    """Interpolate between two neighbours in a table."""
    i = turn & 1023
    return table[i] * np.float32(0.25) + table[i + 1] * np.float32(0.75)


@pl.udf("float32(float32, float32)", name="one_fma")
def one_fma(x: Any, y: Any) -> Any:
    """Multiply and add once."""
    return x * y + np.float32(0.5)


@pl.udf("float32(float32, float32)", name="many_fmas")
def many_fmas(x: Any, y: Any) -> Any:
    """Multiply and add 32 times."""
    for _ in range(32):
        x = x * y + np.float32(0.5)
    return x


@pl.udf("float32(float32, int64)", name="early")
def early(x: Any, turn: Any) -> Any:
    """Return at once in half of the cases."""
    if turn & 1:
        return x * np.float32(0.5)
    total = x
    for number in range(turn & 3):
        total += x * np.float32(number)
    return total


@cuda.jit(device=True)
def damped(x: Any) -> Any:
    """Stay below one."""
    return x / (np.float32(1) + abs(x))


@pl.udf("float32(float32, float32)", name="nested")
def nested(x: Any, y: Any) -> Any:
    """Call another device function twice."""
    return damped(x + y) + damped(x - y)


Large = namedtuple("Large", [f"v{number}" for number in range(25)])  # noqa: PYI024 - as for Body
LARGE = types.NamedUniTuple(types.float64, 25, Large)


@pl.udf("float64(LARGE, float64)", name="weigh")
def weigh(large: Any, weight: Any) -> Any:
    """Read some of 200 bytes that are passed by value."""
    return large.v0 * weight + large.v7 + large.v24


@pl.udf("float64(float64, int64)", name="ramp")
def ramp(x: Any, turn: Any) -> Any:
    """Convert a loop's counter."""
    return x * turn + 1.0


record = np.dtype([("mass", "f4"), ("charge", "f4"), ("id", "i8")], align=True)
RECORDS = types.Array(numba.from_dtype(record), 1, "C")


@pl.udf("float32(RECORDS, int64)", name="sample")
def sample(records: Any, turn: Any) -> Any:
    """Read two fields of a record in an array."""
    i = turn & 63
    return records[i].mass + records[i + 1].charge
