"""The commands of the documentation's table of artifacts, each of them run."""

from __future__ import annotations

import pytest
from artifact_page import KINDS, TOOLS, command_of, possible, rows, write_sources
from cuda_toolkit import lay_out, linked_functions, shell

import numba_ptxlink as pl


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory):
    """Return the toolkit of the wheels."""
    return lay_out(tmp_path_factory.mktemp("toolkit"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with an export, and sources that use it."""
    folder = tmp_path_factory.mktemp("artifacts")
    write_sources(folder)
    pl.export(folder / "udfs.py", folder / "build", arch="sm_90", emit=KINDS)
    return folder


def test_every_pair_has_its_row():
    """The table has a row for each pair of an artifact and a tool."""
    assert set(rows()) == {(tool, kind) for tool in TOOLS for kind in KINDS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "kind"), [(tool, kind) for tool in ("nvcc", "nvcc -dlto") for kind in possible(tool)]
)
def test_nvcc(toolkit, folder, tool, kind):
    """An artifact that nvcc accepts is in the program; -dlto inlines it, unless it is PTX or machine code."""
    shell(f"CUDA={toolkit}; {command_of(tool, kind)}", folder, toolkit)
    functions = linked_functions(folder / "app")["sm_90"]
    assert "apply" in functions
    is_called = tool == "nvcc" or "(not inlined)" in rows()[tool, kind]
    assert ("damp" in functions) is is_called
    assert ("scale" in functions) or kind != "object"


@pytest.mark.slow
@pytest.mark.parametrize("kind", possible("nvlink"))
def test_nvlink(toolkit, folder, kind):
    """An artifact that nvlink accepts is in the cubin that it links."""
    option = "-dlto" if kind == "ltoir" else ""
    shell(f"nvcc -dc {option} -arch=sm_90 -Ibuild calls.cu -o calls.o", folder, toolkit)
    shell(f"CUDA={toolkit}; {command_of('nvlink', kind)}", folder, toolkit)
    functions = linked_functions(folder / "app.cubin")[""]
    assert "apply" in functions
    assert ("damp" in functions) is not bool(option)


@pytest.mark.slow
def test_line_numbers_on_both_sides_are_no_remark(toolkit, folder, tmp_path):
    """With -dlto, nvcc prints nothing if C++ and an exported object both have line numbers."""
    pl.export(folder / "udfs.py", tmp_path, arch="sm_90", emit="object", lineinfo=True)
    compiled = f"nvcc -dlto -lineinfo -arch=sm_90 -I{tmp_path} {folder}/calls.cu {tmp_path}/udfs.o -o app"
    assert "lineinfo" not in shell(compiled, tmp_path, toolkit)
