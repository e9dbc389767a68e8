"""One small module of UDFs for each feature whose header is kept in tests/golden."""

from __future__ import annotations

import enum
from collections import namedtuple

import numpy as np
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl

Point = namedtuple("Point", "x y")  # noqa: PYI024 - Numba's type of it is given below
POINT = types.NamedTuple([types.float32, types.int8], Point)
particle = np.dtype([("pos", "f4", 3), ("id", "i8")], align=True)
PARTICLE = from_dtype(particle)
wire = np.dtype([("kind", "u1"), ("value", "f8"), ("half", "f2")])
WIRE = from_dtype(wire)
FLOAT4, DOUBLE4 = vector_types["float32x4"], vector_types["float64x4"]
supplied = cuda.declare_device("supplied", "float32(float32)", abi="c")
reported = cuda.declare_device("reported", "int32(int64)")


class Level(enum.IntEnum):
    """An enum whose members are integers in C."""

    LOW = 0
    HIGH = 1


def same(value):
    """Return what it is given."""
    return value


def made(*signatures, names):
    """Return a UDF that returns its argument for each type."""
    return [pl.udf(ty(ty), name=name)(same) for ty, name in zip(signatures, names.split(), strict=True)]


def checked(value):
    """Double a value; it is a ValueError */ if negative."""
    if value < 0:
        raise ValueError
    return 2 * value


def stores(pointer, _address, value):
    """Write through a pointer."""
    pointer[0] = value


def calls(value):
    """Call what C++ has to define."""
    return supplied(value) + reported(7)


def distance(points, weights, origin):
    """Take arrays and a struct."""
    return points[0].pos[0] + weights[0, 0] + origin.x


def scale(out, factor):
    """Multiply each element."""
    out[cuda.grid(1)] *= factor


array = types.Array
FEATURES = {
    "scalars": made(
        types.boolean,
        *(getattr(types, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
        *(types.float32, types.float64),
        names="of_bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64",
    ),
    "halves": made(types.float16, types.bfloat16, names="half_of bfloat_of"),
    "complexes": made(types.complex64, types.complex128, names="single twice"),
    "vectors": made(FLOAT4, DOUBLE4, vector_types["uint8x3"], names="quad wide bytes"),
    "pointers": [
        pl.udf(types.void(types.CPointer(types.float64), types.voidptr, types.float64), name="stores")(stores)
    ],
    "tuples": made(
        types.UniTuple(types.float32, 2),
        types.Tuple((types.int8, types.Tuple((types.float64,)))),
        names="pair nest",
    ),
    "namedtuples": made(POINT, names="moved"),
    "records": made(PARTICLE, WIRE, names="moved sent"),
    "optionals": made(types.Optional(types.int32), types.Optional(POINT), names="maybe perhaps"),
    "integers": made(
        types.IntEnumMember(Level, types.int64),
        types.NPDatetime("s"),
        types.NPTimedelta("ms"),
        names="level when span",
    ),
    "arrays": [
        pl.udf(
            (array(PARTICLE, 1, "C"), array(types.float64, 2, "A", readonly=True), POINT), name="distance"
        )(distance)
    ],
    "kernels": [pl.kernel("void(float32[::1], float32)", name="scale", launch_bounds=128)(scale)],
    "errors": [
        pl.udf("int32(int32)")(checked),
        pl.udf("int64(int64)", name="trapped", on_error="trap")(checked),
    ],
    "externs": [pl.udf("float32(float32)")(calls)],
    "flat": [pl.udf(POINT(POINT, types.float16), name="flat", aggregates="flat")(lambda point, _half: point)],
    "overloads": [
        pl.udf("float64(float64)", name="same_f64")(pl.udf("float32(float32)", name="same_f32")(same)),
    ],
}
