"""PTX of real compilers is read completely, and as by NVIDIA's assembler, whatever its white space."""

from __future__ import annotations

import math

import emulator
import front_ends
import pytest
import respelled
from ptx_texts import by_nvrtc, machine_code
from random_ptx import Program

import numba_ptxlink as pl
from numba_ptxlink._formats import ptx
from numba_ptxlink._fusion.combine import combine
from numba_ptxlink._fusion.inline import inline


def printed(text: str) -> str:
    """Return *text* with its bodies printed."""
    module = ptx.parse(text)
    assert {"", "line"}.isdisjoint(
        item.keyword for item in module.items if isinstance(item, ptx.UnparsedItem)
    )
    return module.replace(
        {
            function.body_span: ptx.format_body(function.body)
            for function in module.functions
            if function.defined
        }
    )


def executed(text: str) -> list[list[tuple]]:
    """Return the instructions that the machine of the tests reads."""
    functions = emulator.parse(text).functions.values()
    return [
        [
            (instruction.guard, instruction.opcode, instruction.words, repr(instruction.operands))
            for instruction in function.code or ()
        ]
        for function in functions
    ]


def check(text: str, seed: int = 0) -> None:
    """Check that *text*, on one line or with other blanks and comments, means the same to all who read it."""
    code, read = machine_code(text), executed(text)
    assert code == machine_code(printed(text))
    for other_spelling in respelled.joined(text), respelled.split(text, seed):
        assert code == machine_code(other_spelling)
        assert code == machine_code(printed(other_spelling))
        assert read == executed(other_spelling)


def slow(*values: object) -> object:
    """Return a parameter for the slow tests: it repeats a default test with other text."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize("arch", [slow("sm_75"), "sm_90", slow("sm_100")])
@pytest.mark.parametrize(
    "flags", [slow(()), ("-lineinfo",), slow(("-G",))], ids=["plain", "lineinfo", "debug"]
)
def test_nvrtc(arch, flags):
    """So it is with NVRTC's, with line numbers and debug information."""
    text = by_nvrtc(arch, *flags)
    check(text)
    module = ptx.parse(text)
    assert ("debug" in module.header.target) is ("-G" in flags)
    assert ptx.has_line_numbers(text) is bool(flags)


def pendulum(angle, steps, values):
    """Call functions of libdevice, branch, turn, and leave by an error."""
    for step in range(steps):
        if angle < 0:
            raise ValueError
        angle = math.tanh(angle) / 2 + values[step % 3]
    return math.floor(angle), steps // 7


@pytest.mark.slow
@pytest.mark.parametrize("name", front_ends.NAMES)
def test_python(name):
    """So it is with Python functions that NVVM compiled."""
    types = front_ends.get(name).types
    signature = (types.float32, types.int32, types.CPointer(types.float32))
    exported = pl.export(
        [pl.udf(signature, front_end=name)(pendulum)], arch="sm_90", emit=["ptx"], name="spaced"
    )
    check(exported.read("ptx").decode())


@pytest.mark.parametrize("seeds", [range(1), slow(range(1, 20))])
def test_random_modules(seeds):
    """So it is with modules that pass all kinds of values, and with the one that is made of them."""
    for seed in seeds:
        texts = Program(seed).texts
        for text in texts:
            check(text, seed)
        ways = texts, map(respelled.joined, texts), [respelled.split(text, seed) for text in texts]
        one, *other_texts = (inline(combine([*map(ptx.parse, way)]), inline_all=True).text for way in ways)
        for other in other_texts:
            assert machine_code(one, relocatable=False) == machine_code(other, relocatable=False)
