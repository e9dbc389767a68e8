"""Records and tuples behind pointers, which numba-cuda-mlir itself takes for addresses or does not know."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

import front_ends
import numpy as np
import pytest
from mlir_host import host

import numba_ptxlink as pl

cuda, types = front_ends.cuda("numba-cuda-mlir"), front_ends.get("numba-cuda-mlir").types
pair = np.dtype([("x", "f4"), ("y", "i8")], align=True)
# No member but the last is one of bytes, and no element but the first is aligned.
packed = np.dtype(
    [
        ("b", "f8"),
        ("z", "c8"),
        ("pos", "f4", 3),
        ("grid", "i2", (2, 2)),
        ("one", pair),
        ("many", pair, 2),
        ("a", "i1"),
    ]
)
# C++ aligns it, though NumPy was not asked to.
plain = np.dtype([("x", "f4"), ("y", "f4")])


class Point(NamedTuple):
    """A named tuple that is laid out with a gap."""

    x: types.float32
    y: types.int64


class Nested(NamedTuple):
    """A named tuple that holds one, and what is stored in another way than it is computed with."""

    inside: Point
    valid: types.boolean
    half: types.float16
    flag: types.boolean


# As C lays them out.
point = np.dtype([("x", "f4"), ("y", "i8")], align=True)
nested = np.dtype([("inside", point), ("valid", "?"), ("half", "f2"), ("flag", "?")], align=True)
# Where an access that is not one of parameters says its width.
ACCESS = re.compile(r"^\s*(?:ld|st)(?!\.param)(?:\.\w+)*?(?:\.v\d)?\.[a-z](\d+)\s", re.MULTILINE)


def reads(p, i):
    """Read members, at a distance that may be negative and at one that is constant."""
    return p[i].y + p[1].y


def writes(p, i):
    """Write a member, and copy a whole element."""
    p[i].x = p[i].x + 1
    p[0] = p[i]
    return p[0].x


def reads_all(p, i):
    """Read a member of each kind."""
    one, grid = p[i], p[i].grid
    found = one.b + one.z.imag + one.pos[i] + grid[1, i] + one.one.y + one.many[1].y
    return found + first(one.pos)


@cuda.jit(device=True)
def first(array):
    """Read an array that a caller found in a record."""
    return array[0]


def writes_all(p, i):
    """Write a member of each kind."""
    p[i].b = p[i].a
    p[i].z = 1j
    p[i].pos = p[i + 1].pos
    p[i].pos[1] = i
    p[i].grid[i, 1] = i
    p[i].one.y = i
    p[i].many[i].x = p[i].one.x
    return p[i].b


def reads_many(a, i):
    """Read members of an array of records."""
    return a[i].b + a[i].pos[1]


def views(a, i):
    """Read a member out of a view of all."""
    return a.b[i]


def reads_point(p, i):
    """Read members of named tuples, by name, by place and all at once."""
    x, y = p[i]
    return p[i].x + x + p[1][1] + y


def writes_point(p, i):
    """Copy a named tuple, and write one that is made of numbers of other types."""
    p[i - 1] = p[i]
    p[i] = Point(p[i].y + 1, 7)
    p[i + 1] = (5, p[i].x)
    return i


def writes_nested(p, i):
    """Write what is nested."""
    p[i] = Nested(p[i - 1].inside, not p[i - 1].valid, p[i - 1].half + p[i - 1].half, p[i - 1].flag)
    return i


def moves_vectors(p, i):
    """Read and write vectors of three, at an index and where a pointer is moved to."""
    p[i + 1] = p[i]
    last = p + i + 1
    last -= 1
    p[i] = cuda.float32x3(last[0].z, 8, (p + i)[1].y)
    return p[i - 1].x


def moves_quads(p, i):
    """Move a pointer to vectors of four."""
    return (p + i)[0].w + (p - i)[2 * i].x


def moves_pointers(p, i):
    """Move a pointer to pointers."""
    return (p + i)[0][1] + (p - i)[2 * i][0]


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


def test_tuples_are_read_where_the_pointer_leads():
    """The members are those of the element, before and after the address."""
    values = np.array([(0.5, 10), (1.5, 100), (2.5, 1000)], point)
    read = host(pl.udf("float64(CPointer(Point), int32)", front_end="numba-cuda-mlir")(reads_point))
    assert 0.5 + 0.5 + 1000 + 10 == read(struct.pack("<q", values.ctypes.data + point.itemsize), -1)


def test_tuples_are_written_where_the_pointer_leads():
    """C++ finds there what Python wrote, as the types of the members."""
    values = np.array([(0, 0), (2.5, 12), (0, 0), (9, 9)], point)
    write = host(pl.udf("int32(CPointer(Point), int32)", front_end="numba-cuda-mlir")(writes_point))
    write(struct.pack("<q", values.ctypes.data), 1)
    assert [(2.5, 12), (13, 7), (5, 13), (9, 9)] == values.tolist()


def test_nested_tuples_are_written_where_the_pointer_leads():
    """A boolean is a byte there and a half two, and the next element is left alone."""
    values = np.array(
        [((0.5, 7), False, 1.5, True), ((9, 9), False, 9, False), ((8, 8), True, 9, True)], nested
    )
    write = host(pl.udf("int32(CPointer(Nested), int32)", front_end="numba-cuda-mlir")(writes_nested))
    write(struct.pack("<q", values.ctypes.data), 1)
    assert [((0.5, 7), True, 3, True), ((8, 8), True, 9, True)] == values.tolist()[1:]


def test_vectors_of_three_lie_as_c_lays_them_out():
    """They are three numbers apart; what follows them is left alone."""
    values = np.arange(1, 13, dtype=np.float32)
    move = host(pl.udf(types.float32(types.CPointer(cuda.float32x3), types.int32))(moves_vectors))
    assert 1 == move(struct.pack("<q", values.ctypes.data), 1)
    assert [1, 2, 3, 6, 8, 5, 4, 5, 6, 10, 11, 12] == values.tolist()


def test_pointers_move_by_what_they_point_to():
    """A pointer to vectors moves by vectors, and one to pointers by pointers."""
    values = np.arange(8, dtype=np.float32)
    quads = host(pl.udf(types.float32(types.CPointer(cuda.float32x4), types.int32))(moves_quads))
    assert 7 + 4 == quads(struct.pack("<q", values.ctypes.data), 1)
    places = np.array([0, values.ctypes.data], np.int64)
    signature = types.float32(types.CPointer(types.CPointer(types.float32)), types.int32)
    pointers = host(pl.udf(signature)(moves_pointers))
    assert 1 + 0 == pointers(struct.pack("<q", places.ctypes.data), 1)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("record", ["packed", "pair", "plain"])
def test_packed_records_are_accessed_by_bytes(arch, record, tmp_path):
    """No access of an address that is aligned to bytes is wider, and those of aligned records are whole."""
    pointer, array = f"float64(CPointer({record}), int32)", f"float64({record}[::1], int32)"
    marked = {
        "packed": [(pointer, reads_all), (pointer, writes_all), (array, reads_many)],
        "pair": [(pointer, reads), (pointer, writes)],
        "plain": [(pointer, reads)],
    }
    udfs = [
        pl.udf(signature, front_end="numba-cuda-mlir")(function) for signature, function in marked[record]
    ]
    made = pl.export(udfs, tmp_path, archs=[arch], emit=["ptx"])
    widths = set(ACCESS.findall(made.artifacts["ptx", arch].read_text()))
    # A whole record is copied by bytes.
    assert {"packed": {"8"}, "pair": {"8", "32", "64"}, "plain": {"32"}}[record] == widths


def test_packed_records_are_read_and_written():
    """Each kind of member is where NumPy has it."""
    values = np.zeros(3, packed)
    values["b"], values["z"], values["pos"] = [1, 2, 3], 5j, [[10, 20, 30], [40, 50, 60], [70, 80, 90]]
    values["grid"][:, 1, 1], values["one"]["y"], values["many"]["y"][:, 1] = 100, 1000, 10000
    values["one"]["x"], values["a"] = 4, -7
    expected = values.copy()
    signature = "float64(CPointer(packed), int32)"
    read, write = (
        host(pl.udf(signature, front_end="numba-cuda-mlir")(function)) for function in (reads_all, writes_all)
    )
    place = struct.pack("<q", values.ctypes.data)
    assert 2 + 5 + 50 + 100 + 1000 + 10000 + 40 == read(place, 1)
    assert -7 == write(place, 1)
    expected[1] = (-7, 1j, [70, 1, 90], [[0, 0], [0, 1]], (4, 1), [(0, 0), (4, 10000)], -7)
    # Assignments leave anything between members.
    for name in packed.names:
        assert expected[name].tolist() == values[name].tolist()


@pytest.mark.parametrize("size", ["packed", "odd"])
def test_views_of_members_are_refused(size, tmp_path):
    """numba-cuda-mlir would read elsewhere, where the distance of two is no multiple of their size."""
    odd = np.dtype([("b", "c16"), ("t", "i8")], align=True)
    dtype = {"packed": packed, "odd": odd}[size]
    front_end = front_ends.get("numba-cuda-mlir")
    ty = front_end.types.Array(front_end.from_dtype(dtype), 1, "C")
    udf = pl.udf((ty, front_end.types.int32))(views)
    with pytest.raises(pl.ExportError, match=r"write a\[i\]\.b"):
        pl.export([udf], tmp_path, archs=["sm_90"], emit=["ptx"])
