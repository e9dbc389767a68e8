"""Functions and signatures that C cannot call: refused with the function, the parameter and the cure."""

from __future__ import annotations

import pytest
from numba.cuda import types

import numba_ptxlink as pl


def added(x, y=2):
    """Add, with a default value."""
    return x + y


async def awaited(x):
    """Run asynchronously."""
    return x


async def awaited_each(x):
    """Yield asynchronously."""
    yield x


@pytest.mark.parametrize(
    "function",
    [
        lambda x, *rest: (x, rest),
        lambda x, **options: (x, options),
        lambda x, *, y=3: x + y,
        lambda x: (yield x),
        awaited,
        awaited_each,
    ],
)
def test_a_function_that_c_cannot_call(function):
    """C has neither variable arguments of Python's kinds, nor keywords, generators or coroutines."""
    says = (
        rf"Function {function.__name__} \(test_callable_from_c.py:\d+\) cannot be called from C, which has no"
    )
    with pytest.raises(pl.AbiError, match=says):
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
