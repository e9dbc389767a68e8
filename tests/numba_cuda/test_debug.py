"""Debug information and line numbers in Numba's kernels, with and without LTO, alone and with CUDA C++."""

from __future__ import annotations

import re
from pathlib import Path

import fakedevice
import processes
import pytest

import numba_ptxlink as pl
from numba_ptxlink._formats import elf
from numba_ptxlink._tools import find

SOURCE = """\
extern "C" __device__ int helper(int a, float b) {
  int c = a * 3;
  return c + (int)b;
}
"""


@pytest.fixture(autouse=True)
def _device(monkeypatch):
    pl.enable()
    fakedevice.install(monkeypatch.setattr)


def make(*, linked: bool, **options):
    """Return library and cubin of a kernel that calls CUDA C++ if *linked*."""
    from numba import cuda, types

    link = cuda.CUSource(SOURCE, name="helper.cu") if linked else None
    helper = cuda.declare_device("helper", "int32(int32, float32)", abi="c", link=link)

    def alone(x):
        i = cuda.grid(1)
        x[i] += 1

    def calling(x):
        i = cuda.grid(1)
        x[i] = helper(2, x[i])

    return fakedevice.compile_kernel(calling if linked else alone, (types.float32[::1],), **options)


def lines_of(cubin: bytes, folder: Path) -> set[str]:
    """Return the files that nvdisasm finds machine code mapped to."""
    tool = find.program("nvdisasm")
    if tool is None:
        pytest.skip("there is no nvdisasm")
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    text = processes.run(tool, "-g", "-c", path).stdout
    return {Path(name).name for name in re.findall(r'//## File "([^"]*)", line \d+', text)}


@pytest.mark.parametrize("linked", [False, True], ids=["alone", "linked"])
@pytest.mark.parametrize(
    "lto",
    [pytest.param(None, marks=pytest.mark.slow), False, True],
    ids=["default", "no lto", "lto"],
)
@pytest.mark.parametrize("kind", ["plain", "lineinfo", "debug"])
def test_sections_and_lines(kind, lto, linked, tmp_path):
    """The cubin has the requested sections, and maps its code to the Python file and the C++ file."""
    options = {} if lto is None else {"lto": lto}
    if kind == "debug":
        options |= {"debug": True, "opt": False}
    elif kind == "lineinfo":
        options["lineinfo"] = True
    _, cubin = make(linked=linked, **options)
    names = [section.name for section in elf.read(cubin.code).sections]
    # If the image has the PTX of several inputs, a number follows the name.
    sections = {name.partition(".nv_debug_ptx_txt")[1] or name for name in names}
    expected = {
        "plain": set(),
        "lineinfo": {".debug_line", ".nv_debug_line_sass", ".nv_debug_ptx_txt"},
        "debug": {".debug_line", ".debug_info", ".nv_debug_line_sass", ".nv_debug_info_reg_sass"},
    }[kind]
    assert expected <= sections
    if kind == "plain":
        assert set() == {name for name in sections if "debug_line" in name}
    else:
        files = {Path(__file__).name, *(["helper.cu"] if linked else [])}
        assert files <= lines_of(cubin.code, tmp_path)


def test_lines_of_a_helper_are_kept():
    """If only a helper has line numbers, LTO keeps them; code of NVRTC then has line numbers, too."""
    from numba import cuda, types

    link = cuda.CUSource(SOURCE, name="helper.cu")
    helper = cuda.declare_device("helper", "int32(int32, float32)", abi="c", link=link)

    @cuda.jit(device=True, lineinfo=True)
    def calls(x):
        return helper(2, x)

    def kernel(x):
        x[0] = calls(x[0])

    _, cubin = fakedevice.compile_kernel(kernel, (types.float32[::1],), lto=True)
    assert ".debug_line" in {section.name for section in elf.read(cubin.code).sections}
