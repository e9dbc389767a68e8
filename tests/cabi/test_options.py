"""The options of functions in C."""

from __future__ import annotations

import numpy as np
import pytest

import numba_ptxlink as pl
from numba_ptxlink._cabi.options import launch_bounds

WRONG = [
    0,
    -1,
    1025,
    2**40,
    True,
    1.5,
    "128",
    (128, 0),
    (128, 33),
    (128, None),
    (128, 2, 0),
    (128, 2, 2**31),
    (),
]
WRONG.append((128, 2, 3, 4))


@pytest.mark.parametrize("bounds", WRONG, ids=repr)
@pytest.mark.parametrize("front_end", [None, "numba-cuda", "numba-cuda-mlir"])
def test_launch_bounds_out_of_range_are_refused(bounds, front_end):
    """The decorator names the bounds, the kernel, and what each bound may be."""
    if front_end is not None:
        pytest.importorskip(front_end.replace("-", "_"))
    with pytest.raises(pl.AbiError) as refused:

        @pl.kernel("void(float32[::1])", launch_bounds=bounds, front_end=front_end)
        def fill(out):
            out[0] = 1

    assert f"launch_bounds={bounds!r} of kernel " in str(refused.value)
    assert "fill: give the maximum number of threads in a block (an int, 1 to 1024)" in str(refused.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        (1, (1,)),
        (1024, (1024,)),
        ((96, 32), (96, 32)),
        ([128, 2], (128, 2)),
        ((np.int64(128), np.uint8(2), 16), (128, 2, 16)),
    ],
)
def test_launch_bounds_are_up_to_three_numbers(given, expected):
    """A number, or one to three of them, those of NumPy included, become a tuple of ints."""
    bounds = launch_bounds(given, "kernel f")
    assert expected == bounds
    assert {int} >= set(map(type, bounds or ()))
