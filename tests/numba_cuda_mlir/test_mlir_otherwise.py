"""What numba-cuda-mlir computes otherwise than Python, as the documentation tells, on this machine's CPU."""

from __future__ import annotations

from pathlib import Path

import front_ends
import pytest
from mlir_host import lowered

import numba_ptxlink as pl
from numba_ptxlink._arch import Arch

NAME = "numba-cuda-mlir"
types = front_ends.get(NAME).types
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "front_ends.md").read_text().replace("\n  ", " ")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_float64_is_rounded_twice_to_a_bfloat16(arch):
    """It becomes a float32 first."""
    udf = pl.udf("bfloat16(float64)", name="f")(lambda x: x)
    (text,) = lowered(udf, arch=Arch.of(arch)).lowered[0].modules
    assert "fptrunc double %v0 to float" in text
    assert "is rounded twice on its way to a `bfloat16`" in PAGE


def test_arithmetic_of_an_optional_is_refused():
    """An `Optional` can be returned and tested."""
    udf = pl.udf((types.Optional(types.int32),), name="f")(lambda x: x + 1 if x is not None else 0)
    with pytest.raises(
        pl.ExportError, match=r"does not compute with an Optional, .*pass a number and a boolean"
    ):
        lowered(udf)
    assert "an `Optional` is refused" in PAGE
