"""The page about the interface in C++: its files are exported, compiled and linked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import numba_ptxlink as pl

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cxx.md"
BLOCKS = dict(re.findall(r"```\w+\n(?://|#) (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL))


@pytest.mark.parametrize("kind", ["ltoir", pytest.param("ptx", marks=pytest.mark.slow)])
@pytest.mark.numba_cuda
def test_the_files_of_the_page_work_together(kind, tmp_path):
    """The Python file exports with the header, and the kernel calls both overloads."""
    assert {"include/particle.h", "udfs.py", "kernel.cu"} == set(BLOCKS)
    (tmp_path / "include").mkdir()
    for name, text in BLOCKS.items():
        (tmp_path / name).write_text(text)
    include = tmp_path / "include"
    exported = pl.export(
        tmp_path / "udfs.py", tmp_path / "build", arch="sm_90", emit=[kind], include_dirs=[include]
    )
    assert exported.signatures[1].name in PAGE.read_text()
    linked = pl.link(
        tmp_path / "kernel.cu",
        exported.artifacts[kind, "sm_90"],
        arch="sm_90",
        include_dirs=[include, tmp_path / "build"],
    )
    assert b"weigh" in linked.cubin


@pytest.mark.numba_cuda
def test_the_error_of_the_page_is_what_an_export_says(tmp_path):
    """A member that has another sign in C++ is named, with what Python has."""
    (tmp_path / "udfs.py").write_text(BLOCKS["udfs.py"].replace('"i8"', '"u8"'))
    (tmp_path / "particle.h").write_text(BLOCKS["include/particle.h"])
    with pytest.raises(pl.AbiError) as caught:
        pl.export(tmp_path / "udfs.py", emit=["ptx"])
    said = re.search(
        r"```text\n(C\+\+ has structs.*?)(\nphysics::Particle stands for Record\().*?\)(.*?)\n```",
        PAGE.read_text(),
        re.DOTALL,
    )
    assert said
    for part in said.groups():
        assert part.strip(" .\n") in str(caught.value)
