"""Errors of exported functions: their causes, their effects, and the sentence about them in the header."""

from __future__ import annotations

import errors_module as errors
import numpy as np
import pytest
from error_lines import line_of, sites
from front_ends import on_cpu
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

import numba_ptxlink as pl

NAME = "numba-cuda"
INTS = types.int32(types.int32, types.int32)
FLOATS = types.float32(types.float32, types.float32)
VIEW = types.int32(types.int32[::1], types.int32)


def host(function, signature, *, checked=False):
    """Return a function that calls *function* on this machine."""
    udf = pl.udf(signature, name="f", checked=checked)(getattr(function, "function", function))
    return on_cpu(udf, NAME, checks=False)


@pytest.mark.parametrize(
    ("function", "signature", "values", "unchecked", "good"),
    [
        (errors.quotient, INTS, (7, 0), 1, ((7, 2), 4)),
        (errors.remainder, INTS, (7, 0), 1, ((7, 4), 4)),
        (errors.ratio, FLOATS, (7, 0), float("inf"), ((7, 2), 3.5)),
        (errors.inverse, FLOATS, (0, 0), float("inf"), ((4, 0), 0.25)),
        (errors.calls_device, INTS, (7, 0), 1, ((7, 2), 4)),
        (errors.calls_udf, INTS, (7, 0), 1, ((7, 2), 4)),
        (errors.calls_closure, INTS, (7, 0), 1, ((7, 2), 4)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_division_by_zero_is_an_error_where_it_is_checked(function, signature, values, unchecked, good):
    """Checked, it returns zero; unchecked, NumPy's result: 0 for integers, an infinity for floats."""
    lax, strict = (host(function, signature, checked=checked) for checked in (False, True))
    assert (unchecked, 0) == (lax(*values), strict(*values))
    assert (good[1], good[1]) == (lax(*good[0]), strict(*good[0]))


@pytest.mark.parametrize(("index", "unchecked", "checked"), [(-4, 10, 10), (4, 14, 0), (-5, 9, 0)])
def test_an_index_out_of_range_is_an_error_where_it_is_checked(index, unchecked, checked):
    """Checked, it returns zero without an access; unchecked, it reads and writes memory out of range."""
    memory = np.array([9, 10, 11, 12, 13, 14], np.int32)
    view = memory[1:5]
    assert unchecked == host(errors.item, VIEW)(view, index)
    assert checked == host(errors.item, VIEW, checked=True)(view, index)
    before = memory.copy()
    host(errors.last_but, VIEW, checked=True)(view, index)
    assert (before == memory).all() == (not -4 <= index < 4)


RECORD = from_dtype(np.dtype([("items", "i4", 4), ("weight", "f4")], align=True))
TABLE = np.arange(5)


def in_shared(_array, index):
    """Index shared memory."""
    shared = cuda.shared.array((2, 2), types.int32)
    shared[index, index] = 1
    return shared[0, 0]


def added_to(array, index):
    """Write in place."""
    array[index] += 1


@pytest.mark.parametrize(
    ("function", "first"),
    [
        (lambda array, index: array[index, 1], types.int32[:, :]),
        (lambda array, index: array[index][1], types.int32[:, ::1]),
        (lambda record, index: record.items[index], RECORD),
        (lambda records, index: records[index].weight, types.Array(RECORD, 1, "C")),
        (lambda _, index: TABLE[index], types.int32),
        (lambda _, index: cuda.const.array_like(TABLE)[index], types.int32),
        (in_shared, types.int32),
        (added_to, types.int32[:]),
    ],
)
def test_every_kind_of_array_is_checked(function, first, tmp_path):
    """Views, arrays in records, constants, shared memory and updates in place are checked alike."""
    (lax, _), (strict, _) = (
        sites(pl.udf((first, types.int32), name="f", checked=checked)(function), tmp_path, NAME)
        for checked in (False, True)
    )
    assert (False, True) == (bool(lax), bool(strict))


def test_the_lines_that_raise_are_listed(tmp_path):
    """The manifest lists the lines that may raise, of the function and of its callees."""
    signature = "int64(int32[::1], int32)"
    raising_line, callee = line_of(errors.summed, "raise"), line_of(errors.positive, "raise")
    lines, sentence = sites(pl.udf(signature)(errors.summed), tmp_path, NAME)
    assert {raising_line, callee} <= {*lines}
    assert sentence == " * Where it raises, it returns zero. Division by zero and indices are not checked."
    lines, sentence = sites(
        pl.udf(signature, checked=True, on_error="trap")(errors.summed), tmp_path, "numba-cuda"
    )
    checks = [line_of(errors.summed, "array[i]"), raising_line, line_of(errors.summed, "positive(x)"), callee]
    assert {*checks} <= {*lines}
    assert sentence == " * Where it raises, it stops the kernel. Division by zero and indices are checked."


def test_compile_takes_the_option():
    """`numba.cuda.compile` checks with `abi_info`, and not without; a helper has a variant for each."""
    pl.enable()
    for function, signature in ((errors.item, VIEW), (errors.calls_device, INTS)):
        for checked in (False, True, False):
            info = {"abi_name": "f", "on_error": "trap", "checked": checked}
            ptx, _ = cuda.compile(function, signature, cc=(9, 0), abi_info=info)
            assert checked is ("trap;" in ptx)
    with pytest.raises(pl.AbiError, match=r"checked is 2; the choices are True, False"):
        cuda.compile(errors.item, VIEW, cc=(9, 0), abi_info={"checked": 2})
