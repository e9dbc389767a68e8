"""Progress of a long export on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

import numba_ptxlink as pl
from numba_ptxlink._export import progress


@pl.udf("float32(float32)")
def twice(x):
    """Return the double of a number."""
    return x + x


class Terminal(io.StringIO):
    """Text of a terminal."""

    def isatty(self):
        """Return that it is one."""
        return True


@pytest.mark.parametrize(
    ("stream", "delay", "is_shown"), [(Terminal, 0, True), (Terminal, 60, False), (io.StringIO, 0, False)]
)
def test_a_long_export_shows_its_steps(monkeypatch, stream, delay, is_shown):
    """A terminal shows the step, the function and the architecture after a delay, and nothing at the end."""
    monkeypatch.setattr(progress, "_DELAY_SECONDS", delay)
    monkeypatch.setattr(sys, "stderr", stream())
    pl.export(twice, arch=["sm_80", "sm_90"], emit="ptx")
    output = sys.stderr.getvalue()
    assert is_shown == ("\r\x1b[K[2/2] compile twice for sm_90" in output)
    assert output.endswith("\r\x1b[K\r") or not output
    assert is_shown or not output
