"""What a fresh process imports and loads before its first kernel runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HELPERS = Path(__file__).parents[1] / "helpers"
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


def run(program: str, *arguments: str, **environ: str) -> object:
    """Run *program* in a process of its own; return what it printed as JSON."""
    pytest.importorskip("numba.cuda")
    environ = {**os.environ, "PYTHONPATH": str(HELPERS), "NUMBA_PTXLINK": "1", **environ}
    command = [sys.executable, "-W", "ignore", program, *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


def test_a_cached_kernel_loads_no_compiler(tmp_path):
    """A kernel that `cache=True` has kept runs without a compiler, a linker, a parser or the shared cache."""
    (tmp_path / "program.py").write_text(KERNEL)
    places = {"NUMBA_CACHE_DIR": str(tmp_path / "index"), "NUMBA_PTXLINK_CACHE": str(tmp_path / "cache")}
    first, second = (run(str(tmp_path / "program.py"), **places) for _ in range(2))
    assert [0, 1] == [first["hits"], second["hits"]]
    assert "libnvvm." in first["libraries"]
    assert [] == second["libraries"]
    dear = {"_formats.ptx", "_link", "abi", "assembler", "cache.tiered", "_native._nvptxcompiler", "doctor"}
    assert not {f"numba_ptxlink.{name}" for name in dear} & {*second["modules"]}


def test_importing_numba_cuda_imports_the_wrappers_alone():
    """The import brings in what stands in numba-cuda's place, and no parser, tool or cache behind it."""
    program = (
        "import json, sys; import numba.cuda; "
        "print(json.dumps([name for name in sys.modules if name.startswith('numba_ptxlink.')]))"
    )
    imported = {name.split(".")[1] for name in run("-c", program)}
    assert imported <= {
        "_config",
        "_formats",
        "_front_end",
        "_locks",
        "_native",
        "_numba_cuda",
        "_plugin",
        "_tools",
        "_version",
        "errors",
    }


@pytest.mark.parametrize("name", ["nvJitLink", "nvrtc", "nvvm"])
@pytest.mark.parametrize("loaded", [False, True])
def test_a_library_is_found_before_it_is_loaded(name, loaded):
    """The file that a key identifies a library by is the one that is loaded, before and after."""
    program = (
        "import json, sys; from cuda import pathfinder; from numba_ptxlink._tools import build_id\n"
        "name, loaded = sys.argv[1], sys.argv[2] == 'True'\n"
        "there = lambda: f'lib{name}.so' in open('/proc/self/maps').read()\n"
        "load = lambda: pathfinder.load_nvidia_dynamic_lib(name).abs_path\n"
        "before = load() if loaded else ''\n"
        "path, early = build_id.library_path(name), there()\n"
        "print(json.dumps([path, load(), early]))"
    )
    path, opened, early = run("-c", program, name, str(loaded))
    assert opened == path
    assert loaded is early


def test_numba_cuda_is_asked_where_the_file_does_not_tell(monkeypatch):
    """An nvJitLink of CUDA 12, or none, is for numba-cuda to judge; NVRTC without a file has its version."""
    from numba_ptxlink._numba_cuda.patches import unloaded_tools
    from numba_ptxlink._tools import build_id

    for path, answer in (("/x/libnvJitLink.so.12", "asked"), ("/x/libnvJitLink.so.14", True)):
        monkeypatch.setattr(build_id, "library_path", lambda _, path=path: path)
        assert answer == unloaded_tools._wrap_have_nvjitlink(lambda: "asked")()

    def missing(name):
        raise RuntimeError(name)

    monkeypatch.setattr(build_id, "library_path", missing)
    assert "asked" == unloaded_tools._wrap_have_nvjitlink(lambda: "asked")()
    assert "version" == unloaded_tools._wrap_magic_tuple(lambda _: "version")(None)
