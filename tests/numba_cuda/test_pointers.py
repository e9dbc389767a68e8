"""Pointers to values whose form in memory differs from Numba's value: read and written, on this CPU."""

from __future__ import annotations

import numpy as np
import pytest
from front_ends import on_cpu
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

import numba_ptxlink as pl

FIELDS = [("a", "i1"), ("b", "f8"), ("c", "?"), ("many", "i2", 3)]
RECORDS = {
    # numba-cuda refuses to read a field at an offset that is not a multiple of its size.
    "packed": np.dtype([("b", "f8"), ("many", "i2", 3), ("a", "i1"), ("c", "?")]),
    "aligned": np.dtype(FIELDS, align=True),
}


def run(function, element, values, result):
    """Return the result of *function* for a pointer to *values*, of the Numba type *element*."""
    udf = pl.udf(result(types.CPointer(element)), name="f")(function)
    return on_cpu(udf, "numba-cuda")(values)


@pytest.mark.parametrize("name", RECORDS)
def test_records_are_read_and_written_through_pointers(name):
    """A record is reached through a pointer as an element of an array is: by field, and as a whole."""

    def change(p):
        p[1].b = p[0].b + p[0].a
        p[0].many[2] = 9
        p[2] = p[1]
        p[2].a = -5
        p[2].c = not p[0].c
        return p[1].b

    values = np.zeros(4, RECORDS[name])
    values[0] = (1.5, [1, 2, 3], 4, False) if name == "packed" else (4, 1.5, False, [1, 2, 3])
    expected = values.copy().view(np.recarray)
    change(expected)
    result = run(change, from_dtype(RECORDS[name]), values, types.float64)
    assert 5.5 == result
    assert {field: expected[field].tolist() for field in expected.dtype.names} == {
        field: values[field].tolist() for field in values.dtype.names
    }


def test_booleans_are_read_and_written_through_pointers():
    """A boolean is a byte in memory."""

    def change(p):
        p[1] = not p[0]
        p[2] = True
        return p[0]

    values = np.array([True, True, False, False])
    assert 1 == run(change, types.boolean, values, types.boolean)
    assert [True, False, True, False] == values.tolist()


def test_tuples_of_booleans_are_read_and_written_through_pointers():
    """A boolean in a tuple in memory is a byte."""

    def change(p):
        p[1] = (not p[0][0], p[0][1] + 1)
        return p[1][0]

    layout = np.dtype([("f0", "?"), ("f1", "i4")], align=True)
    values = np.array([(False, 41), (False, 0)], layout)
    assert 1 == run(change, types.Tuple((types.boolean, types.int32)), values, types.boolean)
    assert [(False, 41), (True, 42)] == values.tolist()
