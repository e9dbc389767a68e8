"""The module that the package combines from several has the results of these."""

from __future__ import annotations

import pytest
from comparison import ARCH, compiled, difference, fused
from cxx_pointers import PLACES
from cxx_pointers import units as pointer_units
from programs import CALLS, CXX, RANDOM, batches, units
from random_ptx import Program

import numba_ptxlink as pl

BATCH = 20


@pytest.mark.parametrize(
    "seeds",
    [
        *batches(0, 4 * BATCH, BATCH),
        *batches(4 * BATCH, 360, 70, pytest.mark.slow),
        *batches(360, 20_000, 5 * BATCH, pytest.mark.slow, pytest.mark.long),
    ],
)
def test_random_ptx_does_the_same(seeds):
    """Whatever passes between functions arrives, also with bytes that nothing stored beside it."""
    for seed in seeds:
        # About 1 program in 1000 loads a byte of an uninitialised register, with zeros above it. Memory keeps
        # the zeros; ptxas does not if the byte becomes a register.
        poison = seed < 300
        texts = Program(seed).texts
        assert "" == difference(RANDOM, texts, fused(texts, everything=seed % 2 == 1), poison=poison), seed


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_cxx_does_the_same(name, everything):
    """Unions, structs of which parts are set, calls in some lanes, barriers, and addresses out of parts."""
    assert "" == difference(CXX, units(name), fused(units(name), everything=everything))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        pytest.param(one, two, marks=[] if (number - at) % len(PLACES) == 1 else [pytest.mark.slow])
        for at, one in enumerate(PLACES)
        for number, two in enumerate(PLACES)
    ],
)
def test_pointers_into_every_memory(one, two):
    """An access goes where its address points to, also where a state space was found for it."""
    texts = [compiled(unit) for unit in pointer_units(one, two)]
    assert "" == difference(CXX, texts, fused(texts, everything=True))


@pytest.mark.parametrize("inline", ["auto", "all"])
@pytest.mark.parametrize("seed", [1000, 1001])
def test_linked_modules_do_the_same(seed, inline):
    """The PTX that `link` assembles computes the same as its modules, each of which the assembler accepts."""
    texts = Program(seed).texts
    for text in texts:
        pl.assemble(text, ARCH, relocatable=True)
    linked = pl.link(*texts, arch=ARCH, inline=inline)
    assert "nvptxcompiler" == linked.backend
    assert "" == difference(RANDOM, texts, linked.ptx)
