"""What numba-cuda-mlir adds for memory of its own, such as a string's, and a function does not reach."""

from __future__ import annotations

import front_ends
import pytest
from mlir_replaced import no_device, replaced  # noqa: F401 - fixtures

import numba_ptxlink as pl
from numba_ptxlink._formats.ptx import parse

NAME = "numba-cuda-mlir"
cuda, types = front_ends.cuda(NAME), front_ends.get(NAME).types


def show(value):
    """Print one of two strings."""
    print("is", "large" if value > 1 else "small")  # noqa: T201 - printf on the device


@pytest.mark.usefixtures("replaced", "no_device")
@pytest.mark.parametrize("cc", [(8, 0), (9, 0), (10, 0)])
@pytest.mark.parametrize("output", ["ptx", "ltoir", "cubin"])
def test_a_string_chosen_at_run_time_compiles(cc, output):
    """The code holds the function alone, no kernel for statistics of memory."""
    code, _ = cuda.compile(show, types.void(types.int64), cc=cc, abi_info={}, output=output)
    if output == "ptx":
        defined = [each.name for each in parse(code).functions if each.defined]
        assert ["show"] == defined
        if cc < (10, 0):
            assert "vprintf" in code
        assert pl.assemble(code, f"sm_{cc[0]}{cc[1]}", relocatable=True).code
    else:
        assert b"NRT_MemSys_set" not in code
