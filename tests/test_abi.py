"""The mapping from Numba types to C types, and its refusals."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

import numba_ptxlink as pl
from numba_ptxlink import abi

RECORD = from_dtype(np.dtype([("m", "f4")], align=True))
OVERLAPPING = from_dtype(np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2]}))


def record(*fields):
    """Return the type of a record."""
    return from_dtype(np.dtype([*fields]))


def members(struct):
    """Return name, type and offset of each member."""
    return [(member.name, member.type.name, member.offset) for member in struct.members]


def test_a_struct_is_named_after_the_named_tuple():
    """Class name and fields are those of the Python class, but for words that C keeps for itself."""
    cls = namedtuple("Point", "x short y")  # noqa: PYI024 - Numba's type of it is given below
    struct = abi.c_type(types.NamedTuple([types.int8, types.int8, types.float32], cls))
    assert "Point" == struct.name
    assert [("x", "int8_t", 0), ("short_", "int8_t", 1), ("y", "float", 4)] == members(struct)


def test_records_that_differ_in_offsets_alone_have_names_of_their_own():
    """Members, size and alignment may be equal where the gaps between the members are not."""
    layouts = [[0, 1, 4], [0, 4, 5], [0, 4, 8], [4, 5, 8], [4, 8, 9]]
    dtypes = [
        np.dtype({"names": list("abc"), "formats": ["i1", "i1", "i4"], "offsets": offsets, "itemsize": 16})
        for offsets in layouts
    ]
    assert len(layouts) == len({abi.c_type(from_dtype(dtype)).name for dtype in dtypes})


@pytest.mark.parametrize(
    ("ty", "message"),
    [
        (types.unicode_type, "Types with a C type are booleans"),
        (types.Tuple(()), "no empty struct; leave the empty tuple out"),
        (types.UniTuple(types.none, 1), "Its member f0 is None"),
        (
            types.CPointer(types.Tuple((types.int8, types.complex64))),
            "memory layout of .* differs from that of C",
        ),
        (types.CPointer(types.Tuple((RECORD,))), "memory layout of .* differs from that of C"),
        (types.Array(types.unicode_type, 1, "C"), "Its element, of Numba type unicode_type"),
        (types.Tuple((types.int8, types.pyobject)), "Its member f1, of Numba type pyobject"),
        (types.none, "Leave the parameter out"),
        (record(("m", "f4"), ("none", "i4", (0,))), "no members without size; leave them out"),
        (record(("m", "f4"), ("none", "S0")), "no members without size; leave them out"),
        (record(("m", "f4"), ("none", [])), "no members without size; leave them out"),
        (OVERLAPPING, r"field 'b' overlaps its field 'a', .* leave one of them out"),
    ],
    ids=str,
)
def test_a_refusal_names_function_parameter_and_type(ty, message):
    """A type without a counterpart is refused with the function, the parameter, the type and the cure."""
    with pytest.raises(pl.AbiError, match=f"Function f: parameter 'p', of Numba type .*{message}"):
        abi.c_signature("f", types.void, [("p", ty)])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.dtype([(("mass in kg", "m"), "f4"), ("id", "i4")]), [("m", "float", 0), ("id", "int32_t", 4)]),
        (np.dtype([("m", "f4"), ("name", "S8")]), [("m", "float", 0), ("name", "char[8]", 4)]),
        (np.dtype([("m", "f4"), ("name", "U2")]), [("m", "float", 0), ("name", "uint32_t[2]", 4)]),
    ],
)
def test_fields_of_numpy_have_members_in_c(dtype, expected):
    """A titled field is one member, and a string is an array."""
    assert expected == members(abi.c_type(from_dtype(dtype)))


def test_padding_at_the_end_of_a_packed_record_is_declared():
    """C++ has a record of the size that its dtype says, which the header asserts."""
    dtype = np.dtype({"names": ["a", "b"], "formats": ["i1", "i4"], "offsets": [0, 1], "itemsize": 8})
    exported = pl.export(pl.udf((types.CPointer(from_dtype(dtype)),), name="f")(lambda _p: 1), emit="ptx")
    assert "unsigned char padding2_[3];" in exported.contents["f.h"].decode()


def test_a_kernel_returns_nothing():
    """A kernel with a result is refused."""
    with pytest.raises(pl.AbiError, match="Kernel k returns int32; a kernel returns nothing"):
        abi.c_signature("k", types.int32, [], kernel=True)


def test_a_kernel_is_launched_and_not_called():
    """The error of a call says how to launch the kernel."""
    kernel = pl.kernel("void(int32)", name="k")(lambda value: None)  # noqa: ARG005 - never run
    with pytest.raises(pl.ExportError, match=r"k is a kernel; launch it as k\[blocks, threads\]"):
        kernel(1)


def same(value):
    """Return the argument."""
    return value


def test_a_struct_and_a_function_may_not_share_a_name(tmp_path):
    """A function named like the struct that its parameter needs is refused."""
    cls = namedtuple("Body", "x")  # noqa: PYI024 - Numba's type of it is given below
    ty = types.NamedTuple([types.float32], cls)
    with pytest.raises(pl.AbiError, match="'Body', the C name of a function, is the name of the struct"):
        pl.export([pl.udf(ty(ty), name="Body")(same)], tmp_path, arch="sm_90", emit=["ptx"])
