"""Kernels of Numba whose PTX the driver cannot read."""

from __future__ import annotations

import re

import numpy as np
import pytest

import numba_ptxlink as pl

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _enabled():
    pl.enable()
    yield
    pl.enable()


@pytest.mark.filterwarnings("ignore::numba.cuda.core.errors.NumbaPerformanceWarning")
def test_ptx_newer_than_the_driver_runs(monkeypatch):
    """A kernel whose PTX the driver cannot load runs, since the driver only sees the cubin."""
    from cuda.core import ObjectCode
    from numba import cuda
    from numba.cuda.codegen import CUDACodeLibrary

    toolchain = pl.toolchain()
    driver, newest = toolchain.driver, max(toolchain.ptx_versions)
    if (newest.major - 9 + 13, newest.minor) <= driver:
        pytest.skip(f"the driver (CUDA {driver}) is as new as nvPTXCompiler (PTX {newest})")
    texts = []
    stock = CUDACodeLibrary.get_asm_strs

    def newer(self, cc=None):
        newer_texts = [
            re.sub(r"\.version \d+\.\d+", f".version {newest}", text) for text in stock(self, cc=cc)
        ]
        texts.extend(newer_texts)
        return newer_texts

    monkeypatch.setattr(CUDACodeLibrary, "get_asm_strs", newer)

    @cuda.jit
    def fill(x):
        x[cuda.grid(1)] = 7

    x = np.zeros(32, dtype=np.int64)
    fill[1, 32](x)
    assert [7] * 32 == x.tolist()
    assert f".version {newest}" in texts[-1]
    with pytest.raises(Exception, match=r"UNSUPPORTED_PTX_VERSION|unsupported toolchain"):
        ObjectCode.from_ptx(texts[-1].encode()).get_kernel(fill.overloads.popitem()[1].entry_name)
