"""Errors in functions of numba-cuda-mlir: their causes, their effects, and where they are listed."""

from __future__ import annotations

import errors_module as errors
import front_ends
import numpy as np
import pytest
from error_lines import line_of, sites
from front_ends import on_cpu, with_names

import numba_ptxlink as pl

NAME = "numba-cuda-mlir"
cuda, types = front_ends.cuda(NAME), front_ends.get(NAME).types

INTS = types.int32(types.int32, types.int32)


@cuda.jit(device=True)
def positive(x):
    """Refuse negative numbers."""
    if x < 0:
        raise ValueError
    return x


@cuda.jit(device=True, inline="never")
def positive_in_call(x):
    """Refuse negative numbers, in a function of its own."""
    if x < 0:
        raise ValueError("negative")
    return 2 * x


@cuda.jit(device=True)
def factorial(n):
    """Call itself."""
    if n < 0:
        raise ValueError
    if n < 2:
        return 1
    return n * factorial(n - 1)


def refused(x, y):
    """Refuse zero, and compute the result behind that."""
    if y == 0:
        raise ValueError("no y")
    result = 2 * x
    for _ in range(y):
        result -= x
    return result


@pytest.mark.parametrize(
    ("function", "bad", "good"),
    [
        (errors.asserted, (5, 0), ((5, 1), 5)),
        (refused, (5, 0), ((5, 1), 5)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_an_error_returns_zero(function, bad, good):
    """`raise` and `assert` return zero, also before statements that compute only the result."""
    call = on_cpu(pl.udf(INTS)(function), NAME)
    assert (0, good[1]) == (call(*bad), call(*good[0]))


def test_an_error_of_a_callee_ends_the_function():
    """After an error of a callee, inlined or not, the function executes no further statement."""
    written = np.zeros(3, np.int32)

    for callee in (positive, positive_in_call):

        def calling(out, x):
            out[0] = 1
            value = callee(x)  # noqa: B023 - compiled at once
            out[1] = value
            for _ in range(3):
                out[2] += callee(x)  # noqa: B023
            return value + 5

        call = on_cpu(pl.udf(types.int64(types.int32[::1], types.int32))(calling), NAME)
        written[:] = 0
        assert (0, [1, 0, 0]) == (call(written, -4), written.tolist())
        value = 4 if callee is positive else 8
        assert (value + 5, [1, value, 3 * value]) == (call(written, 4), written.tolist())


def test_an_error_leaves_a_recursion():
    """The innermost call of a function by itself may fail, and all of them end."""

    def of(n):
        return factorial(n) + 7

    call = on_cpu(pl.udf("int64(int64)")(of), NAME)
    assert (127, 0) == (call(5), call(-1))


def test_the_lines_that_raise_are_listed(tmp_path):
    """The manifest lists the lines left in the code, of the function and its callees; the header has none."""
    signature = "int64(int32[::1], int32)"
    summed = with_names(errors.summed, positive=positive, never=positive)
    raising_line, callee = line_of(errors.summed, "assert"), line_of(positive, "raise")
    lines, sentence = sites(pl.udf(signature)(summed), tmp_path, NAME)
    assert [raising_line, callee] == lines
    assert sentence == " * Where it raises, it returns zero. Division by zero and indices are not checked."


def test_its_own_launches_keep_their_errors():
    """A launch does not use the code of an export of the same device function, nor the other way round."""

    def calls(x):
        return positive(x) + 1

    overloads = dict(positive.overloads)
    pl.export([pl.udf(types.int64(types.int32))(calls)], arch="sm_100", emit=["ptx"], front_end=NAME)
    assert overloads == dict(positive.overloads)
    assert "chip" not in positive.targetoptions or not positive.targetoptions["chip"]
