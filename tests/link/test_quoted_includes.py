"""`#include "..."` in CUDA C++ that is linked: which directory it searches first."""

from __future__ import annotations

from pathlib import Path

import pytest

import numba_ptxlink as pl
from numba_ptxlink.linker import PtxLinker

SOURCE = '#include "own.h"\n'


def define(path: Path, name: str) -> None:
    """Write a header that defines a kernel to *path*, and so tells which header was included."""
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
    """The source's own folder comes first, whatever the working directory holds."""
    if decoy:
        define(Path("own.h"), "decoy")
    assert ["beside"] == kernels(pl.link(shape(source), arch="sm_90").cubin)


@pytest.mark.parametrize("lto", [False, True])
def test_a_kernels_link_file_includes_what_is_beside_it(source, lto):
    """What numba-cuda's own linker does not find is found beside the file."""
    for path in (source, source.absolute()):
        linker = PtxLinker(cc=(9, 0), lto=lto)
        linker.add_file_guess_ext(str(path))
        assert ["beside"] == kernels(linker.complete().code)
