"""The launch bounds of kernels."""

from __future__ import annotations

import numpy as np
import pytest

import numba_ptxlink as pl

WRONG = [0, -1, 1025, True, 1.5, "128", (128, 0), (128, 33), (128, None), (128, 2, 2**31), (), (128, 2, 3, 4)]


@pytest.mark.parametrize("bounds", WRONG, ids=repr)
def test_launch_bounds_out_of_range_are_refused(bounds):
    """The decorator's error has the bounds, the kernel, and the range of each bound."""
    match = (
        r"launch_bounds=.* of kernel .*: give the maximum number of threads in a block \(an int, 1 to 1024\)"
    )
    with pytest.raises(pl.AbiError, match=match):
        pl.kernel("void(float32[::1])", launch_bounds=bounds)(lambda out: None)  # noqa: ARG005


@pytest.mark.parametrize(
    ("bounds", "directives"),
    [
        (1024, {".maxntid 1024"}),
        ([128, 2], {".maxntid 128", ".minnctapersm 2"}),
        ((np.int64(128), np.uint8(2), 16), {".maxntid 128", ".minnctapersm 2", ".maxclusterrank 16"}),
    ],
)
def test_launch_bounds_are_up_to_three_numbers(bounds, directives):
    """A number, or one to three of them, those of NumPy included, are in the PTX."""
    kernel = pl.kernel("void(int32)", name="k", launch_bounds=bounds)(lambda x: None)  # noqa: ARG005
    ptx = pl.export(kernel, emit="ptx", arch="sm_90").read("ptx").decode()
    assert directives == {directive for directive in directives if directive in ptx.replace(", 1, 1", "")}
