"""GPU ELF images: architecture, symbols and resources that are read from them."""

from __future__ import annotations

import pytest
from linkcases import cubin, function

import numba_ptxlink as pl
from numba_ptxlink._formats import elf
from numba_ptxlink._tools import nvrtc

ARCH = pl.Arch.of("sm_80")
EVERY_KIND = """\
extern "C" __device__ int outside(float, long long);
__device__ int table[5] = {1};
extern __device__ int elsewhere;
extern "C" __device__ __attribute__((weak)) int second(int a) { return a + table[a]; }
static __device__ __noinline__ int own(int a) { return a * 7; }
extern "C" __global__ void k(int* p) { *p = outside(2, 3) + second(*p) + own(*p) + elsewhere; }
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_103", "sm_120"])
def test_the_architecture_of_an_image(arch):
    """The header has the compute capability, in every form that the tools write."""
    code = cubin(function(target="sm_75"), arch)
    assert pl.Arch.of(arch).number == elf.machine(code) == elf.read(code).sm
    assert elf.read(code).relocatable


def test_symbols_are_those_that_others_see():
    """Kernels, functions and variables have their kinds, and definitions differ from references."""
    image = elf.read(nvrtc.compile_source(EVERY_KIND, "a.cu", ARCH, output="cubin").code)
    assert {
        ("outside", "func", False),
        ("table", "variable", True),
        ("elsewhere", "variable", False),
        ("second", "func", True),
        ("k", "entry", True),
    } == {(symbol.name, symbol.kind, symbol.defined) for symbol in image.symbols}
    assert 20 == next(symbol.size for symbol in image.symbols if symbol.name == "table")
    assert any("own" in symbol.name for symbol in image.all_symbols)
