"""`#include "..."` in CUDA C++ that is linked: which directory it searches first."""

from __future__ import annotations

from pathlib import Path

import pytest

import numba_ptxlink as pl
from numba_ptxlink.linker import PtxLinker

SOURCE = '#include "own.h"\n'


def define(path: Path, name: str) -> None:
    """Write a header that defines a kernel to *path*; the kernel's name shows which header was included."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'extern "C" __global__ void {name}() {{}}\n')


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Return the path of a source with a header beside it, relative to the working directory."""
    define(tmp_path / "src" / "own.h", "beside")
    (tmp_path / "src" / "k.cu").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return Path("src", "k.cu")


def kernels(cubin: bytes) -> list[str]:
    """Return the names of the kernels in *cubin*."""
    return [symbol.name for symbol in pl.inspect(cubin, sass=False).symbols]


@pytest.mark.parametrize("decoy", [False, True], ids=["alone", "decoy"])
@pytest.mark.parametrize("shape", [str, Path, Path.absolute, lambda path: str(path.absolute())])
def test_a_file_includes_what_is_beside_it(source, shape, decoy):
    """The source's own folder comes first, whatever is in the working directory."""
    if decoy:
        define(Path("own.h"), "decoy")
    assert ["beside"] == kernels(pl.link(shape(source), arch="sm_90").cubin)


@pytest.mark.parametrize("lto", [False, True])
def test_a_kernels_link_file_includes_what_is_beside_it(source, lto):
    """A header beside the file is included, though numba-cuda's own linker does not find it."""
    for path in (source, source.absolute()):
        linker = PtxLinker(cc=(9, 0), lto=lto)
        linker.add_file_guess_ext(str(path))
        assert ["beside"] == kernels(linker.complete().code)


CALLER = 'extern "C" __device__ int one();\nextern "C" __global__ void k(int* p) { *p = one(); }\n'
ONE = '#include "value.h"\nextern "C" __device__ int one() { return VALUE; }\n'


@pytest.fixture
def copies(tmp_path):
    """Return the paths of a source under two names: beside each other, linked, and in another folder."""
    (tmp_path / "sub").mkdir()
    for path in (tmp_path, tmp_path / "sub"):
        (path / "value.h").write_text("#define VALUE 1\n")
        (path / "a.cu").write_text(ONE)
    (tmp_path / "b.cu").write_text(ONE)
    (tmp_path / "link.cu").symlink_to(tmp_path / "a.cu")
    return [tmp_path / name for name in ("a.cu", "b.cu", "link.cu", "sub/a.cu")]


@pytest.mark.parametrize("lto", [False, True])
def test_one_source_under_two_names_is_one_input(copies, lto):
    """Sources of equal text are two inputs only if they include different headers, whatever their names."""
    assert ("<cu 1>", "a.cu") == pl.link(CALLER, *copies, arch="sm_90", lto=lto).inputs
    assert ["k"] == kernels(
        pl.link(CALLER, *["#define VALUE 1\n" + ONE[19:]] * 2, arch="sm_90", lto=lto).cubin
    )
    (copies[-1].parent / "value.h").write_text("#define VALUE 2\n")
    with pytest.raises(pl.LinkError, match=r"one\b.* (defined|Multiple)|multiply defined"):
        pl.link(CALLER, *copies, arch="sm_90", lto=lto)


@pytest.mark.parametrize("lto", [False, True])
def test_a_kernel_may_link_one_source_under_two_names(copies, lto):
    """Numba's declarations may name one file by several paths."""
    linker = PtxLinker(cc=(9, 0), lto=lto)
    linker.add_cu(CALLER)
    for path in copies[:3]:
        linker.add_file_guess_ext(str(path))
    assert "k" in kernels(linker.complete().code)
