"""Symbols of LTO-IR where nvJitLink makes no relocatable code, which is so before CUDA 13."""

from __future__ import annotations

import logging

import pytest

import numba_ptxlink as pl
from numba_ptxlink import cache
from numba_ptxlink._link import inputs as link_inputs
from numba_ptxlink._link import ltoir_symbols
from numba_ptxlink._link import symbols as link_symbols
from numba_ptxlink._tools import nvjitlink, nvrtc

ARCH = pl.Arch.of("sm_80")
KERNEL = 'extern "C" __device__ {} damp({});\nextern "C" __global__ void k(double* p) {{ p[0] = {}; }}\n'
RIGHT = KERNEL.format("float", "float, int", "damp(p[0], 3)")
WRONG = KERNEL.format("double", "double, int", "damp(p[0], 3)")
DAMP = """
extern "C" __device__ float helper(float);
extern "C" __device__ float damp(float x, int n) { return helper(x) * n; }
"""
HELPER = 'extern "C" __device__ {0} helper({0} x) {{ return x + 1; }}\n'


@pytest.fixture(autouse=True)
def _cuda_12(monkeypatch):
    """Have nvJitLink make no relocatable code, and keep nothing of what it tells otherwise."""
    monkeypatch.setattr(nvjitlink, "makes_relocatable", lambda: False)
    monkeypatch.setattr(link_symbols, "_known", type(link_symbols._known)())
    monkeypatch.setattr(link_symbols, "_kept", lambda _: None)
    monkeypatch.setattr(cache, "cached", lambda _, make: make())


def ltoir(source):
    """Return the LTO-IR of CUDA C++."""
    return nvrtc.compile_source(source, "source.cu", ARCH, output="ltoir").code


@pytest.mark.parametrize("checks", ["cheap", "all"])
def test_a_wrong_prototype_is_refused(checks):
    """CUDA C++ that declares a function of LTO-IR otherwise than it is does not link."""
    with pytest.raises(pl.LinkError, match="damp has two prototypes") as caught:
        pl.link(WRONG, ltoir(DAMP), ltoir(HELPER.format("float")), arch=ARCH, checks=checks)
    assert ".func (.b32) damp(.b32, .b32)  defined in" in str(caught.value)
    assert ".func (.b64) damp(.b64, .b32)  declared in" in str(caught.value)


def test_calls_between_functions_of_ltoir_are_compared():
    """A function that only another one of LTO-IR calls is compared too."""
    with pytest.raises(pl.LinkError, match="helper has two prototypes"):
        pl.link(RIGHT, ltoir(DAMP), ltoir(HELPER.format("double")), arch=ARCH)


def test_a_right_link_is_made(caplog):
    """Declarations that agree link, and nothing is said to be left out."""
    with caplog.at_level(logging.WARNING, "numba_ptxlink"):
        pl.link(RIGHT, ltoir(DAMP), ltoir(HELPER.format("float")), arch=ARCH, checks="all")
    assert "not compared" not in caplog.text


def test_an_undefined_name_is_none_of_every_input():
    """What one input asks for and another has nothing of is told of the first alone."""
    caller = link_inputs.Input("ltoir", "k", ltoir(RIGHT))
    other = link_inputs.Input("ltoir", "h", ltoir(HELPER.format("float")))
    first, second = ltoir_symbols.tables([caller, other], (), ARCH)
    assert {("k", True), ("damp", False)} == {(symbol.name, symbol.defined) for symbol in first.symbols}
    assert () == second.symbols


def test_what_is_not_compared_is_told(caplog, monkeypatch):
    """With checks="all", LTO-IR that nothing reads is named in a warning."""
    monkeypatch.setattr(ltoir_symbols, "_symbols", lambda *_: None)
    with caplog.at_level(logging.WARNING, "numba_ptxlink"):
        pl.link(WRONG, ltoir(DAMP), ltoir(HELPER.format("float")), arch=ARCH, checks="all")
    assert "not compared with the other inputs: " in caplog.text


def test_inspect_tells_why_there_are_no_symbols():
    """The note of an inspection names the nvJitLink that tells nothing, rather than an architecture."""
    (note,) = pl.inspect(ltoir(DAMP), sass=False).notes
    assert "makes no relocatable code, from which the symbols are read; CUDA 13's does." in note
    assert "name another arch" not in note
