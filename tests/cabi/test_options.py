"""The options of functions in C."""

from __future__ import annotations

import numpy as np
import pytest

import numba_ptxlink as pl
from numba_ptxlink._cabi.options import launch_bounds

THREADS, BLOCKS, CLUSTER = (
    "maximum number of threads in a block",
    "minimum number of blocks per multiprocessor",
    "maximum number of blocks in a cluster",
)
WRONG = {
    0: f"0 is no {THREADS}",
    -1: f"-1 is no {THREADS}",
    1025: f"1025 is no {THREADS}",
    2**40: f"1099511627776 is no {THREADS}",
    True: f"True is no {THREADS}",
    1.5: f"1.5 is no {THREADS}",
    "128": f"'128' is no {THREADS}",
    (128, 0): f"0 is no {BLOCKS}",
    (128, 33): f"33 is no {BLOCKS}",
    (128, None): f"None is no {BLOCKS}",
    (128, 2, 0): f"0 is no {CLUSTER}",
    (128, 2, 2**31): f"2147483648 is no {CLUSTER}",
    (): "it has 0 numbers",
    (128, 2, 3, 4): "it has 4 numbers",
}


@pytest.mark.parametrize("bounds", WRONG, ids=repr)
@pytest.mark.parametrize("front_end", [None, "numba-cuda", "numba-cuda-mlir"])
def test_launch_bounds_out_of_range_are_refused(bounds, front_end):
    """The decorator names the bound that is wrong, the kernel, and what each bound may be."""
    if front_end is not None:
        pytest.importorskip(front_end.replace("-", "_"))
    with pytest.raises(pl.AbiError) as refused:

        @pl.kernel("void(float32[::1])", launch_bounds=bounds, front_end=front_end)
        def fill(out):
            out[0] = 1

    assert f"launch_bounds={bounds!r} of kernel " in str(refused.value)
    assert f"fill: {WRONG[bounds]}; give the {THREADS} (an int, 1 to 1024), or a tuple" in str(refused.value)


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
