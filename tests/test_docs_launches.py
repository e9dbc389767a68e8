"""The pages about launches: what they show is run."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import doc_blocks
import launches
import numpy as np
import pytest

import numba_ptxlink as pl
from numba_ptxlink.linker import INCLUDE_DIR

if TYPE_CHECKING:
    from pathlib import Path

PAGES = doc_blocks.DOCS / "how-to"
# What the page's program asks of CuPy, without a device.
CUPY = """
from types import SimpleNamespace

class Array:
    def __init__(self, size, dtype):
        assert dtype == "float32"
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "<f4", "data": (0x7000, False), "version": 3, "stream": 1
        }

ones = Array
cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=0x40))
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


def run(program: str, folder: Path, **environ: str) -> None:
    """Run Python code in *folder*, whose modules it imports."""
    environ["PYTHONPATH"] = str(folder)
    subprocess.run([sys.executable, "-c", program], cwd=folder, env=environ, check=True)


@pytest.mark.slow
def test_the_page_about_loading_is_right(tmp_path):
    """The export is launched in both ways that are shown."""
    export_kernel(blocks("launch.md", "bash")[0], tmp_path)
    (tmp_path / "cupy.py").write_text(CUPY)
    run(blocks("launch.md", "python")[1], tmp_path, **launches.fake_driver(tmp_path))
    assert ["launch saxpy 8,1,1 128,1,1 0 (nil) 0 ", "launch saxpy 8,1,1 128,1,1 0 0x40 0 "] == [
        line for line in launches.log_of(tmp_path) if line.startswith("launch")
    ]


@pytest.mark.slow
def test_the_page_about_launchers_is_right(tmp_path):
    """The C++ that is shown compiles and launches."""
    export_kernel(blocks("launch.md", "bash")[1], tmp_path)
    call = "(reinterpret_cast<CUstream_st*>(0x40), nullptr, nullptr, 300)"
    main = f"int main() {{ return run{call} | run_in_clusters{call}; }}\n"
    (tmp_path / "main.cpp").write_text("".join([*blocks("launch.md", "cpp"), main]))
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}/build", f"-I{INCLUDE_DIR}"]
    command = ["g++", *flags, str(tmp_path / "main.cpp"), "-o", str(tmp_path / "main"), "-ldl"]
    subprocess.run(command, check=True)
    subprocess.run([tmp_path / "main"], env=launches.fake_driver(tmp_path), check=True)
    assert launches.log_of(tmp_path)[-2:] == [
        "launch saxpy 3,1,1 128,1,1 0 0x40 0 ",
        "programmatic cluster 2,1,1 launch saxpy 4,1,1 128,1,1 0 0x40 0 ",
    ]


@pytest.mark.slow
def test_the_module_of_the_page_about_packages_launches(tmp_path):
    """The package whose kernels need no nvcc is installed, and launches them."""
    pytest.importorskip("pybind11")
    for block in doc_blocks.blocks(PAGES / "package.md"):
        if block.file and block.file.startswith("launching/"):
            (tmp_path / block.file).parent.mkdir(exist_ok=True)
            (tmp_path / block.file).write_text(block.text)
    options = ["--quiet", "--no-build-isolation", "--no-deps", "--target", "."]
    command = [sys.executable, "-m", "pip", "install", *options, "./launching"]
    subprocess.run(command, cwd=tmp_path, check=True)
    program = "import launching; launching.saxpy(2.0, 0x7000, 0x8000, 300, 0x40)"
    run(program, tmp_path, **launches.fake_driver(tmp_path))
    assert launches.log_of(tmp_path)[-1] == "launch saxpy 3,1,1 128,1,1 0 0x40 0 "


@pytest.mark.slow
def test_the_function_of_the_page_about_packages_computes(tmp_path):
    """What its first two projects call on the GPU has its values without one."""
    pytest.importorskip("llvmlite")
    (udfs,) = (block for block in doc_blocks.blocks(PAGES / "package.md") if block.file == "udfs.py")
    (tmp_path / "udfs.py").write_text(udfs.text)
    library = pl.load(pl.export(tmp_path / "udfs.py", arch="sm_90", emit=["ptx"]), device="cpu")
    steps = np.arange(4, dtype=np.int32)
    assert [1.0, 0.5, 1 / np.float32(3), 0.25] == library.damp(1.0, steps).tolist()
