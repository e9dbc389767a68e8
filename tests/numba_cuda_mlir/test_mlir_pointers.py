"""Records behind pointers, which numba-cuda-mlir itself takes for addresses of records."""

from __future__ import annotations

import struct

import front_ends
import numpy as np
from mlir_host import host

import numba_ptxlink as pl

front_ends.get("numba-cuda-mlir")
pair = np.dtype([("x", "f4"), ("y", "i8")], align=True)


def reads(p, i):
    """Read members, at a distance that may be negative and at one that is constant."""
    return p[i].y + p[1].y


def writes(p, i):
    """Write a member, and copy a whole element."""
    p[i].x = p[i].x + 1
    p[0] = p[i]
    return p[0].x


def call(function, result, values, start, index):
    """Call *function* on this machine with the address of an element, and an index."""
    compiled = host(pl.udf(f"{result}(CPointer(pair), int32)", front_end="numba-cuda-mlir")(function))
    return compiled(struct.pack("<q", values.ctypes.data + start * pair.itemsize), index)


def test_a_record_is_read_where_the_pointer_leads():
    """The members are those of the element, before and after the address."""
    values = np.array([(0, 10), (0, 100), (0, 1000)], pair)
    assert 1010 == call(reads, "int64", values, 1, -1)


def test_a_record_is_written_where_the_pointer_leads():
    """C++ finds there what Python wrote."""
    values = np.array([(0, 10), (2, 12)], pair)
    assert 3 == call(writes, "float32", values, 0, 1)
    assert [(3, 12), (3, 12)] == values.tolist()
