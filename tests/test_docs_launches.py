"""The code of the pages about launches is run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import doc_blocks
import numpy as np
import processes
import pytest
from devices import ON_CPU

import numba_ptxlink as pl
from numba_ptxlink._cpu.device import LIBRARY_FOLDER
from numba_ptxlink.linker import INCLUDE_DIR

if TYPE_CHECKING:
    from pathlib import Path

PAGES = doc_blocks.DOCS / "how-to"
# The part of CuPy that the page's program uses, with memory of the driver.
CUPY = """
from types import SimpleNamespace
import driver_api as api

class Array:
    def __init__(self, size, dtype):
        assert dtype == "float32"
        self.address = api.allocate(4 * size)
        api.call("cuMemsetD32_v2", api.POINTER(self.address), 0x3F800000, api.SIZE(size))
        data = {"shape": (size,), "data": (self.address, False), "stream": 1}
        self.__cuda_array_interface__ = {"typestr": "<f4", "version": 3, **data}

api.start()
stream = SimpleNamespace(ptr=api.ask("cuStreamCreate", 0))
ones = Array
cuda = SimpleNamespace(get_current_stream=lambda: stream)
"""
# 1.0 + 2.0 * 1.0, twice, as bits.
RESULT = "assert cupy.api.read(y.address, 1000) == 1000 * [0x40A00000]"
CXX = """
#include <cstdio>
extern "C" int cuMemAllocManaged(float**, std::size_t, unsigned);
int main() {
    float* y = nullptr;
    if (udfs_kernels::load() != 0 || cuMemAllocManaged(&y, 1200, 1) != 0) return 1;
    for (int i = 0; i < 300; ++i) y[i] = static_cast<float>(i);
    const int error = run(nullptr, y, y, 300);
    std::printf("%d %d %g\\n", error, run_in_clusters(nullptr, y, y, 300), static_cast<double>(y[299]));
}
"""


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of *language* on a page."""
    return [block.text for block in doc_blocks.blocks(PAGES / page) if block.language == language]


def export_kernel(command: str, folder: Path) -> None:
    """Run a command of the page on its kernel."""
    (folder / "udfs.py").write_text(blocks("launch.md", "python")[0])
    program, *arguments = shlex.split(command)
    assert program == "numba-ptxlink"
    subprocess.run([sys.executable, "-m", "numba_ptxlink.cli", *arguments], cwd=folder, check=True)


@pytest.mark.slow
def test_the_page_about_loading_is_right(tmp_path):
    """The export is launched in both ways that are shown."""
    export_kernel(blocks("launch.md", "bash")[0], tmp_path)
    (tmp_path / "cupy.py").write_text(CUPY)
    (tmp_path / "program.py").write_text(f"{blocks('launch.md', 'python')[1]}\n{RESULT}\n")
    path = os.pathsep.join((str(tmp_path), os.environ["PYTHONPATH"]))
    environ = processes.environ(PYTHONPATH=path)
    processes.run(*ON_CPU, sys.executable, "program.py", cwd=tmp_path, env=environ)


@pytest.mark.slow
def test_the_page_about_launchers_is_right(tmp_path):
    """The C++ that is shown compiles and launches, but for clusters, which the CPU does not support."""
    export_kernel(blocks("launch.md", "bash")[1], tmp_path)
    (tmp_path / "main.cpp").write_text("".join([*blocks("launch.md", "cpp"), CXX]))
    flags = ("-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}/build", f"-I{INCLUDE_DIR}")
    libraries = (LIBRARY_FOLDER / "libcuda.so.1", "-ldl")
    processes.run("g++", *flags, tmp_path / "main.cpp", *libraries, "-o", tmp_path / "main")
    assert processes.run(*ON_CPU, tmp_path / "main", env=processes.environ()).stdout == "0 801 897\n"


@pytest.mark.slow
def test_the_function_of_the_page_about_packages_computes(tmp_path):
    """The function of the page's first two projects computes on the CPU the values that the page shows."""
    pytest.importorskip("llvmlite")
    (udfs,) = (block for block in doc_blocks.blocks(PAGES / "package.md") if block.file == "udfs.py")
    (tmp_path / "udfs.py").write_text(udfs.text)
    library = pl.load(pl.export(tmp_path / "udfs.py", arch="sm_90", emit=["ptx"]), device="cpu")
    steps = np.arange(4, dtype=np.int32)
    assert [1.0, 0.5, 1 / np.float32(3), 0.25] == library.damp(1.0, steps).tolist()
