"""Corrections of numba-cuda that have no better place."""

from __future__ import annotations

import numpy as np
import pytest

from numba_ptxlink import _numba_fixes

INNER = np.dtype([("x", np.int8), ("y", np.float64)], align=True)
PADDED = np.dtype([("a", np.int8), ("b", np.float64), ("n", INNER, (2,)), ("c", np.int16)], align=True)


def records(filling: int) -> np.ndarray:
    """Return six records with the same fields, and *filling* in all bytes between them."""
    made = np.full(PADDED.itemsize * 6, filling, np.uint8).view(PADDED).reshape(2, 3)
    for name, value in (("a", 1), ("b", 2.5), ("c", 3)):
        made[name] = value
    made["n"]["x"] = [4, 5]
    made["n"]["y"] = 6
    return made


@pytest.mark.parametrize(
    "view", [lambda a: a, np.asfortranarray, lambda a: a[::-1], lambda a: a[:, 1], lambda a: a[0, 0]]
)
def test_what_lies_between_fields_is_blank(view):
    """Constant arrays of equal records are equal bytes, whatever lies between the fields."""
    one, other = (view(records(filling)) for filling in (0xAA, 0x55))
    blank = [_numba_fixes._with_blank_padding(np.asarray(each)) for each in (one, other)]
    assert blank[0].tobytes("A") == blank[1].tobytes("A")
    assert records(0xAA).tobytes() != records(0x55).tobytes()
    assert (one == blank[0]).all()
    assert np.asarray(one).flags.f_contiguous == blank[0].flags.f_contiguous or not one.flags.c_contiguous
