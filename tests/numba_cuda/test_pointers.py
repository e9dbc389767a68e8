"""Pointers to what lies in memory in another form than Numba's value of it: read and written, on this CPU."""

from __future__ import annotations

import ctypes
import struct

import host_jit
import numpy as np
import pytest
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

from numba_ptxlink import abi
from numba_ptxlink._arch import Arch
from numba_ptxlink._numba_cuda.codegen import wrapper
from numba_ptxlink._numba_cuda.compile import compile_function

ARCH = Arch.of("sm_80")
FIELDS = [("a", "i1"), ("b", "f8"), ("c", "?"), ("many", "i2", 3)]
RECORDS = {
    # numba-cuda refuses to read a field at an offset that is not a multiple of its size.
    "packed": np.dtype([("b", "f8"), ("many", "i2", 3), ("a", "i1"), ("c", "?")]),
    "aligned": np.dtype(FIELDS, align=True),
}


def run(function, element, values, result):
    """Return what *function* returns for a pointer to *values*, of the Numba type *element*."""
    compiled = compile_function(function, (types.CPointer(element),), result, ARCH)
    signature = abi.c_signature("f", compiled.signature.return_type, [("p", types.CPointer(element))])
    wrapped = wrapper.emit(compiled, signature, abi.AbiOptions(), inline=True)
    host_jit.add_caller(wrapped)
    address = ctypes.c_uint64(values.ctypes.data)
    return host_jit.load(wrapped.module)("f", signature.result.size, bytes(address))


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
    assert (5.5,) == struct.unpack("<d", result)
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
    assert b"\x01" == run(change, types.boolean, values, types.boolean)
    assert [True, False, True, False] == values.tolist()


def test_tuples_of_booleans_are_read_and_written_through_pointers():
    """A boolean in a tuple in memory is a byte."""

    def change(p):
        p[1] = (not p[0][0], p[0][1] + 1)
        return p[1][0]

    layout = np.dtype([("f0", "?"), ("f1", "i4")], align=True)
    values = np.array([(False, 41), (False, 0)], layout)
    assert b"\x01" == run(change, types.Tuple((types.boolean, types.int32)), values, types.boolean)
    assert [(False, 41), (True, 42)] == values.tolist()
