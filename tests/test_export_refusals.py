"""Exports into a folder of another export, and arguments of `export` that it cannot mean."""

from __future__ import annotations

import pytest

import numba_ptxlink as pl


@pl.kernel("void(CPointer(int32))")
def store(out):
    """Write one number."""
    out[0] = 1


@pytest.mark.parametrize("name", ["a.launch", "b.a.kernels"])
def test_no_export_writes_over_another(name):
    """A stem that makes the name of another export's file is refused."""
    with pytest.raises(pl.ExportError, match=r"neither \.launch nor \.kernels at the end"):
        pl.export([store], name=name, emit="ptx")


@pytest.mark.parametrize(
    "arguments",
    [
        {"source": 5},
        {"source": None},
        {"include_dirs": 5},
        {"include_dirs": [5]},
        {"include_dirs": "a\0b"},
        {"fastmath": {"nnan"}},
        {"opt": 3},
        {"lineinfo": "no"},
    ],
    ids=str,
)
def test_what_it_cannot_mean_is_refused(arguments):
    """The error says what to pass."""
    call = {"source": [store], "arch": "sm_90", **arguments}
    with pytest.raises(pl.PtxlinkError, match=r"pass|takes|give"):
        pl.export(call.pop("source"), **call)
