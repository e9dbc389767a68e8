"""Functions and signatures that C cannot call: refused with the function, the parameter and the cure."""

from __future__ import annotations

import pytest
from numba.cuda import types

import numba_ptxlink as pl


def added(x, y=2):
    """Add, with a default value."""
    return x + y


def many(x, *rest):
    """Take any number of arguments."""
    return x + len(rest)


def named(x, **options):
    """Take arguments by any name."""
    return x + len(options)


def keyword(x, *, y=3):
    """Take an argument by keyword."""
    return x + y


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (many, r"Function many \(test_callable_from_c.py:\d+\) cannot .* its parameter '\*rest' is not one"),
        (named, r"Function named \(\S+\) cannot .* parameter '\*\*options' is not one argument"),
        (keyword, r"Function keyword \(\S+\) cannot .* parameter 'y=3' is not one .* by position"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_function_that_c_cannot_call(function, message):
    """C has neither variable arguments of Python's kinds, nor keywords."""
    with pytest.raises(pl.AbiError, match=message):
        pl.kernel("void(int32, int32)")(function)


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("int32(int32)", r"has 2 parameters .* has 1; C has no default values: give a type to"),
        ("int32()", "has 2 parameters .* has 0"),
        ("int32(int32, int32, int32)", "has 2 parameters .* has 3"),
        ((types.int32, types.literal(3)), r"'y', of Numba type Literal.*, has no C type.*; use int64"),
        (types.int32(types.int32, types.Omitted(3)), r"'y', of Numba type omitted.*, has no C type"),
    ],
    ids=str,
)
def test_a_signature_that_differs_from_the_function(signature, message, tmp_path):
    """Each parameter has one type, and no type stands for a value in place of the caller's."""
    udf = pl.udf(signature)(added)
    with pytest.raises(pl.AbiError, match=rf"Function added.*{message}"):
        pl.export([udf], tmp_path)
