"""The members of a named tuple that a function returns become those of the type that it declares."""

from __future__ import annotations

import struct
from typing import NamedTuple

import front_ends
import host_jit
import pytest
from numba.cuda import types as numba_types

import numba_ptxlink as pl
from numba_ptxlink import abi
from numba_ptxlink._arch import Arch
from numba_ptxlink._export import type_names
from numba_ptxlink._numba_cuda.codegen import wrapper
from numba_ptxlink._numba_cuda.compile import compile_function

ARCH = Arch.of("sm_100")


class Pair(NamedTuple):
    """Two floats."""

    x: float32  # noqa: F821 - a type of the front end that compiles it
    y: float32  # noqa: F821


class Cell(NamedTuple):
    """An integer beside a pair."""

    pair: Pair
    count: int8  # noqa: F821


class Mixed(NamedTuple):
    """Numbers of each kind."""

    cut: int32  # noqa: F821
    low: uint8  # noqa: F821
    truth: boolean  # noqa: F821
    real: float64  # noqa: F821
    pair: complex64  # noqa: F821


class Other(NamedTuple):
    """Two floats of another name."""

    x: float32  # noqa: F821
    y: float32  # noqa: F821


def shifted(p):
    """Return another pair, one of whose members Python computes as a float64."""
    return Pair(p.x + 1, p.y)


def whole(p):
    """Return integers."""
    return Pair(y=p.x > 0, x=3)


def branches(p):
    """Return values of two types."""
    if p.x > 2:
        return Pair(p.x, p.y + 0.5)
    return Pair(p.x + 0.25, p.y)


def plain(p):
    """Return a tuple without names."""
    return p.x * 0.1, p.y


def nested(p):
    """Return members of members."""
    return Cell(Pair(p.x + 1, p.y), p.y * 2)


def mixed(p):
    """Return each kind of number as another."""
    return Mixed(p.x - 4.25, int(p.y) + 299, p.x - 1.25, int(p.y), p.y)


CASES = [
    (shifted, Pair, "<ff", (2.5, 4)),
    (whole, Pair, "<ff", (3, 1)),
    (branches, Pair, "<ff", (1.75, 4)),
    (plain, Pair, "<ff", (struct.unpack("<f", struct.pack("<f", 1.5 * 0.1))[0], 4)),
    (mixed, Mixed, "<iB?2xdff", (-2, 47, True, 4, 4, 0)),
    (nested, Cell, "<ffb3x", (2.5, 4, 8)),
]


def on_host(front_end, function, signature):
    """Return what calls *function* on this machine with the bytes of a struct, and the size of its result."""
    if front_end == "numba-cuda-mlir":
        from mlir_host import host

        return host(pl.udf(signature, front_end=front_end)(function))
    result, args = type_names.resolve(signature, function, front_ends.get(front_end)), (None,)
    args, result = result.args, result.return_type
    compiled = compile_function(function, args, result, ARCH)
    declared = abi.c_signature("f", result, zip("p", args, strict=True))
    outer = wrapper.emit(compiled, declared, abi.AbiOptions(), inline=True)
    host_jit.add_caller(outer)
    call = host_jit.load(outer.module)
    return lambda packed: call("f", declared.result.size, packed)


@pytest.mark.parametrize("front_end", front_ends.NAMES)
@pytest.mark.parametrize(("function", "result", "code", "expected"), CASES, ids=lambda each: str(each)[:20])
def test_members_convert_to_the_declared_types(front_end, function, result, code, expected):
    """Rounded, or cut to an integer, as C++ would; whatever the branches return."""
    call = on_host(front_end, function, f"{result.__name__}(Pair)")
    assert expected == struct.unpack(code, call(struct.pack("<ff", 1.5, 4)))


@pytest.mark.parametrize("front_end", front_ends.NAMES)
@pytest.mark.parametrize("function", [lambda p: Other(p.x, p.y), lambda p: (p.x,), lambda p: Pair(p.x, 1j)])
def test_what_cxx_does_not_convert_is_refused(front_end, function):
    """Another named tuple, another number of members, and a complex number for a real one."""
    front_ends.get(front_end)
    with pytest.raises(pl.ExportError, match="No conversion from"):
        pl.export(pl.udf("Pair(Pair)", name="f", front_end=front_end)(function), emit=["ptx"])


def test_an_optional_member_converts():
    """None has zeros for members, and a value has them converted."""

    def maybe(p):
        return None if p.x < 0 else Pair(p.x, p.y + 0.5)

    call = on_host("numba-cuda", maybe, "Optional(Pair)(Pair)")
    assert (1.5, 4.5, True) == struct.unpack("<ff?3x", call(struct.pack("<ff", 1.5, 4)))
    assert (0, 0, False) == struct.unpack("<ff?3x", call(struct.pack("<ff", -1.5, 4)))


def test_other_compilations_infer_as_before():
    """A device function that is called, and not returned from, converts no named tuple."""
    from numba import cuda

    pair = numba_types.NamedTuple([numba_types.float32, numba_types.float32], Pair)

    @cuda.jit(numba_types.float32(pair), device=True)
    def first(p):
        return p.x

    with pytest.raises(pl.ExportError, match="first"):
        pl.export(pl.udf("float32(float64)", name="f")(lambda x: first(Pair(x, x))), emit=["ptx"])
