"""Paths whose bytes are not in the encoding of the locale, as names in UTF-8 are not under LC_ALL=POSIX."""

from __future__ import annotations

import io
import os

import pytest

import numba_ptxlink as pl
from numba_ptxlink import cli

UDFS = "from numba_ptxlink import udf\n\n@udf('int32(int32)')\ndef twice(x):\n    return 2 * x\n"
KERNEL = '#include "h.h"\nextern "C" __global__ void k(int* p) { *p = VALUE; }\n'


@pytest.fixture
def folder(tmp_path):
    """Return a folder whose name is not UTF-8, with a Python file of such a name, a kernel and its header."""
    made = tmp_path / os.fsdecode(b"d\xfc")
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"this file system has no such names: {error}")
    (made / os.fsdecode(b"\xfc.py")).write_text(UDFS)
    (made / "k.cu").write_text(KERNEL)
    (made / "h.h").write_text("#define VALUE 1\n")
    return made


@pytest.mark.parametrize("options", [{}, {"front_end": "numba-cuda-mlir"}])
def test_an_export_of_such_a_file(folder, options):
    """Neither compiler takes its name: it is refused with the cure."""
    pytest.importorskip("numba_cuda_mlir")
    path = folder / os.fsdecode(b"\xfc.py")
    with pytest.raises(pl.ExportError, match=r"is not in the encoding of this locale(.|\n)*PYTHONUTF8=1"):
        pl.export(path, folder, archs=["sm_75"], emit=["ptx"], name="u", **options)


def test_a_wrong_program_in_such_a_file(folder):
    """What else is wrong with a program keeps its own reason."""
    path = folder / os.fsdecode(b"\xfc.py")
    path.write_text(UDFS.replace("2 * x", "missing(x)"))
    with pytest.raises(pl.ExportError, match="missing") as caught:
        pl.export(path, folder, archs=["sm_75"], emit=["ptx"], name="u")
    assert "encoding" not in str(caught.value)


def test_such_a_name_cannot_begin_file_names(folder):
    """The name of such a file is no name of artifacts."""
    with pytest.raises(pl.ExportError, match=r"'\\udcfc' is not in the encoding .*choose another name"):
        pl.export(folder / os.fsdecode(b"\xfc.py"), folder, archs=["sm_75"], emit=["ptx"])


@pytest.mark.parametrize("lineinfo", [False, True])
def test_a_link_in_such_a_folder(folder, lineinfo):
    """CUDA C++ there is compiled, with its headers and line numbers."""
    linked = pl.link(folder / "k.cu", arch="sm_75", include_dirs=[folder], lineinfo=lineinfo)
    assert linked.cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("lto", [False, True])
def test_a_link_of_such_a_file(folder, lto):
    """CUDA C++ under such a name is linked with another, with and without link-time optimisation."""
    path = folder / os.fsdecode(b"n\xff.cu")
    path.write_text("__device__ int value() { return 1; }\n")
    caller = 'extern __device__ int value(); extern "C" __global__ void k(int* p) { *p = value(); }\n'
    assert lto == pl.link(caller, path, arch="sm_75", lto=lto, inline="none").lto


def test_what_the_output_cannot_encode_is_escaped(tmp_path, monkeypatch):
    """Names that the encoding of the standard output lacks are escaped, and kept on disk."""
    written = io.BytesIO()
    stdout = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr("sys.stdout", stdout)
    source = tmp_path / "\N{GREEK SMALL LETTER ALPHA}.py"
    source.write_text(UDFS)
    out = tmp_path / "\N{GREEK SMALL LETTER BETA}"
    arguments = ["export", str(source), "-o", str(out), "--arch", "sm_75", "--emit", "ptx"]
    assert 0 == cli.main(arguments)
    assert 0 == cli.main(["inspect", str(out / f"{source.stem}.sm_75.ptx")])
    assert 0 == cli.main([*arguments, "--json"])
    stdout.flush()
    text = written.getvalue().decode()
    assert rf"{tmp_path}/\u03b2/\u03b1.h" in text
    assert r'\u03b2/\u03b1.sm_75.ptx"' in text
    assert "strict" == stdout.errors
