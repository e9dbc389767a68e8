"""The C function around Numba's function: its results, executed, and its attributes."""

from __future__ import annotations

import re

import abi_rows as rows
import numpy as np
import pytest
from emulator import Machine
from front_ends import on_cpu
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink._tools.options import Options

NAME = "numba-cuda"


def text_of(ty, *, opt=True) -> str:
    """Return the LLVM IR of a function `f` that returns its argument of the Numba type *ty*."""
    udf = pl.udf(ty(ty), name="f")(lambda value: value)
    compiled = rows.program([udf], NAME, pl.Arch.of("sm_100"), Options(opt_level=3 * opt))
    return "\n".join(compiled.functions[0].modules)


def test_any_byte_but_zero_is_true():
    """A boolean that C filled with another number than 0 and 1 is true, and comes back as 1."""
    udf = pl.udf("boolean(boolean)", name="f")(lambda value: value)
    machine = Machine(pl.export([udf], arch="sm_90", emit=["ptx"]).read("ptx").decode())
    ((values, _),) = machine.call("f", np.array([0, 2, 255], np.int32))
    assert [0, 1, 1] == values[:, 0].tolist()


def test_none_is_a_flag():
    """An optional result is a struct of the value and whether there is one; the value of None is zero."""
    call = on_cpu(pl.udf((types.int32,), name="f")(lambda value: value if value > 0 else None), NAME)
    assert [(7, True), (0, False)] == call(np.array([7, -7])).tolist()


@pytest.mark.parametrize(
    ("ty", "attribute"),
    [(types.int8, "signext"), (types.uint16, "zeroext"), (types.boolean, "zeroext"), (types.int32, "")],
    ids=str,
)
def test_narrow_integers_are_widened(ty, attribute):
    """Integers below 32 bits are widened as nvcc's callers and callees expect, and no others are."""
    (head,) = re.findall(r'^define [^@]*@"f"\(.*$', text_of(ty), re.MULTILINE)
    assert [attribute] * (2 if attribute else 0) == re.findall("signext|zeroext", head)


def test_a_packed_record_is_aligned_and_not_passed():
    """A packed record is stored aligned for the widest access, and inlined even without optimisation."""
    packed, aligned = (
        text_of(rows.numba_type(("record", align, (("a", "int8"), ("b", "float64")))), opt=False)
        for align in (False, True)
    )
    assert re.search(r'alloca %"struct\.[^"]*", align 16', packed)
    inlined = re.compile(r'^define [^@]*@"f"\(.*alwaysinline', re.MULTILINE)
    assert (True, False) == (bool(inlined.search(packed)), bool(inlined.search(aligned)))
