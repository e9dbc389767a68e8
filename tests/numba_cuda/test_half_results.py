"""Half and bfloat16 results become other numbers, and other numbers become them, as by C++'s `return`."""

from __future__ import annotations

import itertools
import re

import host_jit
import numpy as np
import pytest

import numba_ptxlink as pl
from numba_ptxlink import abi
from numba_ptxlink._arch import Arch
from numba_ptxlink._export import type_names
from numba_ptxlink._front_end import registry
from numba_ptxlink._numba_cuda.codegen import wrapper
from numba_ptxlink._numba_cuda.compile import compile_function
from numba_ptxlink._tools import nvrtc

ARCH = Arch.of("sm_90")
HALVES = {"float16": "__half", "bfloat16": "__nv_bfloat16"}
INTEGERS = {
    f"{sign}int{width}": f"{'unsigned ' if sign else ''}{name}"
    for sign, (width, name) in itertools.product(
        ("", "u"), ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
    )
} | {"int8": "signed char"}
NUMBERS = {**INTEGERS, **HALVES, "float32": "float", "float64": "double"}
PAIRS = [
    (source, target)
    for source, target in itertools.product(NUMBERS, NUMBERS)
    if source != target and {source, target} & set(HALVES)
]
ROUNDING = re.compile(r"\bcvt\.(r\w+)\.")


def same(a):
    """Return the argument."""
    return a


def bfloat(number):
    """Return the bytes of the bfloat16 *number*, which is one."""
    return np.float32(number).tobytes()[2:]


def half(number):
    """Return the bytes of a half."""
    return np.float16(number).tobytes()


def on_host(function, signature):
    """Return what calls *function* on this machine, bytes in and bytes out."""
    resolved = type_names.resolve(signature, function, registry.get("numba-cuda"))
    compiled = compile_function(function, resolved.args, resolved.return_type, ARCH)
    declared = abi.c_signature("f", resolved.return_type, [("a", resolved.args[0])])
    outer = wrapper.emit(compiled, declared, abi.AbiOptions(), inline=True)
    host_jit.add_caller(outer)
    call = host_jit.load(outer.module)
    return lambda packed: call("f", declared.result.size, packed)


ROWS = [
    *(("bfloat16", "boolean", bfloat(x), np.bool_(x).tobytes()) for x in (0, -0.0, 0.5, -3)),
    *(("float16", "boolean", half(x), np.bool_(x).tobytes()) for x in (0, -0.0, 0.5, 6e-8)),
    *(("bfloat16", ty, bfloat(1.5), np.dtype(ty).type(1.5).tobytes()) for ty in ("complex64", "complex128")),
    *(
        (ty, "bfloat16", np.dtype(ty).type(x).tobytes(), bfloat(x))
        for ty in ("int8", "uint8")
        for x in (3, 127)
    ),
    ("uint8", "bfloat16", b"\xff", bfloat(255)),
    ("int8", "bfloat16", b"\x80", bfloat(-128)),
    ("boolean", "bfloat16", b"\x01", bfloat(1)),
]


@pytest.mark.parametrize(("source", "target", "given", "expected"), ROWS)
def test_values_are_those_of_cxx(source, target, given, expected):
    """Whether it is not zero, its real part, and an integer that a bfloat16 has all digits of."""
    assert expected == on_host(same, f"{target}({source})")(given)


@pytest.mark.parametrize(("written", "expected"), [("3", "cvt.rn.bf16.s64"), ("True", "16256")])
def test_numbers_that_are_written_out(written, expected):
    """An integer is rounded, and True is one."""
    function = eval(f"lambda: {written}")  # noqa: S307 - one of ours
    ptx = pl.export(pl.udf("bfloat16()", name="f")(function), archs=[ARCH], emit=["ptx"]).read("ptx").decode()
    assert expected in ptx


@pytest.mark.parametrize(
    ("function", "signature"),
    [
        (lambda a: int(a) + 1, "int32(float16)"),
        (lambda a: 1 if a else 2, "int32(float16)"),
        (lambda a: 1 if a else 2, "int32(bfloat16)"),
        (lambda a: not a, "boolean(float16)"),
        (same, "Optional(int16)(float16)"),
        (lambda a: (a, a), "Tuple((int16, uint32))(float16)"),
    ],
)
def test_conversions_within_a_function_are_the_same(function, signature):
    """`int(a)` cuts off, a half is a condition, and members of a result convert as results do."""
    ptx = pl.export(pl.udf(signature, name="f")(function), archs=[ARCH], emit=["ptx"]).read("ptx").decode()
    assert set(ROUNDING.findall(ptx)) <= {"rzi"}


@pytest.mark.slow
def test_every_conversion_rounds_as_nvcc_does():
    """Towards zero to integers and to the nearest else: conversions in PTX have the modifiers of nvcc's."""
    functions = [pl.udf(f"{target}({source})", name=f"{source}_{target}")(same) for source, target in PAIRS]
    ours = rounding(pl.export(functions, archs=[ARCH], emit=["ptx"], name="halves").read("ptx"))
    lines = [
        f'extern "C" __device__ {NUMBERS[target]} {source}_{target}({NUMBERS[source]} a) '
        f"{{ return static_cast<{NUMBERS[target]}>(a); }}"
        for source, target in PAIRS
    ]
    text = "\n".join(["#include <cuda_fp16.h>", "#include <cuda_bf16.h>", *lines])
    theirs = rounding(
        nvrtc.compile_source(text, "halves.cu", ARCH, include_dirs=nvrtc.toolkit_include_dirs()).code
    )
    assert theirs == ours


def rounding(ptx):
    """Return how each function of *ptx* rounds: the modifiers of its conversions."""
    parts = re.split(r"(?=\.visible \.func)", ptx.decode())[1:]
    names = [re.search(r"\.func\s*(?:\([^)]*\)\s*)?(\w+)", part)[1] for part in parts]
    return {name: set(ROUNDING.findall(part)) for name, part in zip(names, parts, strict=True)}
