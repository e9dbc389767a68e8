"""Files that are passed to tools, also on a full disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import numba_ptxlink as pl
from numba_ptxlink._tools import host_compiler, programs

if TYPE_CHECKING:
    from pathlib import Path

PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"


def program(path: Path, script: str) -> str:
    """Write a shell script as the program *path*."""
    path.write_text(f"#!/bin/sh\nfor last; do :; done\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_a_tool_that_fails_has_its_log_and_a_cure(monkeypatch, tmp_path):
    """The error shows the output of the tool, and a cure."""
    path = program(tmp_path / "nvcc", "echo Missing .version directive; exit 1")
    monkeypatch.setattr(host_compiler, "_compilers", lambda: iter([((path,), True)]))
    for error, attempt, cure in (
        (pl.AssembleError, lambda: programs.run_ptxas(path, PTX, []), "Correct the PTX"),
        (pl.ExportError, lambda: host_compiler.compile_object("", "x.cpp", {}, []), "Set CUDACXX"),
    ):
        with pytest.raises(error, match=f"directive(.|\n)*{cure}"):
            attempt()


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_cubin_that_is_cut_off_is_no_result(tmp_path, part):
    """An incomplete cubin is an error: on a full disk, ptxas exits with success."""
    cubin = pl.assemble(PTX, "sm_80").code
    (tmp_path / "cut").write_bytes(cubin[: len(cubin) * part // 2 - (part == 2)])
    path = program(tmp_path / "ptxas", f'cp {tmp_path}/cut "$last"')
    with pytest.raises(pl.AssembleError, match=r"wrote an incomplete cubin; make room"):
        programs.run_ptxas(path, PTX, [])
    (tmp_path / "cut").write_bytes(cubin)
    assert cubin == programs.run_ptxas(path, PTX, [])


def test_of_one_release_the_ptxas_of_a_toolkit_comes_before_path(monkeypatch, tmp_path):
    """PATH may lead to another toolkit; a newer ptxas there is used, up to the requested release."""
    for folder, release in (("path", "98.1"), ("home/bin", "98.1"), ("other/bin", "98.7")):
        (tmp_path / folder).mkdir(parents=True)
        program(tmp_path / folder / "ptxas", f"echo release {release}, V{release}")
    monkeypatch.setenv("PATH", f"{tmp_path}/path:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "other"))
    assert (str(tmp_path / "home" / "bin" / "ptxas"), (98, 1)) == programs.newest_ptxas((98, 5))
    assert (98, 7) == programs.newest_ptxas((98, 9))[1]
