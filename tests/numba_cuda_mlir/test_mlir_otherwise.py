"""What numba-cuda-mlir computes otherwise than Python, as the documentation tells, on this machine's CPU."""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path

import front_ends
import numpy as np
import pytest
from mlir_host import host, lowered

import numba_ptxlink as pl

NAME = "numba-cuda-mlir"
types = front_ends.get(NAME).types
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "front_ends.md").read_text().replace("\n  ", " ")


def counted(n):
    """Count."""
    total = 0
    for _ in range(n):
        total += 1
    return total


# The signature, the function, an argument, what it returns, and what the page says of it.
ROWS = {
    "range": ("int32(uint8)", counted, -56, 0, "`range(n)` of the `uint8` 200 is empty"),
    "less": ("boolean(uint8)", lambda x: x < np.float32(1), -56, 1, "`<`, `<=`, `>` and `>=` of an unsigned"),
    "power": ("int64(int8)", lambda x: x**2, 100, 16, "`x ** 2` of the `int8` 100 is 16"),
    "minus": ("int32(uint8)", lambda x: -x, -56, 56, "of the `uint8` 200 as an `int32` it is 56"),
}


@pytest.mark.parametrize("row", ROWS)
def test_values_are_those_of_the_page(row):
    """A value that is not Python's is the one that the page tells."""
    signature, function, given, returned, told = ROWS[row]
    call = host(pl.udf(signature, name="f")(function))
    assert (returned, True) == (call(given), told in PAGE)


def test_a_store_through_a_pointer_loses_the_sign():
    """A signed integer that is written to a wider one behind a pointer is not extended by its sign."""

    def store(out, given):
        out[0] = given[0]
        return 0

    call = host(pl.udf("int32(CPointer(int64), CPointer(int32))", name="f")(store))
    out, given = np.zeros(1, np.int64), np.array([-5], np.int32)
    call(*(struct.pack("<Q", each.ctypes.data) for each in (out, given)))
    assert out[0] == (1 << 32) - 5
    assert "`r[0] = a[0]` writes 4294967291 for -5" in PAGE


def test_roots_of_integers_are_of_single_precision():
    """A function of `math` of an integer is computed as float32, and `* 2` makes an integer of it."""
    udf = pl.udf("float64(int32)", name="f")(lambda n: math.sqrt(n) * 2)
    (text,) = lowered(udf).lowered[0].modules
    assert re.search(r"call .*float @\S*sqrt", text)
    assert "fptosi float" in text
    assert "`math.sqrt(n) * 2` of the `int32` 2 is 2.0" in PAGE


def test_arithmetic_of_an_optional_is_refused():
    """An `Optional` can be returned and tested."""
    udf = pl.udf((types.Optional(types.int32),), name="f")(lambda x: x + 1 if x is not None else 0)
    with pytest.raises(pl.ExportError, match="NotImplemented lowering binop"):
        lowered(udf)
    assert "an `Optional` is refused" in PAGE
