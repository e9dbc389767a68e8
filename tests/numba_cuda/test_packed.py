"""Arrays and records in packed records, which numba-cuda itself takes for aligned ones."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

import numba_ptxlink as pl
from numba_ptxlink._arch import Arch
from numba_ptxlink._numba_cuda import packed
from numba_ptxlink._numba_cuda.compile import compile_function

PAIR = np.dtype([("x", "f4"), ("y", "i8")], align=True)
FIELDS = [("b", "f8"), ("pos", "f4", 3), ("z", "c8", 2), ("h", "f2", 2), ("odd", "i1")]
FIELDS += [("one", PAIR), ("many", PAIR, 2), ("a", "i1")]
PACKED = from_dtype(np.dtype(FIELDS))
ALIGNED = from_dtype(np.dtype(FIELDS, align=True))
# Where an access that is not one of parameters says its width.
ACCESS = re.compile(r"^\s*(?:ld|st)(?!\.param)(?:\.\w+)*?(?:\.v\d)?\.[a-z](\d+)\s", re.MULTILINE)


@cuda.jit(device=True)
def first(array):
    """Read an array that a caller found in a record."""
    return array[0]


def reads(p, i):
    """Read a member of each kind."""
    one = p[i]
    return one.b + one.pos[i] + first(one.pos) + one.z[i].imag + one.h[i] + one.one.y + one.many[i].x


def writes(p, i):
    """Write a member of each kind."""
    p[i].b = i
    p[i].pos[i] = i
    p[i].z[1] = 1j
    p[i].h[0] = 2
    p[i].one.y = i
    p[i].many[i].x = 1
    p[i].pos = p[i + 1].pos
    p[i].one = p[i + 1].one
    return 0.0


def value(one, i):
    """Read an array in a record that is passed by value."""
    return one.pos[i]


def widths(function, *args, arch, **options):
    """Return the widths in bits of what the PTX of *function* accesses."""
    udf = pl.udf(types.float64(*args), name="f", front_end="numba-cuda")(function)
    made = pl.export([udf], None, archs=[arch], emit=["ptx"], **options)
    return set(ACCESS.findall(made.read("ptx", arch).decode()))


@pytest.mark.parametrize(
    ("function", "kind", "arch", "lineinfo"),
    [
        (reads, types.CPointer(PACKED), "sm_90", False),
        (writes, PACKED[::1], "sm_100", True),
        pytest.param(reads, PACKED[::1], "sm_100", False, marks=pytest.mark.slow),
        pytest.param(writes, types.CPointer(PACKED), "sm_90", True, marks=pytest.mark.slow),
    ],
)
def test_what_lies_in_packed_records_is_accessed_by_bytes(function, kind, arch, lineinfo):
    """No access of an address that is aligned to bytes is wider, through pointers and in arrays."""
    assert {"8"} == widths(function, kind, types.int32, arch=arch, lineinfo=lineinfo)


def test_a_record_by_value_lies_where_it_is_aligned():
    """What is at a suitable offset in it is accessed as a whole."""
    suitable = from_dtype(np.dtype(FIELDS[:2] + FIELDS[-1:]))
    compiled = compile_function(value, (suitable, types.int32), types.float32, Arch.of("sm_90"))
    assert not packed.unaligned_kinds(compiled)
    behind = compile_function(reads, (types.CPointer(PACKED), types.int32), types.float32, Arch.of("sm_90"))
    kinds = packed.unaligned_kinds(behind)
    assert {"float", "{float, float}", "i16", "i64"} == kinds


def test_what_lies_in_aligned_records_is_accessed_as_a_whole():
    """The same members, aligned, are loaded by one instruction each."""
    assert {"32", "64"} <= widths(reads, types.CPointer(ALIGNED), types.int32, arch="sm_90")


def test_compile_accesses_them_by_bytes():
    """`numba.cuda.compile` with the C ABI of C++ is mended, too."""
    signature = types.float64(types.CPointer(PACKED), types.int32)
    given = {"abi_name": "f", "aggregates": "value"}
    ptx, _ = cuda.compile(reads, signature, cc=(9, 0), abi="c", abi_info=given, output="ptx")
    assert {"8"} == set(ACCESS.findall(ptx))


def test_other_accesses_keep_their_text():
    """Only what has no alignment and is of the kinds gets one; metadata stays behind it."""
    text = """\
  %".1" = load float, float* %"a, b"
  %".2" = load float, float* %c, align 1
  %".3" = load double, double* %d, !dbg !7
  %".4" = load float, float* @table
  store float %".1", float* %"x", !dbg !7
  store {float, float} %".1", {float, float}* %"x"
  store i64 %".1", i64* %"x"
"""
    lines = packed.accessed_by_bytes(text, {"float", "double", "{float, float}"}).splitlines()
    assert [
        '  %".1" = load float, float* %"a, b", align 1',
        text.splitlines()[1],
        '  %".3" = load double, double* %d, align 1, !dbg !7',
        text.splitlines()[3],
        '  store float %".1", float* %"x", align 1, !dbg !7',
        '  store {float, float} %".1", {float, float}* %"x", align 1',
        text.splitlines()[6],
    ] == lines
