"""The page about the interface in C++: its files are exported, compiled and linked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import numba_ptxlink as pl

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "structs.md"
BLOCKS = dict(re.findall(r"```\w+\n(?://|#) (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL))


@pytest.mark.numba_cuda
def test_the_error_of_the_page_is_what_an_export_says(tmp_path):
    """A member that has another sign in C++ is named, with its type in Python."""
    (tmp_path / "udfs.py").write_text(BLOCKS["udfs.py"].replace('"i8"', '"u8"'))
    (tmp_path / "particle.h").write_text(BLOCKS["include/particle.h"])
    with pytest.raises(pl.AbiError) as caught:
        pl.export(tmp_path / "udfs.py", emit=["ptx"])
    message = re.search(
        r"```text\n(Structs of C\+\+ have.*?)(\nphysics::Particle is the struct of Record\().*?\)(.*?)\n```",
        PAGE.read_text(),
        re.DOTALL,
    )
    assert message
    for part in message.groups():
        assert part.strip(" .\n") in str(caught.value)
