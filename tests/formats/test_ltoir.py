"""What LTO-IR says about itself."""

from __future__ import annotations

from linkcases import CALLER, function, ltoir

from numba_ptxlink._formats.containers import ltoir_header


def test_the_header_of_ltoir():
    """LTO-IR says which architecture it is for; anything else says nothing."""
    assert 80 == ltoir_header(ltoir(CALLER)).sm
    assert ltoir_header(b"\xedCN\x7f") is None
    assert ltoir_header(function().encode()) is None
