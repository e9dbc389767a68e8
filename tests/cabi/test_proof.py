"""The compilation of a header at its export: errors of C++ are reported in Python's terms."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

import numba_ptxlink as pl
from numba_ptxlink._cabi import header, proof
from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature

FLOAT = c.number("float")
DOUBLE = c.number("double")
INT = c.number("int32_t")
FLOAT3 = c.number("float3")
SM_90 = pl.Arch.of("sm_90")


def declare(name, result, *params, kernel=False):
    """Return the declaration of a function of the file udfs.py."""
    return header.CFunction(Signature(name, result, params, kernel), f"{name}: test", "", "udfs.py:7")


def prove(*declarations, externs=(), text=None, archs=(SM_90,)):
    """Prove the header of *declarations*."""
    proof.prove(text or header.render("udfs", declarations, externs), declarations, externs, archs)


def test_what_cxx_accepts_is_proven():
    """Functions, kernels and functions for C++ to define pass, on each dialect of NVVM."""
    pair = c.struct("pair", [("first", FLOAT3), ("second", INT)])
    declarations = (
        declare("scalar", FLOAT, ("value", FLOAT), ("count", INT)),
        declare("nothing", c.Void()),
        declare("of_struct", pair, ("value", pair), ("at", c.Pointer("pair*", 8, 8, pair))),
        declare("run", c.Void(), ("value", pair), ("small", c.number("int8_t")), kernel=True),
    )
    externs = (Signature("elsewhere", DOUBLE, (("arg0", DOUBLE),)),)
    for arch in ("sm_90", "sm_90a", "sm_100"):
        prove(*declarations, externs=externs, archs=(pl.Arch.of(arch),))


@pytest.mark.parametrize(
    ("declaration", "pattern"),
    [
        (
            declare("f", FLOAT, ("class", FLOAT)),
            r"udfs\.py:7: error: C\+\+ refuses f, .*Rename the function, parameter or type in Python",
        ),
        (
            declare("f", FLOAT, ("float3", FLOAT), ("other", FLOAT3)),
            r"refuses f, declared as .*parameter .float3. is not a type",
        ),
        (
            declare("run", c.Void(), ("float4", INT), ("float4", INT), kernel=True),
            r"udfs\.py:7: error: C\+\+ refuses run",
        ),
        (
            declare("f", c.struct("odd", [("new", FLOAT)])),
            r"line \d+ of the header \(float new;\)",
        ),
    ],
)
def test_what_cxx_refuses_is_named(declaration, pattern):
    """The error names the function with its source, and the parameter or struct at fault."""
    with pytest.raises(pl.AbiError, match=pattern) as caught:
        prove(declaration, declare("good", FLOAT))
    assert "error" in caught.value.log
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301 - our own bytes


@pytest.mark.parametrize("kernel", [False, True])
def test_a_prototype_that_differs_is_refused(kernel):
    """A model of the C ABI that is wrong about a type is found out."""
    wrong = dataclasses.replace(DOUBLE, size=4, align=4)
    with pytest.raises(
        pl.AbiError, match=r"of the name f: \..*, not \..* report this if CUDA has no function of that name"
    ):
        prove(declare("f", c.Void(), ("value", wrong), kernel=kernel))
