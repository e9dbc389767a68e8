"""Arguments of loaded kernels that look like what a parameter takes: other members, bits, orders, ranges."""

from __future__ import annotations

import struct
from collections import namedtuple
from types import SimpleNamespace

import launches
import numpy as np
import pytest
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl

part = np.dtype([("x", "f4"), ("y", "f4")], align=True)
swapped = np.dtype([("y", "f4"), ("x", "f4")], align=True)
unordered = np.dtype({"names": ["y", "x"], "formats": ["f4", "f4"], "offsets": [4, 0]})
outer = np.dtype([("a", part, 2), ("class", "i4")], align=True)
pair_of_bytes = np.dtype([("x", "u1"), ("y", "u1")])
packed = np.dtype([("x", "u1"), ("y", "f4")])
PART = from_dtype(part)
Point = namedtuple("Point", "x y")  # noqa: PYI024 - Numba's type of it is given below
Turned = namedtuple("Turned", "y x")  # noqa: PYI024 - as the one before
PARAMETERS = {
    "pair": types.UniTuple(types.int64, 2),
    "views": types.UniTuple(types.float32[::1], 2),
    "part": PART,
    "outer": from_dtype(outer),
    "point": types.NamedTuple([types.float32, types.float32], Point),
    "parts": types.Array(PART, 1, "C"),
    "target": types.CPointer(PART),
    "vector": vector_types["float32x2"],
    "float32": types.float32,
    "float64": types.float64,
    "floats": types.float32[::1],
    "bytes": types.Array(from_dtype(pair_of_bytes), 1, "C"),
}


class Raising:
    """A number of another package that has none."""

    def __float__(self) -> float:
        """Fail as such packages do."""
        raise RuntimeError("no value yet")

    __index__ = __complex__ = __float__


@pytest.fixture(scope="module")
def pack():
    """Return what packs a value for a parameter."""
    return launches.packer(PARAMETERS)


def device(dtype, **more):
    """Return an array of *dtype* on the device."""
    return launches.array(3, f"|V{dtype.itemsize}", dtype=dtype, **more)


FLOATS = np.array([1.0, 2.0])
REFUSED = {
    "float_bits": ("pair", FLOATS),
    "bytes_for_views": ("views", bytes(48)),
    "set": ("pair", {20, 3}),
    "masked": ("pair", np.ma.array([1, 2], mask=[0, 1])),
    "swapped": ("part", np.zeros(1, swapped)[0]),
    "swapped_array": ("parts", device(swapped)),
    "swapped_namedtuple": ("point", Turned(1, 2)),
    "keys_that_look_alike": ("part", {"x": 1, 2: 2}),
    "long_double": ("float64", np.longdouble("1e400")),
    "raising_float": ("float32", Raising()),
    "other_size": ("parts", launches.array(3, "|V4")),
    "far_address": ("floats", launches.array(3, "<f4", address=1 << 64)),
    "few_strides": ("floats", launches.array(3, "<f4", strides=())),
    "far_stream": ("floats", launches.array(3, "<f4", stream=1 << 64)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_by_name(pack, case):
    """The error names kernel and parameter, and what to pass."""
    parameter, value = REFUSED[case]
    with pytest.raises(pl.LaunchError, match=rf"(?s)^Kernel takes_{parameter}: parameter 'p0' is .*; ?.*\w+"):
        pack(parameter, value)


def test_records_are_taken_by_their_members_names(pack):
    """Members may be in another order in NumPy's type, where they lie as in C; renamed words of C fit."""
    record = np.zeros((), unordered)
    record["x"], record["y"] = 1, 2
    expected = struct.pack("<2f", 1, 2)
    for value in (record, record[()], Point(1, 2), (1, 2), [1, 2], {"y": 2, "x": 1}, expected):
        assert expected == pack("part", value)
    assert expected == pack("vector", np.array([1, 2], "f4"))
    assert len(pack("parts", device(part))) == 24
    assert len(pack("target", device(part))) == 8
    whole = np.array(([(1, 2), (3, 4)], 5), outer)
    assert whole.tobytes() == pack("outer", whole)
    # NumPy's own array of integers is a sequence of them.
    assert struct.pack("<2q", 1, 2) == pack("pair", np.array([1, 2], dtype=object))
    assert struct.pack("<2q", 1, 2) == pack("pair", np.array([1, 2], dtype="i1"))
    # A tuple has no names.
    assert struct.pack("<2q", 1, 2) == pack("pair", Turned(1, 2))


def test_arrays_of_records_tell_their_members_or_their_size(pack):
    """By NumPy's dtype beside the interface, as Numba's own arrays, or the size alone."""
    from numba.cuda.cudadrv.devicearray import DeviceNDArray

    memory = SimpleNamespace(device_ctypes_pointer=SimpleNamespace(value=0x7000))
    arrays = {dtype: DeviceNDArray((3,), (8,), dtype, gpu_data=memory) for dtype in (part, swapped)}
    assert "descr" not in arrays[part].__cuda_array_interface__
    expected = pack("parts", device(part))
    for value in (arrays[part], launches.array(3, "|V8", dtype=unordered), launches.array(3, "|V8")):
        assert expected == pack("parts", value)
    with pytest.raises(pl.LaunchError, match=r"its elements are .*'y', 'x'.*; pass an array of"):
        pack("parts", arrays[swapped])
    # A number that NumPy has not may be as large.
    assert 24 == len(pack("bytes", launches.array(3, "|V2", dtype=pair_of_bytes)))
