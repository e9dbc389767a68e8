"""The text of a function, statement by statement: what its names mean where they stand."""

from __future__ import annotations

import pytest

from numba_ptxlink._formats import ptx
from numba_ptxlink._link.fusion.scan import Scanned


def scanned(body: str) -> Scanned:
    """Return a function with *body*."""
    text = f".func f()\n{{\n{body}\n}}"
    return Scanned(text, ptx.parse(text).functions[0])


@pytest.mark.parametrize("wide", [False, True])
def test_names_mean_what_is_declared_before(wide):
    """A declaration after an instruction changes nothing for it, whenever the name is looked up."""
    read = list(
        scanned(
            ".reg .b64 %d1, %x<9>;\n"
            "mov.b64 %d1, %x8;\n"
            "{\n"
            "mov.b64 %d1, %x8;\n"
            ".reg .b64 %d1; .reg .u64 %x<5>;\n"
            "mov.b64 %d1, %x4;\n"
            "mov.b64 %d1, %x8;\n"
            "}\n"
            "mov.b64 %d1, %y;\n"
        ).instructions(wide=wide)
    )
    found = [
        [scope.find(name.strip()) for name in instruction.operands.split(",")] for instruction, scope in read
    ]
    blocks = [[register and register.block for register in registers] for registers in found]
    assert [[1, 1], [1, 1], [2, 2], [2, 1], [1, None]] == blocks
    assert "u64" == found[2][1].type


def test_an_edited_text_is_read_anew():
    """Edits are places in the body without comments; without any the function stays the same."""
    text = scanned("mov.b64 %d1, /* old */ 1;")
    (before, _), *_ = text.instructions()
    start = text.body.index("1;")
    edited = text.edited({ptx.Span(start, start + 1): "2"})
    (after, _), *_ = edited.instructions()
    assert before.operands.split() == ["%d1,", "1"]
    assert after.operands.split() == ["%d1,", "2"]
    assert text.edited({}) is text
