"""Which PTX each CUDA release reads."""

from __future__ import annotations

import pytest

from numba_ptxlink._formats.ptx import header as ptx_isa


def test_ptx_of_a_release_to_come_is_left_to_the_linker():
    """What PTX a release reads that was never tried is not said; of one that was, it is."""
    from numba_ptxlink._formats.ptx import header as ptx_isa

    assert (9, 5) == (ptx_isa.sure_isa((13, 5)).major, ptx_isa.sure_isa((13, 5)).minor)
    assert ptx_isa.sure_isa((13, 6)) is None
    assert 6 == ptx_isa.newest_isa((13, 6)).minor


@pytest.mark.parametrize(("release", "isa"), [((12, 6), (8, 5)), ((12, 9), (8, 8)), ((13, 0), (9, 0))])
def test_the_newest_isa_of_a_release(release, isa):
    """The newest PTX ISA of a CUDA release is known; of an unknown release nothing is said."""
    assert isa == (ptx_isa.newest_isa(release).major, ptx_isa.newest_isa(release).minor)
    assert ptx_isa.newest_isa((99, 0)) is None
