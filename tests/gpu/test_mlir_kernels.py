"""numba-cuda-mlir's kernels with this package's links, on the device."""

from __future__ import annotations

import json
import os
import sys
import textwrap

import processes
import pytest

pytest.importorskip("numba_cuda_mlir.cuda", reason="numba-cuda-mlir is not installed")

PROGRAM = textwrap.dedent(
    """
    import json, sys
    import numpy as np
    from numba_cuda_mlir import cuda
    from numba_cuda_mlir.numba_cuda.cudadrv.linkable_code import CUSource
    import numba_ptxlink as pl

    SOURCE = 'extern "C" __device__ float twice(float a) { return 2 * a; }'
    twice = cuda.declare_device("twice", "float32(float32)", abi="c", link=CUSource(SOURCE, name="twice.cu"))

    @cuda.jit(device=True)
    def plus_one(x):
        return x + np.float32(1)

    @cuda.jit
    def plain(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] = plus_one(a[i])

    @cuda.jit(max_registers=32, launch_bounds=128)
    def bounded(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] = a[i] / (a[i] + 1)

    @cuda.jit
    def linked(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] = twice(plus_one(a[i]))

    @cuda.jit(lto=True)
    def optimised(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] = twice(a[i])

    @cuda.jit
    def cooperative(a):
        i = cuda.grid(1)
        a[i] = a[i] + 1
        cuda.cg.this_grid().sync()
        if i == 0:
            a[0] = a[a.size - 1]

    @cuda.jit
    def shared(a):
        s = cuda.shared.array(32, dtype=np.float32)
        i = cuda.threadIdx.x
        s[i] = a[i]
        cuda.syncthreads()
        a[i] = s[31 - i]

    results = {}
    for kernel in (plain, bounded, linked, optimised, cooperative, shared):
        a = cuda.to_device(np.arange(32, dtype=np.float32))
        kernel[1, 32](a)
        (signature,) = kernel.signatures
        results[kernel.py_func.__name__] = [
            a.copy_to_host().tolist(),
            kernel.get_max_threads_per_block(signature),
            kernel.get_shared_mem_per_block(signature),
            0 < kernel.get_regs_per_thread(signature) <= 255,
        ]
    status = pl.status()
    print(json.dumps({"results": results, "links": status.links_served, "active": status.active}))
    """
)


def run(tmp_path, mode: str, cache: str) -> dict[str, object]:
    """Run the kernels in a process."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environ = {**os.environ, "NUMBA_PTXLINK": mode, "NUMBA_PTXLINK_CACHE": cache}
    command = [sys.executable, "-W", "ignore", str(program)]
    done = processes.run(*command, env=environ)
    return json.loads(done.stdout.splitlines()[-1])


def test_kernels_run_as_without_the_plugin(tmp_path):
    """Results, limits and shared memory are those of numba-cuda-mlir alone, also out of the cache."""
    stock = run(tmp_path, "0", "0")
    assert not stock["active"]
    for _ in ("cold", "warm"):
        plugin = run(tmp_path, "1", str(tmp_path / "cache"))
        assert plugin["active"]
        assert plugin["links"] >= len(plugin["results"])
        assert plugin["results"] == stock["results"]
