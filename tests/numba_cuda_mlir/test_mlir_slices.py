"""Slices and indices of arrays that numba-cuda-mlir compiled, executed on this machine's CPU."""

from __future__ import annotations

import itertools
import struct

import front_ends
import numpy as np
import pytest
from mlir_host import host, lowered

import numba_ptxlink as pl
from numba_ptxlink.errors import ExportError

NAME = "numba-cuda-mlir"
FRONT_END = front_ends.get(NAME)
types = FRONT_END.types
BOUNDS = (-100, -7, -6, -2, -1, 0, 1, 3, 5, 6, 7, 100)
RECORD = np.dtype([("x", "f4"), ("d", "i4", (3,))], align=True)
LINE = np.arange(10, 16, dtype=np.int32)
PLANE = np.arange(12, dtype=np.int32).reshape(3, 4)


def one_bound(a, i, _j):
    """Slice with one bound."""
    return a[i:].size + 10 * a[:i].size + 100 * a[i::2].size + 1000 * a[:i:3].size


def two_bounds(a, i, j):
    """Slice with two bounds, forward and back."""
    return a[i:j].size + 10 * a[i:j:-1].size + 100 * a[j:i:-2].size + 1000 * len(a[:-1][i:j])


def steps(a, i, j):
    """Slice by a step that is not constant."""
    step = i or 1
    return a[::step].size + 10 * a[j::step].size + 100 * a[:j:step].size


def elements(a, i, j):
    """Read elements of slices, slices of slices among them."""
    total = a[::-1][0] + 10 * a[::-2][2] + 100 * a[-2:][0] + 1000 * a[2:100][-1] + 10000 * a[1:][1:][::2][1]
    for x in a[i:j]:
        total += x
    return total


def planes(a, i, j):
    """Slice an array of two dimensions."""
    total = a[i:, 1].size + 10 * a[::-1, ::2][0, 1] + 100 * a[-1, 1:][1] + 1000 * a[1:][0, 3]
    for row in range(a[i:j].shape[0]):
        total += a[i:j, 1:3][row, 1]
    return total


def compiled(function, *args, result=None, **options):
    """Return what calls *function* on this machine."""
    return host(pl.udf(args if result is None else result(*args), name="f", **options)(function))


def view(array):
    """Return the bytes of a contiguous array as C++ passes it."""
    return struct.pack(f"<{1 + array.ndim}q", array.ctypes.data, *array.shape)


@pytest.mark.parametrize("function", [one_bound, two_bounds, steps, elements, planes])
def test_slices_are_pythons(function):
    """Bounds count from the end where they are negative, and stop at the ends of the array."""
    array = PLANE if function is planes else LINE
    call = compiled(function, types.Array(types.int32, array.ndim, "C"), types.int32, types.int32)
    for i, j in itertools.product(BOUNDS, repeat=2):
        assert (i, j, int(function(array, i, j))) == (i, j, call(view(array), i, j))


def test_filled_slices_are_pythons():
    """A number that is assigned to a slice is written to its elements, and to no others."""

    def fill(a, i, j, k, x):
        a[i:j:k] = x
        return 0

    call = compiled(fill, types.int32[::1], *[types.int32] * 3, types.float64)
    for i, j, k in itertools.product(BOUNDS, BOUNDS, (-3, -1, 1, 2)):
        want, got = LINE.copy(), LINE.copy()
        fill(want, i, j, k, 7.5)
        call(view(got), i, j, k, 7.5)
        assert (i, j, k, *want) == (i, j, k, *got)


@pytest.mark.parametrize("on_error", ["zero", "trap"])
def test_a_step_of_zero_is_an_error(on_error):
    """A step of zero ends the function, where Python raises."""
    udf = pl.udf("int32(int32[::1], int32)", name="f", on_error=on_error)(lambda a, k: a[::k].size + 1)
    if on_error == "zero":
        assert [0, 7, 4] == [host(udf)(view(LINE), k) for k in (0, 1, 2)]
    else:
        assert "trap" in lowered(udf).lowered[0].modules[0]


def test_an_unsigned_bound_is_not_negative():
    """The uint8 200 is an index, not one from the end."""
    call = compiled(lambda a, i: a[i:].size + 1000 * a[:i].size, types.int32[::1], types.uint8)
    assert call(view(np.zeros(300, np.int32)), 200 - 256) == 200100


def test_checked_indices_are_held_against_the_slice():
    """An index into a slice is checked against the elements that the slice really has."""
    given = (types.int32[::1], types.int32, types.int32)
    call = compiled(lambda a, i, j: a[:i][j], *given, checked=True)
    for i, j in itertools.product(BOUNDS, repeat=2):
        part = LINE[:i]
        want = int(part[j]) if -len(part) <= j < len(part) else 0
        assert (i, j, want) == (i, j, call(view(LINE), i, j))


@pytest.mark.parametrize("checked", [False, True])
def test_indices_of_records_count_from_the_end(checked):
    """Negative indices into arrays of records, and into array members, are those of Python."""
    record = FRONT_END.from_dtype(RECORD)
    records = np.zeros(5, RECORD).view(np.recarray)
    records["d"] = np.arange(15).reshape(5, 3)

    def member(a, i, j):
        return a[i].d[j] + 100 * a[-2].d[-1] + 10000 * a[-3:][i].d[0]

    call = compiled(member, types.Array(record, 1, "C"), types.int32, types.int32, checked=checked)
    for i, j in itertools.product((-3, -1, 0, 2), (-3, -1, 0, 2)):
        assert (i, j, int(member(records, i, j))) == (i, j, call(view(records), i, j))


def test_a_written_member_counts_from_the_end():
    """A negative index of an array member that is written is Python's."""
    record = FRONT_END.from_dtype(RECORD)
    records = np.zeros(2, RECORD)

    def write(a, i):
        a[i].d[i] = i
        return 0

    compiled(write, types.Array(record, 1, "C"), types.int32)(view(records), -2)
    assert [[0, -2, 0], [0, 0, 0]] == records["d"].tolist()


@pytest.mark.parametrize("function", [lambda a: a[::2][0].x, lambda a: a[0].d[1:][0]], ids=["step", "member"])
def test_slices_without_code_are_refused(function):
    """Slices that numba-cuda-mlir would read elsewhere are refused with what to write."""
    record = FRONT_END.from_dtype(RECORD)
    with pytest.raises(ExportError, match=r'numba-cuda-mlir has no slices of .* front_end="numba-cuda"'):
        compiled(function, types.Array(record, 1, "C"))


@pytest.mark.parametrize("checked", [False, True])
def test_records_in_several_dimensions_are_read_and_written(checked):
    """Elements of arrays of records in C order are those of NumPy, also from the end."""
    record = FRONT_END.from_dtype(RECORD)
    records = np.zeros((3, 2, 4), RECORD).view(np.recarray)
    records["x"] = np.arange(24).reshape(3, 2, 4)
    records["d"] = np.arange(72).reshape(3, 2, 4, 3)

    def swap(a, i, j):
        a[i, j, 2].x += 1000
        a[0, j, -1] = a[i, -2, 1]
        return a[i, j, -3].d[j] + 1000 * a[-1, 0, i].d[-1] + a[-2, 1, 3].x

    call = compiled(
        swap, types.Array(record, 3, "C"), types.int32, types.int32, result=types.int32, checked=checked
    )
    for i, j in itertools.product((-3, -1, 0, 2), (-2, -1, 0, 1)):
        want = records.copy()
        assert (i, j, int(swap(want, i, j))) == (i, j, call(view(records), i, j))
        assert want.tobytes() == records.tobytes()
    if checked:
        before = records.copy()
        assert call(view(records), 3, 0) == 0
        assert before.tobytes() == records.tobytes()


ROWS = np.dtype([("m", "f4", (2, 3))], align=True)
COPY = "neither numba-cuda(?:-mlir)? nor numba-cuda(?:-mlir)? copies one array into another; write a loop"


def copy_part(a, b):
    """Copy a part of an array."""
    a[-3:] = b[:3]
    return 0


def copy_row(a, b):
    """Copy a row."""
    a[1] = b
    return 0


def write_pair(a, _b):
    """Write a tuple."""
    a[:2] = (1, 2)
    return 0


def row_of_records(a, i):
    """Read a record of a row."""
    return a[1][i].x


def row_of_member(a, i):
    """Read an element of a row of a member."""
    return a[0].m[-1][i]


LINES, RECORDS = types.float32[::1], types.Array(FRONT_END.from_dtype(RECORD), 2, "C")
REFUSED = {
    copy_part: ((LINES, LINES), COPY),
    copy_row: ((types.float32[:, ::1], LINES), COPY),
    write_pair: ((LINES, LINES), 'writes no tuple into a part of an array; write .* front_end="numba-cuda"'),
    row_of_records: (
        (RECORDS, types.int32),
        r"has no rows of arrays of records, .* a\[i, j\] for a\[i\]\[j\]",
    ),
    row_of_member: (
        (types.Array(FRONT_END.from_dtype(ROWS), 1, "C"), types.int32),
        r"has no rows of arrays of records, or in records; .* a\[i, j\] for a\[i\]\[j\]",
    ),
}


@pytest.mark.parametrize("function", REFUSED)
def test_indices_without_code_are_refused(function):
    """The error says what to write, and names numba-cuda only where that compiles it."""
    args, said = REFUSED[function]
    with pytest.raises(ExportError, match=said) as refused:
        compiled(function, *args, result=types.float32)
    assert "compiles it, by front_end" not in str(refused.value)


@pytest.mark.slow
@pytest.mark.parametrize("function", REFUSED)
def test_numba_cuda_compiles_what_its_name_is_said_for(function):
    """What is refused with front_end="numba-cuda" for a cure compiles there; copies of arrays do not."""
    pytest.importorskip("numba_cuda")
    from numba.cuda import types as others
    from numba.cuda.np.numpy_support import from_dtype

    line = others.float32[::1]
    args = {
        copy_part: (line, line),
        copy_row: (others.float32[:, ::1], line),
        write_pair: (line, line),
        row_of_records: (others.Array(from_dtype(RECORD), 2, "C"), others.int32),
        row_of_member: (others.Array(from_dtype(ROWS), 1, "C"), others.int32),
    }[function]
    udf = pl.udf(others.float32(*args), name="f", front_end="numba-cuda")(function)
    if REFUSED[function][1] == COPY:
        with pytest.raises(ExportError, match=COPY) as refused:
            pl.export([udf], archs="sm_90", emit="ptx")
        assert "compiles it, by front_end" not in str(refused.value)
    else:
        assert pl.export([udf], archs="sm_90", emit="ptx").artifacts
