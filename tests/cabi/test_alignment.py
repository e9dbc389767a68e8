"""What to write for a dtype whose members C aligns otherwise than NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

from numba_ptxlink._cabi import alignment
from numba_ptxlink._cabi.signatures import unaligned_member
from numba_ptxlink.abi import c_type

small = np.dtype([("b", "i1"), ("z", "c8", (2, 2))])
CASES = {
    "after": np.dtype([("n", "i4"), ("z", "c16")], align=True),
    "first": np.dtype([("z", "c16"), ("n", "i4")], align=True),
    "single": np.dtype([("n", "i4"), ("z", "c8")], align=True),
    "renamed": np.dtype([("class", "i4"), ("z", "c8"), ("t", "M8[s]"), ("u", "U3")], align=True),
    "nested": np.dtype([("k", "i2"), ("in", small, (3,)), ("d", "f8")]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_dtype_that_is_proposed_is_aligned(name):
    """It has the same fields, and C aligns each member."""
    before = c_type(from_dtype(CASES[name]))
    assert unaligned_member(before)
    assert not alignment.is_aligned_by_numpy(before)
    code = alignment.dtype_like_c(before)
    assert code in alignment.cure(before)
    dtype = eval(code, {"np": np, "d": CASES[name]})  # noqa: S307 - the cure
    after = c_type(from_dtype(dtype))
    assert unaligned_member(after) is None
    assert not after.packed
    assert CASES[name].names == dtype.names
    assert alignment.dtype_like_c(after) is None


@pytest.mark.parametrize(
    ("fields", "cure"),
    [
        ([("a", "i2"), ("b", "f8")], "Create the dtype with align=True"),
        (
            [("a", "i2"), ("b", [("c", "i1"), ("d", "f8")])],
            "Create the dtype, and those in it, with align=True",
        ),
    ],
)
def test_numpy_aligns_what_it_aligns_as_c_does(fields, cure):
    """There align=True is the cure."""
    assert cure == alignment.cure(c_type(from_dtype(np.dtype(fields))))


def test_a_record_in_a_tuple_is_the_one_to_change():
    """The tuple itself has no dtype."""
    ctype = c_type(types.Tuple([types.complex64, from_dtype(CASES["first"])]))
    assert '"offsets": [0, 16], "itemsize": 32' in alignment.cure(ctype)
    assert '"f0"' not in alignment.cure(ctype)
