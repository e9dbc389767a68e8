"""The extension module: its committed C source, its imports and its exports."""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cffi
import pytest

from numba_ptxlink._native import _nvptxcompiler

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "numba_ptxlink" / "_native"
EXTENSION = _nvptxcompiler.__file__


def run(tool: str, *arguments: str) -> str:
    """Return the output of a tool of binutils."""
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"{tool} of binutils is not installed")
    return subprocess.run([path, *arguments], check=True, capture_output=True, text=True).stdout


def test_c_source_is_what_cffi_writes(tmp_path) -> None:
    """The committed C file is the output of the pinned version of cffi for the declarations."""
    (pinned,) = re.findall(r'"cffi==([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    tool = Path(sys.executable).with_name("cffi-gen-src")
    if cffi.__version__ != pinned or not tool.exists():
        pytest.skip(f"cffi {pinned} writes the file, and this is {cffi.__version__}")
    out = tmp_path / "_nvptxcompiler.c"
    sources = (SOURCE / "nvptxcompiler.cdef", SOURCE / "nvptxcompiler.prelude")
    command = [tool, "read-sources", "numba_ptxlink._native._nvptxcompiler", *sources, out]
    subprocess.run(command, check=True, capture_output=True)
    committed = (SOURCE / "_nvptxcompiler.c").read_text(encoding="utf-8")
    generated = out.read_text(encoding="utf-8")
    diff = "\n".join(
        difflib.unified_diff(committed.splitlines(), generated.splitlines(), "committed", "generated")
    )
    assert not diff, f"Run the command in nvptxcompiler.cdef:\n{diff}"
    assert committed == generated


def test_stub_declares_the_functions_and_constants() -> None:
    """The type stub has exactly the names of the module."""
    stub = (SOURCE / "_nvptxcompiler.pyi").read_text(encoding="utf-8")
    declared = set(re.findall(r"nvPTXCompiler[A-Z]\w+|NVPTXCOMPILE_\w+", stub))
    assert set(dir(_nvptxcompiler.lib)) == declared


def test_serves_every_python() -> None:
    """The file name carries the stable ABI's tag, not one Python's."""
    assert EXTENSION.endswith("/_nvptxcompiler.abi3.so")


def test_exports_only_its_init_function() -> None:
    """No symbol of the library can bind to, or be bound by, another module of the process."""
    symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", EXTENSION).splitlines()]
    assert ["PyInit__nvptxcompiler"] == symbols


def test_needs_only_the_c_library() -> None:
    """Neither a driver, nor nvJitLink, nor libstdc++ has to be there; libgcc comes with glibc."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", EXTENSION))
    allowed = re.compile(r"(lib(c|m|dl|pthread|rt|gcc_s)\.so\.\d+|ld-linux.*)")
    assert [] == [name for name in needed if not allowed.fullmatch(name)]
    assert "libc.so.6" in needed


def test_needs_no_symbol_from_elsewhere() -> None:
    """Every undefined symbol is of the C library or of Python's stable ABI."""
    lines = [line.split() for line in run("nm", "-D", "--undefined-only", EXTENSION).splitlines()]
    strong = [name for kind, name in lines if kind == "U"]
    foreign = [name for name in strong if not re.match(r"_?Py|.*@(GLIBC|GCC)_", name)]
    assert [] == foreign


def test_brings_no_libgcc_of_its_own() -> None:
    """A copy from a recent GCC would ask for glibc 2.35 by a function that nothing else here needs."""
    undefined = run("nm", "-D", "--undefined-only", EXTENSION)
    assert "_Unwind_Resume@GCC_" in undefined
    assert "_dl_find_object" not in undefined
