"""What LTO-IR says about itself."""

from __future__ import annotations

from linkcases import CALLER, function, ltoir

from numba_ptxlink._formats import ltoir as ltoir_format


def test_the_header_of_ltoir():
    """LTO-IR says which architecture it is for; anything else says nothing."""
    assert 80 == ltoir_format.read(ltoir(CALLER)).sm
    assert ltoir_format.read(b"\xedCN\x7f") is None
    assert ltoir_format.read(function().encode()) is None
