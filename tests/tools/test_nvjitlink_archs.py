"""Architectures that nvJitLink links for, known without a call of it."""

from __future__ import annotations

import pytest
from linkcases import KERNEL, function

import numba_ptxlink as pl
from numba_ptxlink._tools import isolated, nvjitlink, nvrtc


@pytest.fixture
def crashing(monkeypatch):
    """Put nvJitLink 12.9 in place, and NVRTC of the same release."""
    known = tuple(pl.Arch.of(f"sm_{number}") for number in (50, 90, 100, 120))
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 9))
    monkeypatch.setattr(nvrtc, "supported_archs", lambda: known)
    monkeypatch.setattr(nvjitlink, "version", lambda _="": (12, 9))

    def fail(*_, **__):
        raise AssertionError("the process would end")

    monkeypatch.setattr(isolated, "call", fail)


@pytest.mark.usefixtures("crashing")
@pytest.mark.parametrize("arch", ["sm_77", "sm_110", "sm_159"])
def test_an_unknown_architecture_is_refused_before_the_linker_is_asked(arch):
    """A link for an architecture that the release does not know is an error with those that it does."""
    with pytest.raises(
        pl.LinkError, match=rf"nvJitLink 12\.9 does not support {arch}; link for one of sm_50, "
    ) as caught:
        pl.link(KERNEL, function(), arch=arch, inline="none", checks="none", backend="nvjitlink")
    assert (f"-arch={arch}",) == caught.value.flags
