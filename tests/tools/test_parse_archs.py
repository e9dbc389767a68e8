"""The words and lists that stand for architectures."""

from __future__ import annotations

import sys

import processes
import pytest
from devices import ON_CPU

import numba_ptxlink as pl
from numba_ptxlink._tools import nvrtc
from numba_ptxlink._tools.toolchain import parse_archs

NATIVE = (
    "from numba_ptxlink._tools.toolchain import parse_archs; "
    "print(*[arch.sm for arch in parse_archs('native')])"
)


def names(*arguments):
    """Return the names of the chosen architectures."""
    return [arch.sm for arch in parse_archs(*arguments)]


def test_lists_have_commas():
    """Commas and sequences list architectures, each of which is taken once."""
    assert ["sm_80", "sm_90a", "sm_75"] == names("sm_80, 9.0a,sm_80,75")
    assert ["sm_80", "sm_90", "sm_75"] == names(["sm_80,sm_90", (7, 5), pl.Arch(8, 0)])


@pytest.mark.parametrize("wrong", ["", "sm_80,", "every", ["sm_80,never"], 90])
def test_other_words_are_refused(wrong):
    """A word that is no architecture is an error."""
    with pytest.raises(pl.ConfigError, match="is not a GPU architecture"):
        parse_archs(wrong)


def test_all_is_what_the_toolkit_compiles_for(monkeypatch):
    """All of NVRTC's, and the first one of these and of each generation, as nvcc has it."""
    known = tuple(map(pl.Arch.of, ["sm_86", "sm_87", "sm_90", "sm_100", "sm_103", "sm_120"]))
    monkeypatch.setattr(nvrtc, "supported_archs", lambda: known)
    assert [arch.sm for arch in known] == names("all")
    assert ["sm_86", "sm_90", "sm_100", "sm_120"] == names("all-major")


def test_native_asks_the_driver():
    """The devices of the machine, each architecture once."""
    done = processes.run(*ON_CPU, sys.executable, "-c", NATIVE, env=processes.environ())
    assert ["sm_89"] == done.stdout.split()
