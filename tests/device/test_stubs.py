"""The generated part of the CPU's CUDA driver, and the library's imports and exports."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from numba_ptxlink._cpu.device import LIBRARY_FOLDER

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "numba_ptxlink" / "_native" / "cuda_driver"


def test_stubs_are_what_the_tool_writes():
    """The committed files equal the output of the tool for the headers of the release that they name."""
    spec = importlib.util.spec_from_file_location("stubs_tool", ROOT / "tools" / "cuda_driver_stubs.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    (header,) = (file for file in metadata.files("nvidia-cuda-runtime") if file.name == "cuda.h")
    release = re.search(r"of CUDA ([\d.]+)", (SOURCES / "stubs.c").read_text())[1]
    if not metadata.version("nvidia-cuda-runtime").startswith(release):
        pytest.skip(f"the stubs are of CUDA {release}")
    for name, content in tool.generate(Path(header.locate()).parent).items():
        assert (SOURCES / name).read_text() == content


def test_the_library_needs_no_python():
    """A single library serves each Python, and exports the driver's functions alone."""
    library, tools = LIBRARY_FOLDER / "libcuda.so.1", [shutil.which(name) for name in ("readelf", "nm")]
    if None in tools:
        pytest.skip("binutils are not installed")
    dynamic, symbols = (
        subprocess.run([tool, *options, library], check=True, capture_output=True, text=True).stdout
        for tool, options in zip(tools, (["-d"], ["-D", "--defined-only"]), strict=True)
    )
    needed = set(re.findall(r"NEEDED.*\[(.*?)\.so", dynamic))
    assert needed <= {"libc", "libdl", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert "[libcuda.so.1]" in dynamic
    names = symbols.split()[2::3]
    assert [name for name in names if not name.startswith(("cu", "numba_ptxlink_"))] == []
