"""What LTO-IR says about itself."""

from __future__ import annotations

from linkcases import CALLER, function, ltoir

from numba_ptxlink._formats.ltoir import read_header


def test_the_header_of_ltoir():
    """LTO-IR says which architecture it is for; anything else says nothing."""
    assert 80 == read_header(ltoir(CALLER)).sm
    assert read_header(b"\xedCN\x7f") is None
    assert read_header(function().encode()) is None
