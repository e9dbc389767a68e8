"""Names in signatures that are strings: of Numba's types, and of types that the function's module has."""

from __future__ import annotations

import enum
from collections import namedtuple
from typing import NamedTuple

import numpy as np
import pytest
from numba import cuda  # noqa: F401 - signatures name it
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl
from numba_ptxlink import abi
from numba_ptxlink._export import marks
from numba_ptxlink._export.signatures import signature_types
from numba_ptxlink._front_end import registry

particle = np.dtype([("mass", "f4"), ("id", "i8")], align=True)
PARTICLE = from_dtype(particle)
untyped = namedtuple("untyped", "x y")  # noqa: PYI024 - without types on purpose
half = np.dtype("f2")
constant = 7


class Point(NamedTuple):
    """A named tuple, whose annotations are strings here."""

    x: types.float32
    y: float
    inner: PARTICLE


class Number(NamedTuple):
    """A named tuple whose name Numba has too."""

    value: int


class Inner(NamedTuple):
    """A named tuple in one that is in it."""

    outer: Outer


class Outer(NamedTuple):
    """A named tuple that contains itself."""

    x: types.float32
    inner: types.CPointer(Inner)


class Level(enum.IntEnum):
    """An enum."""

    LOW = 0


POINT = types.NamedTuple([types.float32, types.float64, PARTICLE], Point)


def resolved(signature, count):
    """Return the argument types and the result of *signature* of a function of *count* parameters."""
    functions = {1: lambda a: a, 2: lambda a, b: (a, b)}
    function = functions[count]
    marked = marks.Udf(function, signature, abi.AbiOptions("f"))
    return signature_types(marked, registry.get("numba-cuda"))


@pytest.mark.parametrize(
    ("signature", "args", "result"),
    [
        ("float32(float32)", (types.float32,), types.float32),
        ("float32(PARTICLE)", (PARTICLE,), types.float32),
        ("PARTICLE(particle)", (PARTICLE,), PARTICLE),
        ("void(particle[::1])", (types.Array(PARTICLE, 1, "C"),), types.void),
        ("void(CPointer(particle))", (types.CPointer(PARTICLE),), types.void),
        ("Point(Point, Level)", (POINT, types.IntEnumMember(Level, types.int64)), POINT),
        ("Number(half)", (types.float16,), types.NamedUniTuple(types.int64, 1, Number)),
        ("cuda.float32x4(float32x4)", (vector_types["float32x4"],), vector_types["float32x4"]),
        ("uint8x3(cuda.types.int8)", (types.int8,), vector_types["uint8x3"]),
        ("types.float32(np.float64)", (types.float64,), types.float32),
        ("(particle, np.int8)", (PARTICLE, types.int8), None),
        ((particle, Point), (PARTICLE, POINT), None),
        ("Optional(Tuple((particle, int8)))(int8)", (types.int8,), None),
    ],
)
def test_names_stand_for_types(signature, args, result):
    """A signature names Numba's types, vector types, dtypes, named tuples and enums."""
    got, returned = resolved(signature, len(args))
    assert args == got
    if result is not None:
        assert result == returned


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("float32(Missing)", "name 'Missing' is not defined"),
        ("float32(constant)", "'constant' is 7, which is not a type"),
        ("float32(untyped)", "field 'x' of the named tuple untyped has no type; annotate it"),
        ("float32(Outer)", "maximum recursion depth"),
        ((Inner,), "maximum recursion depth"),
        ("float32(cuda.grid)", "'cuda.grid' is .*, which is not a type"),
        ("float32(cuda.missing)", "has no attribute 'missing'"),
        ((types.float32, 3), "expected a type instance, got 3"),
        ("Optional(Optional(float32))(float32)", r"is not a Numba signature \(AssertionError\)"),
    ],
)
def test_what_is_no_type_is_refused(signature, message):
    """The error names the function, the value of the name, and how to pass types."""
    with pytest.raises(
        pl.AbiError, match=rf"Function f: .*{message}.*where Particle is a global of the function's module"
    ):
        resolved(signature, 1)


def test_names_stand_for_what_they_stood_for_at_the_mark(monkeypatch):
    """A name keeps its meaning at the mark, though a loop or the module binds it again later."""
    marked = marks.Udf(lambda a: a, "half(half)", abi.AbiOptions("f"))
    monkeypatch.setitem(globals(), "half", np.dtype("f8"))
    assert signature_types(marked, registry.get("numba-cuda")) == ((types.float16,), types.float16)
