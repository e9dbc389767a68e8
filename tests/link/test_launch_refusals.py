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
from numba_ptxlink._link.launch.arrays import Launch

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
    "maybe": types.Optional(types.UniTuple(types.int32, 2)),
    "maybe_part": types.Optional(PART),
    "flags": types.Optional(types.Tuple((types.int32, types.boolean))),
    "int32": types.int32,
    "float32": types.float32,
    "float64": types.float64,
    "half": types.float16,
    "bool": types.boolean,
    "complex": types.complex128,
    "floats": types.float32[::1],
    "bytes": types.Array(from_dtype(pair_of_bytes), 1, "C"),
    "packed_target": types.CPointer(from_dtype(packed)),
    "void": types.voidptr,
}


class Raising:
    """A number of another package that has none."""

    def __float__(self) -> float:
        """Fail as such packages do."""
        raise RuntimeError("no value yet")

    __index__ = __complex__ = __float__


@pytest.fixture(scope="module")
def kernels():
    """Return a loaded kernel for each parameter."""
    made = [launches.kernel_of(ty, name=f"takes_{name}") for name, ty in PARAMETERS.items()]
    return pl.load(pl.export(made, archs=["sm_90"], emit=["kernels"], name="made"))


def pack(kernels, parameter, value):
    """Return the bytes of *value*."""
    return bytes(kernels[f"takes_{parameter}"]._pack((value,), Launch(0)))


def device(dtype, **more):
    """Return an array of *dtype* on the device."""
    return launches.array(3, f"|V{dtype.itemsize}", dtype=dtype, **more)


FLOATS = np.array([1.0, 2.0])
REFUSED = {
    "object_bits": ("pair", np.array([1, "x"], dtype=object)),
    "float_bits": ("pair", FLOATS),
    "other_record": ("pair", np.zeros((), [("a", "f8"), ("b", "f8")])),
    "host_array_for_views": ("views", np.zeros((2, 6), "f4")),
    "bytes_for_views": ("views", bytes(48)),
    "set": ("pair", {20, 3}),
    "generator": ("pair", (number for number in (1, 2))),
    "masked": ("pair", np.ma.array([1, 2], mask=[0, 1])),
    "text": ("pair", "12"),
    "swapped": ("part", np.zeros(1, swapped)[0]),
    "swapped_array": ("parts", device(swapped)),
    "swapped_target": ("target", device(swapped)),
    "swapped_inside": ("outer", np.zeros((), [("a", swapped, 2), ("class", "i4")])),
    "swapped_namedtuple": ("point", Turned(1, 2)),
    "namedtuple_for_record": ("part", Turned(1, 2)),
    "keys_that_look_alike": ("part", {"x": 1, 2: 2}),
    "long_double": ("float64", np.longdouble("1e400")),
    "integer": ("float64", 10**400),
    "digits": ("int32", 10**5000),
    "one_element": ("float64", np.array([1.5])),
    "integers": ("int32", np.array([1, 2])),
    "raising_float": ("float32", Raising()),
    "text_complex": ("complex", np.str_("1j")),
    "long_complex": ("complex", np.clongdouble(np.longdouble("1e400"))),
    "other_size": ("parts", launches.array(3, "|V4")),
    "odd_integer": ("target", 0x7002),
    "far_address": ("floats", launches.array(3, "<f4", address=1 << 64)),
    "huge_extent": ("floats", launches.array(1 << 64, "<f4")),
    "negative_extent": ("floats", launches.array(-1, "<f4")),
    "few_strides": ("floats", launches.array(3, "<f4", strides=())),
    "far_stream": ("floats", launches.array(3, "<f4", stream=1 << 64)),
    "no_interface": ("floats", SimpleNamespace(__cuda_array_interface__=3)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_by_name(kernels, case):
    """The error names kernel and parameter, and what to pass."""
    parameter, value = REFUSED[case]
    with pytest.raises(pl.LaunchError, match=rf"(?s)^Kernel takes_{parameter}: parameter 'p0' is .*; ?.*\w+"):
        pack(kernels, parameter, value)


def test_records_are_taken_by_their_members_names(kernels):
    """Members may be in another order in NumPy's type, where they lie as in C; renamed words of C fit."""
    record = np.zeros((), unordered)
    record["x"], record["y"] = 1, 2
    expected = struct.pack("<2f", 1, 2)
    for value in (record, record[()], Point(1, 2), (1, 2), [1, 2], {"y": 2, "x": 1}, expected):
        assert expected == pack(kernels, "part", value)
    assert expected == pack(kernels, "vector", np.array([1, 2], "f4"))
    assert len(pack(kernels, "parts", device(part))) == 24
    assert len(pack(kernels, "target", device(part))) == 8
    whole = np.array(([(1, 2), (3, 4)], 5), outer)
    assert whole.tobytes() == pack(kernels, "outer", whole)
    # NumPy's own array of integers is a sequence of them.
    assert struct.pack("<2q", 1, 2) == pack(kernels, "pair", np.array([1, 2], dtype=object))
    assert struct.pack("<2q", 1, 2) == pack(kernels, "pair", np.array([1, 2], dtype="i1"))
    # A tuple has no names.
    assert struct.pack("<2q", 1, 2) == pack(kernels, "pair", Turned(1, 2))


def test_arrays_of_records_tell_their_members_or_their_size(kernels):
    """By NumPy's dtype beside the interface, as Numba's own arrays, or the size alone."""
    from numba.cuda.cudadrv.devicearray import DeviceNDArray

    memory = SimpleNamespace(device_ctypes_pointer=SimpleNamespace(value=0x7000))
    arrays = {dtype: DeviceNDArray((3,), (8,), dtype, gpu_data=memory) for dtype in (part, swapped)}
    assert "descr" not in arrays[part].__cuda_array_interface__
    expected = pack(kernels, "parts", device(part))
    for value in (arrays[part], launches.array(3, "|V8", dtype=unordered), launches.array(3, "|V8")):
        assert expected == pack(kernels, "parts", value)
    with pytest.raises(pl.LaunchError, match=r"its elements are .*'y', 'x'.*; pass an array of"):
        pack(kernels, "parts", arrays[swapped])
    # A number that NumPy has not may be as large.
    assert 24 == len(pack(kernels, "bytes", launches.array(3, "|V2", dtype=pair_of_bytes)))


def test_addresses_are_aligned_as_their_target(kernels):
    """That of a packed record, or of void, may be any."""
    assert (0x7004).to_bytes(8, "little") == pack(kernels, "target", 0x7004)
    for parameter in ("packed_target", "void"):
        assert (0x7003).to_bytes(8, "little") == pack(kernels, parameter, 0x7003)


def test_an_optional_value_is_the_value_or_none(kernels):
    """A flag is not passed, whatever the value is."""
    assert struct.pack("<2i?3x", 3, 4, True) == pack(kernels, "maybe", (3, 4))
    assert bytes(12) == pack(kernels, "maybe", None)
    assert struct.pack("<2f?3x", 3, 4, True) == pack(kernels, "maybe_part", np.array((3, 4), part)[()])
    assert struct.pack("<i?3x?3x", 3, False, True) == pack(kernels, "flags", (3, False))
