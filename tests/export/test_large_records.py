"""Records that C++ passes by address in LLVM IR: neither copied member by member, nor spilled."""

from __future__ import annotations

import re

import numpy as np
import pytest
from front_ends import get as front_end_of
from numba import cuda as numba_cuda

import numba_ptxlink as pl
from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink._export import build
from numba_ptxlink._export.signatures import typed
from numba_ptxlink._front_end.protocol import CompileOptions

# A whole struct, but not one of zeros.
COPY = re.compile(r'store %"?struct\.\S+ %')


def lowered(members: int, name: str, arch: str, *, align: bool = True) -> str:
    """Return the LLVM IR of a function over a record of floats, as *name* makes it."""
    front_end = front_end_of(name)
    fields = [("first", np.int8), *((f"m{number}", np.float32) for number in range(members))]
    record = front_end.from_dtype(np.dtype(fields, align=align))

    def changed(big, x):
        return x + big.first

    udf = pl.udf((record, front_end.types.float32), name="changed", front_end=name)(changed)
    compiled = build.lower(typed([udf], front_end), pl.Arch.of(arch), CompileOptions())
    return "\n".join(compiled.lowered[0].modules)


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
@pytest.mark.parametrize("name", FRONT_ENDS)
def test_a_large_record_is_used_where_it_is(name, arch):
    """NVVM's time for a copy grows with the cube of the size, and the parameter is the function's own."""
    assert " byval" in lowered(200, name, arch)
    assert not COPY.search(lowered(200, name, arch))
    # A small one is a value, and Numba takes an address.
    assert COPY.search(lowered(8, name, arch))


def test_a_packed_record_is_copied_to_where_it_is_aligned():
    """Numba takes a field at a suitable offset to be aligned, which C++ does not promise."""
    assert COPY.search(lowered(200, "numba-cuda", "sm_80", align=False))


def spilled(front_end, function) -> tuple[object, int]:
    """Return the bytes that *function*, over a record of 2 kB and a float, spills, and those of its stack."""
    record = front_end.from_dtype(np.dtype([(f"m{number}", np.float64) for number in range(256)], align=True))
    udf = pl.udf(record(record, front_end.types.float32), name="f", front_end=front_end.name)(function)
    made = pl.export([udf], None, name="large", archs=["sm_90"], emit=["ptx"])
    (symbol,) = pl.inspect(made.contents["large.sm_90.ptx"], arch="sm_90", sass=False).symbols
    return symbol.spills, symbol.stack


@pytest.mark.parametrize("name", FRONT_ENDS)
def test_a_large_record_is_returned_without_spills(name):
    """The members are loaded one by one."""

    def changed(big, x):
        big.m0 = x
        return big

    assert ((0, 0), 0) == spilled(front_end_of(name), changed)


@pytest.mark.slow
def test_a_large_record_is_returned_without_spills_after_a_merge():
    """The members are loaded one by one where nvJitLink wrote the PTX, too."""
    source = numba_cuda.CUSource('extern "C" __device__ float squared(float x) { return x * x; }')
    squared = numba_cuda.declare_device("squared", "float32(float32)", abi="c", link=[source])

    def changed(big, x):
        big.m0 = squared(x)
        return big

    assert ((0, 0), 0) == spilled(front_end_of("numba-cuda"), changed)
