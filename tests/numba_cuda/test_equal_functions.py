"""Functions of equal content stay apart: in kernels under every option, in exports, and between exports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import fakedevice
import numpy as np
import pytest

import numba_ptxlink as pl

if TYPE_CHECKING:
    from pathlib import Path

cuda = pytest.importorskip("numba.cuda")

OPTIONS = ({}, {"lto": False}, {"debug": True, "opt": False})
LINES = cuda.float32[::1]
REDUCTIONS = """\
from numba import cuda, float32
from numba_ptxlink import udf


def reduction(scale):
    @cuda.jit(device=True)
    def reduce(x):
        lines = cuda.shared.array(32, float32)
        lines[cuda.threadIdx.x] = x
        cuda.syncthreads()
        return lines[31 - cuda.threadIdx.x] * scale
    return reduce


one, other, third = reduction(2.0), reduction(2.0), reduction(3.0)


@udf("float32(float32)", name="{name}")
def function(x):
    return {body}
"""


def plain(x):
    """Return a sum, as a device function."""
    return x + np.float32(1)


def closure(number):
    """Return a device function that holds *number*."""

    @cuda.jit(device=True)
    def inner(x):
        return x + number

    return inner


def block(number):
    """Return a device function with a shared array."""

    @cuda.jit(device=True)
    def inner(x):
        shared = cuda.shared.array(4, np.float32)
        shared[cuda.threadIdx.x] = x + number
        return shared[3 - cuda.threadIdx.x]

    return inner


PAIRS = {
    "one function wrapped twice": (cuda.jit(device=True)(plain), cuda.jit(device=True)(plain)),
    "closures with equal constants": (closure(5), closure(5)),
    "shared arrays": (block(1), block(1)),
}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda each: ",".join(each) or "default")
@pytest.mark.parametrize("pair", PAIRS)
def test_a_kernel_calls_both(monkeypatch, pair, options):
    """A kernel that calls two functions of equal content compiles, and each has its own shared array."""
    fakedevice.install(monkeypatch.setattr)
    first, second = PAIRS[pair]

    def kernel(lines):
        lines[0] = first(lines[0]) - second(lines[1])

    library, cubin = fakedevice.compile_kernel(kernel, (LINES,), **options)
    names = re.findall(r'^define [^@]*@"(_ZN[^"]*)"', library.get_llvm_str(), re.MULTILINE)
    # With debug=True the kernel brings a function that notes exceptions.
    assert 3 == len({each for each in names if not each.endswith("__exc_helper__")})
    arrays = set(re.findall(r'^@"(_cudapy_smem_\d+)"', library.get_llvm_str(), re.MULTILINE))
    assert (2 if pair == "shared arrays" else 0) == len(arrays)
    assert library._entry_name.encode() in cubin.code


@pytest.mark.parametrize("emit", ["ptx", "ltoir"])
def test_exports_that_share_a_helper_with_shared_memory_link(tmp_path: Path, emit):
    """Two exports whose functions call equal helpers with shared arrays can be linked into one kernel."""
    files = []
    for name, body in (("twice", "one(x) + other(x) + third(x)"), ("once", "one(x)")):
        module = tmp_path / f"{name}.py"
        module.write_text(REDUCTIONS.format(name=name, body=body))
        pl.export(module, tmp_path, arch="sm_80", emit=[emit])
        files += tmp_path.glob(f"{name}*.{emit}")
    caller = """
    extern "C" __device__ float twice(float);
    extern "C" __device__ float once(float);
    extern "C" __global__ void kernel(float* p) { p[threadIdx.x] = twice(p[0]) + once(p[1]); }
    """
    linked = pl.link(caller, *files, arch="sm_80")
    # Four arrays of 32 floats, each of its own.
    kernel = next(each for each in pl.inspect(linked.cubin).symbols if each.kind == "entry")
    assert 4 * 32 * 4 == kernel.shared
