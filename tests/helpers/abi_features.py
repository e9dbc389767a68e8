"""Define one small module of UDFs for each feature with a header in tests/golden."""

from __future__ import annotations

import enum
import functools
from collections import namedtuple

import front_ends
import numpy as np
from front_ends import with_names

import numba_ptxlink as pl

Point = namedtuple("Point", "x y")  # noqa: PYI024 - Numba's type of it is given below
plane = np.dtype([("x", "f4"), ("y", "f4")])
planes = {plane: "alignas(8) float2"}
particle = np.dtype([("pos", "f4", 3), ("id", "i8")], align=True)
wire = np.dtype([("kind", "u1"), ("value", "f8"), ("half", "f2")])


class Level(enum.IntEnum):
    """An enum whose members are integers in C."""

    LOW = 0
    HIGH = 1


def same(value):
    """Return what it is given."""
    return value


def echoes(*signatures, names):
    """Return a UDF that returns its argument for each type."""
    return [pl.udf(ty(ty), name=name)(same) for ty, name in zip(signatures, names.split(), strict=True)]


def checked(value):
    """Double a value; it is a ValueError */ if negative."""
    if value < 0:
        raise ValueError
    return 2 * value


def squared(value):
    """Return the square of a length."""
    return value.x * value.x + value.y * value.y


def copied(target, source):
    """Copy one element."""
    target[0] = source[0]


def stores(pointer, _address, value):
    """Write through a pointer."""
    pointer[0] = value


def calls(value):
    """Call what C++ has to define."""
    return supplied(value) + reported(7)  # noqa: F821 - each front end has its own


def distance(points, weights, origin):
    """
    Take arrays and a struct.

    Args:
        points: The records, of which `points[0].pos` counts; not points[1]*/points[2].
        weights: Any layout.
            Only its corner is read.
        origin: A struct.
    """
    return points[0].pos[0] + weights[0, 0] + origin.x


def first(value, _other):
    """Return the first of two."""
    return value


def scale(out, factor):
    """Multiply each element."""
    out[cuda.grid(1)] *= factor  # noqa: F821 - each front end has its own


@functools.cache
def features(front_end):
    """Return the UDFs of each feature, with the types of the front end *front_end*."""
    front_end_types, cuda = front_ends.get(front_end), front_ends.cuda(front_end)
    types, vectors, array = front_end_types.types, front_end_types.vector_types(), front_end_types.types.Array
    point = types.NamedTuple([types.float32, types.int8], Point)
    record = front_end_types.from_dtype(particle)
    supplied = cuda.declare_device("supplied", "float32(float32)", abi="c")
    reported = cuda.declare_device("reported", "int32(int64)")
    return {
        "scalars": echoes(
            types.boolean,
            *(getattr(types, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
            *(types.float32, types.float64),
            names="of_bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64",
        ),
        "halves": echoes(types.float16, types.bfloat16, names="half_of bfloat_of"),
        "complexes": echoes(types.complex64, types.complex128, names="single twice"),
        "vectors": echoes(
            vectors["float32x4"], vectors["float64x4"], vectors["uint8x3"], names="quad wide bytes"
        ),
        "pointers": [
            pl.udf(types.void(types.CPointer(types.float64), types.voidptr, types.float64), name="stores")(
                stores
            )
        ],
        "tuples": echoes(
            types.UniTuple(types.float32, 2),
            types.Tuple((types.int8, types.Tuple((types.float64,)))),
            names="pair nest",
        ),
        "namedtuples": echoes(point, names="moved"),
        "records": echoes(record, front_end_types.from_dtype(wire), names="moved sent"),
        "optionals": echoes(types.Optional(types.int32), types.Optional(point), names="maybe perhaps"),
        "integers": echoes(
            types.IntEnumMember(Level, types.int64),
            types.NPDatetime("s"),
            types.NPTimedelta("ms"),
            names="level when span",
        ),
        "arrays": [
            pl.udf(
                (array(record, 1, "C"), array(types.float64, 2, "A", readonly=True), point), name="distance"
            )(distance)
        ],
        "kernels": [
            pl.kernel("void(float32[::1], float32)", name="scale", launch_bounds=128)(
                with_names(scale, cuda=cuda)
            )
        ],
        "errors": [
            pl.udf("int32(int32)")(checked),
            pl.udf("int64(int64)", name="trapped", on_error="trap")(checked),
        ],
        "externs": [pl.udf("float32(float32)")(with_names(calls, supplied=supplied, reported=reported))],
        "overloads": [
            pl.udf("float64(float64)", name="same_f64")(pl.udf("float32(float32)", name="same_f32")(same)),
        ],
        "existing": [pl.udf("float32(plane)", structs=planes, include="<vector_types.h>")(squared)],
        "namespaces": [
            pl.udf("float64(float64)", namespace="app::math")(
                pl.udf("float32(float32)", namespace="app::math")(same)
            ),
            pl.udf(
                "void(CPointer(float32), CPointer(float32))",
                namespace="app",
                const="source",
                restrict=("source", "target"),
            )(copied),
            pl.udf("void(float32[::1], float32[:])", namespace="app", const="source")(copied),
            pl.kernel("void(float32[::1], float32)", name="scale_all", namespace="app")(
                with_names(scale, cuda=cuda)
            ),
        ],
    }


NAMES = tuple(features("numba-cuda"))
"""The features."""

LACKING = {
    "optionals": "numba-cuda-mlir has no Optional of a tuple",
    "records": "numba-cuda-mlir takes the members of packed records for aligned ones",
}
"""The features that numba-cuda-mlir cannot compile, and the reasons."""
