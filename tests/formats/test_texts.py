"""Texts that are taken for CUDA C++, and the kinds of others."""

from __future__ import annotations

from pathlib import Path

import pytest

import numba_ptxlink as pl
from numba_ptxlink._formats import kinds

ROOT = Path(__file__).parents[2]
CXX = {
    "kernel": "__global__ void k(float* p)\n{\n    *p = 1;\n}\n",
    "function": "int f(int a) { return a; }",
    "comment at the end": "int f();\n// That was all.\n",
    "directives": '#include "kernel.cuh"\n',
    "guarded": "#ifdef X\nint x;\n#endif  // X\n",
    "declaration": "struct S;\n/* and\nno more */",
    "unfinished": 'extern "C" __device__ int f() { return 1\n',
    "long macro": "#define MAKE(v) \\\n .version = v, \\\n .size = 3\n",
}
OTHERS = {
    "changelog": ((ROOT / "CHANGELOG.md").read_text(), "text of no known kind"),
    "toml": ((ROOT / "pyproject.toml").read_text(), "text of no known kind"),
    "Python": (Path(__file__).read_text(), "Python"),
    "Python with C++": ('SOURCE = """__global__ void k() {}"""\nx = {\n    1: 2\n}\n', "Python"),
    "JSON": ('{"a": [1, 2]}\n', "text of no known kind"),
    "LLVM IR": ("define void @f() {\n  ret void\n}\n", "LLVM IR as text"),
    "words": ("hello\nworld\n", "text of no known kind"),
    "blank": (" \n", "empty"),
    "empty": ("", "empty"),
}


@pytest.mark.parametrize("text", CXX.values(), ids=CXX)
def test_cuda_source(text):
    """Text that ends as C++ does is CUDA C++, with its name and without."""
    assert kinds.CU == kinds.recognise(text.encode())


@pytest.mark.parametrize(("text", "name"), OTHERS.values(), ids=OTHERS)
def test_other_text(tmp_path, text, name):
    """`link` and `inspect` name the kind of a text that is not CUDA C++."""
    assert kinds.recognise(text.encode()) is None
    assert name == kinds.describe(text.encode())
    (tmp_path / "file").write_text(text)
    for take in (pl.inspect, lambda path: pl.link(path, arch="sm_80")):
        with pytest.raises(pl.LinkError, match=f"its content is {name}; pass a file of ptx"):
            take(tmp_path / "file")


def test_a_cu_file_is_what_its_extension_says(tmp_path):
    """A .cu file is CUDA C++, whatever its text; the compiler reports errors in it."""
    (tmp_path / "odd.cu").write_text("MACRO_THAT_A_HEADER_DEFINES(f)\n")
    with pytest.raises(pl.LinkError, match=r"NVRTC could not compile odd\.cu"):
        pl.link(tmp_path / "odd.cu", arch="sm_80")
