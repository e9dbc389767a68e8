"""Kernels out of the cache, on the device: they load, run and report exceptions."""

from __future__ import annotations

import json
import os
import sys
import textwrap

import processes
import pytest

PROGRAM = textwrap.dedent(
    """
    import json, sys
    import numpy as np
    from numba import cuda
    import numba_ptxlink as pl

    order = json.loads(sys.argv[1])
    twice = cuda.declare_device("twice", "float32(float32)")
    SOURCE = 'extern "C" __device__ int twice(float* out, float a) { *out = 2 * a; return 0; }'

    @cuda.jit(device=True)
    def scaled(x):
        return twice(x) + np.float32(1)

    @cuda.jit(link=[cuda.CUSource(SOURCE, name="twice.cu")])
    def linked(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] = scaled(a[i])

    @cuda.jit
    def shared(a):
        s = cuda.shared.array(32, dtype=np.float32)
        i = cuda.threadIdx.x
        s[i] = a[i]
        cuda.syncthreads()
        a[i] = s[31 - i]

    @cuda.jit(debug=True, opt=False)
    def failing(a):
        a[cuda.grid(1)] = 1
        if a[0] == 1:
            raise ValueError("as expected")

    @cuda.jit(lineinfo=True)
    def lined(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] += 1

    def run(name):
        a = np.arange(32, dtype=np.float32)
        kernel = globals()[name]
        if name == "failing":
            try:
                kernel[1, 32](a)
            except ValueError as error:
                return str(error)
            return "nothing was raised"
        kernel[1, 32](a)
        return a.tolist()

    results = {name: run(name) for name in order}
    status = pl.status()
    print(json.dumps({"results": results, "hits": status.cache_hits, "misses": status.cache_misses}))
    """
)
NAMES = ["linked", "shared", "failing", "lined"]


def run(tmp_path, order):
    """Run the program with the kernels in *order*."""
    environ = {**os.environ, "NUMBA_PTXLINK": "1", "NUMBA_PTXLINK_CACHE": str(tmp_path / "cache")}
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, str(tmp_path / "program.py"), json.dumps(order)]
    done = processes.run(*command, env=environ)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Run the kernels in two processes, in two orders."""
    tmp_path = tmp_path_factory.mktemp("cache")
    return run(tmp_path, NAMES), run(tmp_path, NAMES[::-1])


def test_results_are_right_with_a_cold_and_a_warm_cache(runs):
    """Linked, shared-memory, failing and line-numbered kernels do the same out of the cache."""
    expected = {
        "linked": [2.0 * i + 1 for i in range(32)],
        "shared": [31.0 - i for i in range(32)],
        "lined": [i + 1.0 for i in range(32)],
    }
    for report in runs:
        assert expected == {name: report["results"][name] for name in expected}
        assert "as expected" in report["results"]["failing"]


def test_the_second_process_compiles_nothing(runs):
    """In another order everything is found."""
    first, second = runs
    assert first["misses"] > 0
    assert 0 == second["misses"]
    assert second["hits"] > 0
