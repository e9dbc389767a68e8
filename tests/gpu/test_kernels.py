"""Numba kernels that run what `PtxLinker` made."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import numba_ptxlink as pl

# The grids are small, and the arrays are the host's.
pytestmark = pytest.mark.filterwarnings("ignore::numba.cuda.core.errors.NumbaPerformanceWarning")


@pytest.fixture(autouse=True)
def _enabled():
    pl.enable()
    yield
    pl.enable()


def test_a_kernel_without_link_files_is_assembled_and_runs():
    """A kernel that has nothing to link comes from nvPTXCompiler and computes what Python says."""
    from numba import cuda

    @cuda.jit
    def axpy(a, x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] += a * x[i]

    before = pl.status()
    x, y = np.arange(1000, dtype=np.float32), np.ones(1000, dtype=np.float32)
    expected = y + np.float32(3) * x
    axpy[4, 256](np.float32(3), x, y)
    after = pl.status()
    assert expected.tolist() == y.tolist()
    assert (before.assembled + 1, before.linked) == (after.assembled, after.linked)


def test_a_kernel_with_cuda_source_is_linked_and_runs(tmp_path):
    """A kernel that calls CUDA C++ goes through nvJitLink and computes what the C++ says."""
    from numba import cuda

    source = tmp_path / "triple.cu"
    source.write_text('extern "C" __device__ int triple(int* result, int x) { *result = 3 * x; return 0; }')
    triple = cuda.declare_device("triple", "int32(int32)")

    @cuda.jit(link=[str(source)])
    def kernel(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = triple(x[i])

    before = pl.status()
    x = np.arange(100, dtype=np.int32)
    expected = 3 * x
    kernel[1, 128](x)
    assert expected.tolist() == x.tolist()
    assert before.linked + 1 == pl.status().linked


def test_ptx_newer_than_the_driver_runs(monkeypatch):
    """A kernel whose PTX the driver cannot load runs, since the driver only sees the cubin."""
    from cuda.core import ObjectCode
    from numba import cuda
    from numba.cuda.codegen import CUDACodeLibrary

    from numba_ptxlink._tools import driver as cuda_driver

    driver = cuda_driver.version()
    newest = max(pl.toolchain().ptx_versions)
    if (newest.major - 9 + 13, newest.minor) <= driver:
        pytest.skip(f"the driver (CUDA {driver}) is as new as nvPTXCompiler (PTX {newest})")
    texts = []
    stock = CUDACodeLibrary.get_asm_strs

    def newer(self, cc=None):
        found = [re.sub(r"\.version \d+\.\d+", f".version {newest}", text) for text in stock(self, cc=cc)]
        texts.extend(found)
        return found

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


def test_the_environment_variable_keeps_the_stock_linker():
    """NUMBA_PTXLINK=0 leaves numba-cuda's linker, and kernels run all the same."""
    program = textwrap.dedent("""
        import numpy as np
        from numba import cuda
        from numba.cuda.cudadrv import driver
        import numba_ptxlink as pl
        @cuda.jit
        def fill(x):
            x[cuda.grid(1)] = 7
        x = np.zeros(32)
        fill[1, 32](x)
        assert x.tolist() == [7] * 32
        print(driver._Linker.__module__, pl.status().active, pl.status().links_served)
    """)
    shown = {}
    for mode in ("0", "1"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            env={**__import__("os").environ, "NUMBA_PTXLINK": mode},
        )
        shown[mode] = run.stdout.split()
    assert shown == {
        "0": ["numba.cuda.cudadrv.driver", "False", "0"],
        "1": ["numba_ptxlink._numba_cuda.linker", "True", "1"],
    }


def test_disable_gives_the_stock_linker_back():
    """After disable() kernels are linked by numba-cuda, and run."""
    from numba import cuda

    pl.disable()

    @cuda.jit
    def fill(x):
        x[cuda.grid(1)] = 7

    before = pl.status().links_served
    x = np.zeros(32)
    fill[1, 32](x)
    assert [7] * 32 == x.tolist()
    assert before == pl.status().links_served
