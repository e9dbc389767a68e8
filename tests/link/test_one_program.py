"""One C++ program links what both front ends made of the same Python functions."""

from __future__ import annotations

import one_program
import pytest

import numba_ptxlink as pl


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin"])
def test_functions_of_both_front_ends_are_linked_into_one_kernel(tmp_path, kind, arch):
    """Their headers are included side by side, and no symbol of the two is left open or stands twice."""
    linked = one_program.link(tmp_path, kind, arch)
    symbols = pl.inspect(linked.cubin, sass=False).symbols
    assert ["compare"] == [symbol.name for symbol in symbols if symbol.kind == "entry"]
    assert [] == [symbol.name for symbol in symbols if not symbol.defined]
    if kind == "cubin":
        defined = {symbol.name for symbol in symbols if symbol.kind == "func"}
        for name in ("wrap", "wave", "turn", "checked", "total"):
            assert {f"numba_cuda_{name}", f"numba_cuda_mlir_{name}"} <= defined
