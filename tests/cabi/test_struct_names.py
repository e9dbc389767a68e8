"""Two types that would be structs of one name are refused before anything is compiled."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
from numba import from_dtype
from numba.cuda import types

import numba_ptxlink as pl

I32 = types.int32
PAIR = types.UniTuple(I32, 2)


def named(name, *members):
    """Return the type of a new NamedTuple."""
    return types.NamedTuple(members, namedtuple(name, [f"m{number}" for number, _ in enumerate(members)]))  # noqa: PYI024


tuple2_i32_i32 = np.dtype([("q", "i4"), ("r", "i4"), ("z", "i4")])
RECORD = from_dtype(tuple2_i32_i32)
CLASHES = [
    pytest.param((named("Point", I32), named("Point", types.int64)), "Point", id="two-named-tuples"),
    pytest.param((named("tuple2_i32_i32", types.int64), PAIR), "tuple2_i32_i32", id="tuple"),
    pytest.param((RECORD, PAIR), "tuple2_i32_i32", id="record"),
    pytest.param((types.Tuple([named("Point", I32)]), named("Point", types.int8)), "Point", id="member"),
    pytest.param((types.Array(RECORD, 1, "C"), PAIR), "tuple2_i32_i32", id="array-of-records"),
]


def first(a, b):  # noqa: ARG001 - their types matter
    """Do nothing with two values whose module names the record."""
    return 1 if tuple2_i32_i32 is None else 0


@pytest.mark.parametrize(("args", "name"), CLASHES)
def test_one_function_is_refused_by_export(tmp_path, args, name):
    """An export refuses the function, and writes nothing."""
    with pytest.raises(pl.AbiError, match=rf"\.py:\d+: error: Two structs would be named {name}: .* rename"):
        pl.export([pl.udf(I32(*args), name="f")(first)], tmp_path, arch="sm_90", emit=["ptx"])
    assert [] == list(tmp_path.iterdir())
