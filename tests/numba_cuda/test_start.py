"""Imports and loaded libraries of a fresh process before its first kernel runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import processes
import pytest

import numba_ptxlink as pl

KERNEL = """
import json, sys
import fakedevice
import numpy as np
from numba import cuda

fakedevice.install()
fakedevice.ignore_launches()

@cuda.jit(cache=True)
def kernel(a):
    a[cuda.grid(1)] += 1

kernel[1024, 128](np.ones(1024, np.float32))
maps = open("/proc/self/maps").read()
print(json.dumps({
    "hits": sum(kernel.stats.cache_hits.values()),
    "modules": [name for name in sys.modules if name.startswith("numba_ptxlink")],
    "libraries": [name for name in ("libnvrtc.", "libnvvm.", "libnvJitLink.") if name in maps],
}))
"""

IMPORT = """
import json, sys
import numba.cuda
ours = {name.partition(".")[2]: sys.modules[name] for name in sys.modules if "numba_ptxlink." in name}
print(json.dumps({
    "modules": [*ours],
}))
"""
PATCHES = Path(pl.__file__).parent / "_numba_cuda" / "patches"
AT_IMPORT = {
    *(
        "_config",
        "_front_end",
        "_locks",
        "cache",
        "_native",
        "_native.modules",
        "_plugin",
        "_version",
        "errors",
    ),
    *("_formats", "_formats.kinds"),
    *(
        "_front_end.activation",
        "_front_end.base",
        "_front_end.nvvm_unit",
        "_front_end.registry",
        "_front_end.patch",
    ),
    *("_cpu", "_cpu.device"),
    *("_link", "_link.kernels"),
    *("_numba_cuda", "_numba_cuda.context", "_numba_cuda.front_end", "_numba_cuda.patches"),
    "_numba_cuda.linker",
}


def run(program: str, *arguments: str, **environ: str) -> object:
    """Run *program* in a new process; return the JSON that it prints."""
    pytest.importorskip("numba.cuda")
    environ = {**os.environ, "NUMBA_PTXLINK": "1", **environ}
    command = [sys.executable, "-W", "ignore", program, *arguments]
    done = processes.run(*command, env=environ)
    return json.loads(done.stdout)


def test_a_cached_kernel_loads_no_compiler(tmp_path):
    """A kernel that `cache=True` has kept runs without a compiler, a linker, a parser or the shared cache."""
    (tmp_path / "program.py").write_text(KERNEL)
    folders = {"NUMBA_CACHE_DIR": str(tmp_path / "index"), "NUMBA_PTXLINK_CACHE": str(tmp_path / "cache")}
    first, second = (run(str(tmp_path / "program.py"), **folders) for _ in range(2))
    assert [0, 1] == [first["hits"], second["hits"]]
    assert "libnvvm." in first["libraries"]
    assert [] == second["libraries"]
    dear = {
        "_formats.ptx",
        "_link.run",
        "abi",
        "assembler",
        "cache.tiered",
        "_native._nvptxcompiler",
        "doctor",
    }
    assert not {f"numba_ptxlink.{name}" for name in dear} & {*second["modules"]}


def test_a_start_of_python_imports_the_hook_alone():
    """Programs without numba.cuda pay for a module that imports nothing."""
    program = "import json, sys; print(json.dumps([name for name in sys.modules if 'ptxlink' in name]))"
    installed = [name for name in run("-c", program) if not name.startswith("_editable_")]
    assert ["_numba_ptxlink_hook"] == installed


@pytest.fixture(scope="module")
def imported():
    """Return the modules and libraries of a process that imported numba.cuda alone."""
    return run("-c", IMPORT)


def test_importing_numba_cuda_imports_the_wrappers_alone(imported):
    """The import loads the patches of numba-cuda, and no parser, tool or cache behind them."""
    assert set(imported["modules"]) <= AT_IMPORT | {
        f"_numba_cuda.patches.{path.stem}" for path in PATCHES.glob("*.py")
    }


def test_a_kernel_with_cuda_cxx_loads_no_reader_of_ptx(tmp_path):
    """The process loads the compilers alone: nvJitLink reads their LTO-IR."""
    source = 'extern "C" __device__ int f(int* r, int a) { *r = a; return 0; }'
    declared = f"f = cuda.declare_device('f', 'int32(int32)', link=cuda.CUSource({source!r}))\n@cuda.jit"
    linked = KERNEL.replace("+= 1", "+= f(1)").replace("@cuda.jit(cache=True)", declared)
    (tmp_path / "program.py").write_text(linked)
    folders = {"NUMBA_CACHE_DIR": str(tmp_path / "index"), "NUMBA_PTXLINK_CACHE": str(tmp_path / "cache")}
    loaded = run(str(tmp_path / "program.py"), **folders)
    assert {"libnvrtc.", "libnvvm.", "libnvJitLink."} == {*loaded["libraries"]}
    dear = {"_formats.ptx", "_export.link_files", "_front_end.lowered", "_link.compile"}
    assert not {f"numba_ptxlink.{name}" for name in dear} & {*loaded["modules"]}
