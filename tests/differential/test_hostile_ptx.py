"""Damaged PTX is refused, left to nvJitLink or linked as nvJitLink links it."""

from __future__ import annotations

from collections import Counter

import hostile
import pytest
from linkcases import HEAD, KERNEL, function

from numba_ptxlink import cache
from numba_ptxlink._link.fusion.fuse import fuse
from numba_ptxlink._link.inputs import Input


@pytest.fixture(autouse=True)
def uncached(monkeypatch):
    """Combine every case."""
    monkeypatch.setattr(cache, "cached", lambda _, make: make())


def test_damaged_ptx_is_read_combined_and_inlined_or_refused():
    """Nothing but an error of this package ends it, and some of each kind comes out."""
    texts = [hostile.case(seed, compiled=0) for seed in range(200)]
    outcomes = [hostile.outcome(pair, compare=False) for pair in texts]
    assert [] == [outcome for outcome in outcomes if outcome.wrong]
    assert {"refused", "left", "linked"} == {outcome.word for outcome in outcomes}


@pytest.mark.slow
def test_damaged_ptx_is_linked_as_by_nvjitlink(request, record_property):
    """Functions, kernels and variables are those of nvJitLink's link of the same modules."""
    count = 2 * int(request.config.getoption("--hostile-cases"))
    cases = list(hostile.outcomes(range(10**6, 10**6 + count), workers=1))
    record_property("outcomes", str(Counter(outcome.word for _, outcome in cases)))
    assert [] == [case for case in cases if case[1].wrong]
    assert sum(outcome.word.startswith("linked as by nvJitLink") for _, outcome in cases) > count / 10


NUMBERS = ["1e400", "1.5", "0f3F800000", "9" * 5000]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
@pytest.mark.parametrize("place", ["[a]", "[r]"])
def test_an_offset_that_is_no_number_of_bytes_is_not_guessed(number, place):
    """The call stays, so that the assembler says what is wrong."""
    damaged = KERNEL.replace(place, f"{place[:2]}+{number}]")
    fused = fuse([Input("ptx", "k", damaged.encode()), Input("ptx", "f", function().encode())], hostile.ARCH)
    assert (0, True) == (fused.inlined, "k: f: the variable for" in fused.log)


@pytest.mark.parametrize("instruction", ["ld %r1, [a];", "st [r], %r1;", "ld.param %r1, [a];"])
def test_an_access_without_a_type_is_not_guessed(instruction):
    """The call stays likewise."""
    damaged = function().replace("mov.u32 %r1, 1;", instruction)
    fused = fuse([Input("ptx", "k", KERNEL.encode()), Input("ptx", "f", damaged.encode())], hostile.ARCH)
    assert (0, True) == (fused.inlined, "is not only loaded and stored" in fused.log)


def test_what_is_wrong_is_found():
    """A module combined without one of its variables is not taken for the same."""
    text = f"{HEAD.format(target='sm_80')}.visible .global .align 4 .b32 v = 3;\n"
    one, other = (
        hostile.read(hostile.pl.assemble(code, "sm_90").code) for code in (text + "\n", text[:-3] + "4;\n")
    )
    assert "variables" in hostile.unlike(one, other)
    assert "" == hostile.unlike(one, one)


def test_local_variables_begin_as_zeros():
    """Where a store was deleted, what is executed reads what was written all the same."""
    text = "{ .local .align 8 .b8 depot[2]; .reg .b32 %r; }"
    stores = "st.local.u8 [depot+0], 0; st.local.u8 [depot+1], 0;"
    assert text.replace("[2];", f"[2]; {stores}") == hostile.cleared(text)


# By the links of hostile.WAYS.
EXECUTED = {
    "executed, and equal": [("a", "a", "b", "a", "a", "c"), ("a",) * 6],
    "executed, and ended as by nvJitLink": [("ended: fault",) * 6],
    "executed, and not defined": [
        ("b", "a", "c", "b", "b", "b"),
        ("b", "a", "a", "c", "b", "b"),
        ("b", "a", "a", "b", "a", "c"),
        ("b", "ended: fault", "a", "b", "b", "b"),
    ],
    "executed as the modules in one, and not as by nvJitLink": [("b", "a", "a", "b", "b", "b")],
    "WRONG: executed to something else": [
        ("b", "a", "a", "b", "a", "b"),
        ("ended: fault", "a", "a", "ended: fault", "a", "ended: fault"),
        ("ended: fault", "a", "a", "a", "a", "a"),
    ],
}


@pytest.mark.parametrize("word", EXECUTED)
def test_what_is_executed_is_compared(word):
    """Other results than nvJitLink's are wrong, unless the program reads what nobody wrote."""
    assert {word} == {hostile.executed(said).word for said in EXECUTED[word]}
    assert all(word.startswith("WRONG") is hostile.executed(said).wrong for said in EXECUTED[word])
