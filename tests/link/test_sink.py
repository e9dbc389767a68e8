"""Loads of a large result move down to where it is returned, and past nothing else than each other."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numba_ptxlink._formats import ptx
from numba_ptxlink._link.fusion import sink
from numba_ptxlink._link.fusion.sink import sink_loads

COUNT = 65
DECLARED = ".reg .b32 %r<900>; .reg .b16 %rs<900>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n"
STORES = [f"st.param.b32 [result+{4 * number}], %r{number};" for number in range(COUNT)]


def function(*lines: str) -> str:
    """Return PTX of a function of *lines* that returns a large struct."""
    return (
        ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func other();\n"
        ".visible .func (.param .align 4 .b8 result[1024]) f(.param .align 4 .b8 taken[1024])\n{\n"
        + DECLARED
        + "\n".join(lines)
        + "\nret;\n}\n"
    )


def read(text: str) -> list[str]:
    """Return the statements of the functions in *text*, a line for each."""
    return [str(each) for found in ptx.parse(text).functions for each in (found.heading, *found.body)]


def loads(space: str = "local", place: str = "%rd1") -> list[str]:
    """Return a load for each of `STORES`, from the last to the first."""
    return [f"ld.{space}.b32 %r{number}, [{place}+{4 * number}];" for number in reversed(range(COUNT))]


def paired(first: list[str], second: list[str]) -> list[str]:
    """Return a line of *first*, from its end, before each of *second*."""
    return [line for pair in zip(reversed(first), second, strict=True) for line in pair]


@pytest.mark.parametrize(
    ("space", "place"), [("local", "%rd1"), ("global.nc", "%rd1"), ("param", "taken"), ("shared", "%r899")]
)
def test_a_load_comes_right_before_its_store(space, place):
    """Loads of any space, and parameters that are passed through, are not kept in registers."""
    found = sink_loads(function(*loads(space, place), *STORES))
    assert read(function(*paired(loads(space, place), STORES))) == read(found)


def test_vectors_and_parts_move_together():
    """A value that is made of parts, and a vector, follow all that they are made of."""
    parts = [
        line
        for number in range(70)
        for line in (
            f"ld.local.u8 %rs{2 * number}, [%rd1+{2 * number}];",
            f"ld.v2.u8 {{%rs{2 * number + 1}, %rs{800 + number}}}, [%rd2+{2 * number}];",
            f"shl.b16 %rs{200 + number}, %rs{2 * number + 1}, 8;",
            f"or.b16 %rs{400 + number}, %rs{200 + number}, %rs{2 * number};",
        )
    ]
    stores = [f"st.param.v2.b16 [result+{4 * n}], {{%rs{400 + n}, %rs{800 + n}}};" for n in range(70)]
    expected = [line for n in range(70) for line in (*parts[4 * n : 4 * n + 4], stores[n])]
    assert read(function(*expected)) == read(sink_loads(function(*parts, *stores)))


@pytest.mark.parametrize(
    "between",
    [
        "st.local.b32 [%rd1+8], %r899;",
        "st.b32 [%rd2], %r899;",
        "st.param.b32 [other_0], %r899;",
        "st.global.b32 [result+1000], %r899;",
        "st.volatile.param.b32 [result+1000], %r899;",
        "@%p1 st.param.b32 [result+1000], %r899;",
        "ld.volatile.local.b32 %r899, [%rd2];",
        "ld.relaxed.sys.b32 %r899, [%rd2];",
        "ld.acquire.gpu.b32 %r899, [%rd2];",
        "ld.weak.b32 %r899, [%rd2];",
        "@%p1 ld.local.b32 %r899, [%rd2];",
        "ld.param.b32 %r899, [result+4];",
        "atom.global.add.u32 %r899, [%rd2], 1;",
        "red.global.add.u32 [%rd2], 1;",
        "membar.gl;",
        "fence.acq_rel.gpu;",
        "bar.sync 0;",
        "{ call.uni other; }",
        "call.uni other;",
        "later:",
        "later: membar.gl;",
        "bra.uni later;\nlater:",
        "@%p1 ret;",
        ".loc 1 2 3",
        "{ .reg .b32 %r1; ld.local.b32 %r1, [%rd2]; }",
        "{ }",
        ".reg .b32 %added;",
        "mov.u32 %r899, %clock;",
        "mov.u64 %rd3, taken;",
        "@%p1 mov.b32 %r899, %r3;",
        "add.cc.u32 %r899, %r3, 1;",
        "setp.eq.u32 %p1, %r3, 0;",
        # Registers that are read or written before.
        "ld.local.b32 %r3, [%rd2];",
        "ld.local.b64 %rd1, [%rd2];",
        "mov.b32 %r3, 1;",
        "mov.b32 %r3, %r4;",
        "and.b32 %r3, %r3, 255;",
        "ld.local.b64 %rd1, [%rd1];",
    ],
)
def test_a_load_passes_nothing_else(between):
    """What may write memory, order accesses, branch or write a register again stays between."""
    text = function(*loads(), between, *STORES)
    assert text == sink_loads(text)


def test_what_is_read_again_is_loaded_once():
    """A value for two places comes before the first, and what nothing returns comes last."""
    unused = "ld.local.b32 %r899, [%rd1];"
    made = "and.b32 %r897, %r0, 1;"
    again = ["st.param.b32 [result+1000], %r0;", "st.param.b32 [result+1004], %r897;"]
    after = "add.u32 %r898, %r899, %r3;"
    found = sink_loads(function(unused, *loads(), made, *STORES, *again, after))
    expected = function(*paired(loads(), STORES), again[0], made, again[1], unused, after)
    assert read(expected) == read(found)


def test_few_values_stay():
    """What has registers for all values that wait at a time is left as it is."""
    small = function(*loads()[1:], *STORES[:-1])
    assert small == sink_loads(small)
    first = loads()[::-1]
    parted = function(*(line for n in range(0, COUNT, 5) for line in (*first[n : n + 5], *STORES[n : n + 5])))
    assert parted == sink_loads(parted)
    halves = [f"ld.local.b16 %rs{number}, [%rd1+{2 * number}];" for number in range(80)]
    wholes = [f"mov.b32 %r{n}, {{%rs{2 * n}, %rs{2 * n + 1}}};" for n in range(40)]
    joined = function(*halves, *wholes, *STORES[:40])
    assert joined == sink_loads(joined)


def test_small_results_are_not_read():
    """A function with a small result stays as it is."""
    text = function(*loads(), *STORES).replace("result[1024]", "result[64]")
    assert text == sink_loads(text)


def test_what_cannot_be_read_stays():
    """A statement of an unknown form leaves its function alone, not the others."""
    good = function(*loads(), *STORES)
    odd = '.func (.param .b8 result[1024]) g()\n{\n@"%p" ret;\n}\n'
    assert sink_loads(good) + odd == sink_loads(good + odd)


@st.composite
def programs(draw) -> list[str]:
    """Return instructions over few registers, which often name one again."""
    register = st.sampled_from([f"%r{number}" for number in range(6)])
    kinds = {
        "ld.local.b32 {}, [{}+4];": 6,
        "ld.local.v2.b32 {{{}, {}}}, [%rd1];": 2,
        "st.param.b32 [result+8], {};": 6,
        "st.param.v2.b32 [result+16], {{{}, {}}};": 2,
        "or.b32 {}, {}, {};": 4,
        "mov.b32 {}, 7;": 1,
        "mov.u32 {}, %clock;": 1,
        "ld.volatile.b32 {}, [{}];": 1,
        "st.local.b32 [{}], {};": 1,
        "@{} ld.local.b32 {}, [{}];": 1,
    }
    lines = []
    for form in draw(
        st.lists(st.sampled_from([kind for kind, often in kinds.items() for _ in range(often)]))
    ):
        holes = form.replace("{{", "").replace("}}", "").count("{}")
        lines.append(form.format(*(draw(register) for _ in range(holes))))
    return lines


def outcome(text: str) -> list[object]:
    """Return what a program has in its registers and result, and what it did to memory, as terms."""
    registers: dict[str, object] = {}
    returned, events = {}, []
    (found,) = [each for each in ptx.parse(text).functions if each.defined]
    for each in found.body:
        if not isinstance(each, ptx.Instruction) or each.opcode == "ret":
            continue
        first, *others = each.operands
        written = ptx.names(first)
        read = others[0] if others else ""
        names = [name for operand in others for name in ptx.names(operand)]
        if each.opcode == "st" and "param" in each.modifiers:
            returned[first] = [registers.get(value, value) for value in names]
            continue
        terms = tuple(registers.get(name, name) for name in names)
        term = (each.word, read if "[" in read else "", terms)
        if each.opcode == "st" or each.guard or "volatile" in each.modifiers or "%clock" in names:
            guard = registers.get(each.guard.strip("@! "), "")
            place = registers.get(written[0], "") if first[0] == "[" else ""
            events.append((term, guard, place))
            if each.opcode == "st":
                continue
            term = (term, guard, [registers.get(name) for name in written])
        # What a load finds depends on what has been done to memory.
        when = len(events) if each.opcode == "ld" or "%clock" in names else 0
        for number, name in enumerate(written):
            registers[name] = (term, when, number)
    return [sorted(registers.items()), sorted(returned.items()), events]


@settings(max_examples=60, deadline=None)
@given(programs())
def test_any_program_does_the_same(lines):
    """The instructions are the same, stores keep their order, and every value is made of the same ones."""
    text = function(*lines)
    with mock.patch.object(sink, "_FEW", 0):
        found = sink_loads(text)
    assert sorted(read(text)) == sorted(read(found))
    fixed = [
        [line for line in read(each) if not line.startswith(("ld.local", "or", "mov.b"))]
        for each in (text, found)
    ]
    assert fixed[0] == fixed[1]
    assert outcome(text) == outcome(found)
