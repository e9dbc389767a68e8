"""Functions of equal content stay apart in kernels, under every option."""

from __future__ import annotations

import re

import fakedevice
import numpy as np
import pytest

cuda = pytest.importorskip("numba.cuda")

OPTIONS = ({}, {"lto": False}, {"debug": True, "opt": False})
LINES = cuda.float32[::1]


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


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ",".join(options) or "default")
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
    assert 3 == len({name for name in names if not name.endswith("__exc_helper__")})
    arrays = set(re.findall(r'^@"(_cudapy_smem_\d+)"', library.get_llvm_str(), re.MULTILINE))
    assert (2 if pair == "shared arrays" else 0) == len(arrays)
    assert library._entry_name.encode() in cubin.code
