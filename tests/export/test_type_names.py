"""Names in signatures that are strings: of Numba's types, and of types that the function's module has."""

from __future__ import annotations

import enum
import sys
import textwrap
from collections import namedtuple
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl
from numba_ptxlink import abi
from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink._export import marks
from numba_ptxlink._export.signatures import arguments, record_names
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
    return arguments(marked, registry.get("numba-cuda"))


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


def test_names_of_enclosing_functions_stand_for_types():
    """A type that only the enclosing function has is found if the function uses it."""
    local = np.dtype([("x", "f4")])

    def use(value):
        return local, value

    marked = marks.Udf(use, "float32(local)", abi.AbiOptions("f"))
    assert ((from_dtype(local),), types.float32) == arguments(marked, registry.get("numba-cuda"))


def test_records_have_the_names_of_the_nearest_scope():
    """A name in an enclosing function comes before the module's, which holds for other functions of it."""
    mine = particle

    def use(value):
        return mine, value

    def other(value):
        return value

    front_end, modules = registry.get("numba-cuda"), {}
    for function, name in ((use, "mine"), (other, "particle"), (use, "mine")):
        assert name == record_names(function, front_end, modules)[PARTICLE]
        assert record_names(function, front_end) == record_names(function, front_end, modules)
    assert len(modules) == 1


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("float32(Missing)", "name 'Missing' is not defined"),
        ("float32(constant)", "'constant' stands for 7, which is no type"),
        ("float32(untyped)", "field 'x' of the named tuple untyped has no type; annotate it"),
        ("float32(Outer)", r"named tuple Outer contains itself \(Outer in Inner in Outer\), which no type"),
        ((Inner,), r"named tuple Inner contains itself \(Inner in Outer in Inner\), which no type"),
        ("float32(cuda.grid)", "'cuda.grid' stands for .*, which is no type"),
        ("float32(cuda.missing)", "has no attribute 'missing'"),
        ((types.float32, 3), "expected a type instance, got 3"),
        ("Optional(Optional(float32))(float32)", r"is no Numba signature \(AssertionError\)"),
    ],
)
def test_what_is_no_type_is_refused(signature, message):
    """The error names the function, what the name stands for, and how to pass types."""
    with pytest.raises(
        pl.AbiError, match=rf"Function f \(.*{message}.*where Particle is a global of its module"
    ):
        resolved(signature, 1)


def test_a_dtype_that_numba_has_no_type_for_is_refused():
    """The error says what Numba cannot have."""
    quad = np.dtype([("x", ">f4")])

    def use(value):
        return quad, value

    marked = marks.Udf(use, "float32(quad)", abi.AbiOptions("f"))
    with pytest.raises(pl.AbiError, match=r"Numba has no type for the NumPy dtype .*>f4"):
        arguments(marked, registry.get("numba-cuda"))


def test_an_export_by_names(tmp_path):
    """Structs in the header are those of the named types."""

    def weigh(p, q):
        return p.mass + q.x

    def rotate(v):
        return cuda.float32x4(v.y, v.z, v.w, v.x)

    udfs = [pl.udf("float32(particle, Point)")(weigh), pl.udf("cuda.float32x4(cuda.float32x4)")(rotate)]
    exported = pl.export(udfs, tmp_path, archs=["sm_90"], emit=["ptx"], name="named")
    assert ["float weigh(particle p, Point q)", "float4 rotate(float4 v)"] == [*map(str, exported.signatures)]


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_the_modules_own_types_win_over_numbas(monkeypatch, front_end):
    """A name that is a type for the module and for Numba is the module's; a function's is Numba's."""
    compiler = registry.get(front_end)
    pytest.importorskip(compiler.module)
    own = compiler.types
    source = textwrap.dedent(
        """
        import enum
        import numpy as np
        from typing import NamedTuple
        from numpy import void

        double = types.float32
        int_ = np.dtype("i4")
        byte = np.dtype([("v", "f4"), ("n", "i4")], align=True)
        short = np.uint64
        UniTuple = types.CPointer
        float = types.float16

        class char(NamedTuple):
            x: "double"
            y: "float"
            z: "int"

        class boolean(enum.IntEnum):
            NO = 0

        def uint8(a, b):
            return a
        """
    )
    module = ModuleType("its_own_types")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    scope = vars(module)
    scope["types"] = own
    exec(source, scope)  # noqa: S102 - a module for each front end

    def named(signature):
        return arguments(marks.Udf(scope["uint8"], signature, abi.AbiOptions("f")), compiler)

    char = own.NamedTuple([own.float32, own.float16, own.int64], scope["char"])
    assert ((own.float32, own.int32), own.float32) == named("double(double, int_)")
    assert ((compiler.from_dtype(scope["byte"]), own.uint64), own.uint8) == named("uint8(byte, short)")
    assert ((own.CPointer(own.float32), char), own.void) == named("void(UniTuple(double), char)")
    assert ((own.IntEnumMember(scope["boolean"], own.int64), own.float64), own.void) == named(
        "void(boolean, float64)"
    )
