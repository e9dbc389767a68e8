"""The proof of a header at its export: what C++ makes of it, said in Python's words."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from numba.cuda import types

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
    return header.Declaration(Signature(name, result, params, kernel), f"{name}: test", "", "udfs.py:7")


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
        (declare("size_t", FLOAT), r"function size_t \(udfs\.py:7\), declared as `float size_t\(void\)`"),
        (
            declare("f", FLOAT, ("class", FLOAT)),
            r"function f \(udfs\.py:7\).*Rename what it names in Python",
        ),
        (
            declare("f", FLOAT, ("float3", FLOAT), ("other", FLOAT3)),
            r"function f \(udfs\.py:7\), declared as .*parameter .float3. is not a type",
        ),
        (
            declare("run", c.Void(), ("float4", INT), ("float4", INT), kernel=True),
            r"kernel run \(udfs\.py:7\)",
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


def test_a_call_that_cxx_refuses_names_the_function():
    """A declaration that compiles and cannot be called with its types is refused."""
    good = declare("good", FLOAT, ("value", FLOAT))
    text = header.render("udfs", [good]).replace("float good(float value);", "float good(float, float);")
    with pytest.raises(pl.AbiError, match=r"refuses function good \(udfs\.py:7\)"):
        prove(good, text=text)


def test_a_call_that_reaches_cuda_is_refused():
    """A function of CUDA's own name and types compiles, and calls would reach CUDA's."""
    params = (("value", DOUBLE), ("by", DOUBLE))
    with pytest.raises(pl.AbiError, match=r"by the names fdivide \(udfs\.py:7\), .*such as 'fdivide_of'"):
        prove(declare("fdivide", DOUBLE, *params))


def test_a_name_that_cuda_has_with_other_types_is_told():
    """A function of CUDA's own name and other types compiles, too, and NVRTC declares CUDA's."""
    wide = c.number("int64_t")
    with pytest.raises(pl.AbiError, match=r"powi \(.*, exported as .*use others, such as 'powi_of"):
        prove(declare("powi", wide, ("value", INT), ("to", INT)))


@pytest.mark.parametrize("kernel", [False, True])
def test_a_prototype_that_differs_is_refused(kernel):
    """A model of the C ABI that is wrong about a type is found out."""
    wrong = dataclasses.replace(DOUBLE, size=4, align=4)
    with pytest.raises(
        pl.AbiError, match=r"by the names f \(udfs.*, exported as .* if CUDA has none of these, report"
    ):
        prove(declare("f", c.Void(), ("value", wrong), kernel=kernel))


def test_functions_for_cxx_to_define_are_compared_too():
    """What the export calls has the prototype that C++ gives its definition."""
    wrong = dataclasses.replace(DOUBLE, size=4, align=4)
    with pytest.raises(pl.AbiError, match="names elsewhere"):
        prove(declare("f", FLOAT), externs=(Signature("elsewhere", FLOAT, (("arg0", wrong),)),))


def test_an_export_writes_nothing_when_cxx_refuses_its_header(tmp_path, monkeypatch):
    """The files of the export before are unchanged."""
    monkeypatch.setattr(header, "as_comment", lambda line: f"{line} */ float4 4; /*")
    function = pl.udf(types.float32(types.float32), name="fine")(lambda value: value)
    with pytest.raises(pl.AbiError, match=r"C\+\+ refuses"):
        pl.export([function], tmp_path / "out", archs=["sm_90"], emit=["ptx"])
    assert not (tmp_path / "out").exists()
