"""Functions that call CUDA C++, in a toolkit whose nvJitLink returns no LTO-IR."""

from __future__ import annotations

import pytest
from numba import cuda

import numba_ptxlink as pl
from numba_ptxlink._tools import nvjitlink

SOURCE = 'extern "C" __device__ float twice(float x) { return 2 * x; }'
twice = cuda.declare_device(
    "twice", "float32(float32)", link=[cuda.CUSource(SOURCE, name="twice.cu")], abi="c"
)


@pl.udf("float32(float32)")
def quadruple(value):
    """Call what CUDA C++ defines."""
    return twice(twice(value))


@pytest.fixture
def _older(monkeypatch):
    monkeypatch.setattr(nvjitlink, "merges_ltoir", lambda: False)


@pytest.mark.usefixtures("_older")
def test_ltoir_that_is_asked_for_is_an_error(tmp_path):
    """The error names the code, the linker and the kinds to export in its place."""
    said = r"\(twice\.cu\) cannot be merged into LTO-IR by nvJitLink 1\d\.\d: CUDA 13\.4 .* Leave ltoir out"
    with pytest.raises(pl.ExportError, match=said):
        pl.export([quadruple], tmp_path, arch="sm_80", emit=["ptx", "ltoir"])
    assert not list(tmp_path.iterdir())
