"""The outline of a PTX function: its calls, blocks and declarations, with other code unread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ptx_texts import by_nvrtc

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx.statement_parser import read_statements

if TYPE_CHECKING:
    from collections.abc import Iterable

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.func f(.param .b32 a)\n{\n"


def read(function: ptx.Function, outline: Iterable[ptx.Statement]) -> tuple[ptx.Statement, ...]:
    """Return the statements of an *outline* with its code read."""
    statements: list[ptx.Statement] = []
    for statement in outline:
        if isinstance(statement, ptx.Code):
            code = read_statements(function.text, statement.start, statement.end)
            assert all(isinstance(each, (ptx.Instruction, ptx.Label)) for each in code)
            labels = [each.name for each in code if isinstance(each, ptx.Label)]
            assert labels == [label.name for label in statement.labels]
            instructions = [each for each in code if isinstance(each, ptx.Instruction)]
            assert not any(each.opcode == "ret" or "param" in each.modifiers for each in instructions)
            targets = [each.operands[0].name for each in instructions if each.opcode == "bra"]
            assert targets == [target.name for target in statement.targets]
            for name in (*statement.labels, *statement.targets):
                assert name.name == function.text[name.start : name.end]
            named = {name for each in instructions for name in ptx.names(each) if name[0] != "%"}
            assert named - set(targets) <= statement.names
            statements += code
        elif isinstance(statement, ptx.Block):
            inner = read(function, statement.statements)
            statements.append(ptx.Block(inner, start=statement.start, end=statement.end))
        else:
            statements.append(statement)
    return tuple(statements)


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100"])
@pytest.mark.parametrize("flag", ["-lineinfo", "-G"])
def test_the_code_of_an_outline_read_is_the_body(arch, flag):
    """What an outline leaves unread are labels and plain instructions, whole ones."""
    text = by_nvrtc(arch, flag)
    functions = [function for function in ptx.parse(text).functions if function.defined]
    assert functions
    for function in functions:
        assert function.body == read(function, function.outline)


@pytest.mark.parametrize(
    "body",
    [
        "A: B: add.s32 %r1, %r1, 1; @%p1 bra.uni A; bra B;",
        "%A : { $B: bra %A; { mov.b64 {%r1, %r2}, %d1; } bra $B; }",
        "ld .param .b32 %r1, [a]; ld.weak.param.b32 %r1, [a]; @!p bra A; A:",
        "a : add.u32 %r1, %r1, x;\nmov.b64 %d1, x+4; st.global.b32 [y], %r1; @%p ret; ld.b32 %r1, [-x];",
        "alloca.u64 %d1, 4; T: .branchtargets A, B; brx.idx %r1, T; call f, (a);",
        "// ; a comment\nadd.s32 %r1, /* ; */ %r1, 1; call f, // ;\n (a);",
    ],
)
def test_outlines_of_rare_forms(body):
    """Spaces, comments and names in the way make statements be read, and change none."""
    (function,) = ptx.parse(f"{HEAD}{body}\n}}\n").functions
    assert function.body == read(function, function.outline)


def test_a_block_that_is_not_closed_is_none():
    """Braces that do not match are left to the reader of the whole body, which refuses them."""
    for body in ("{ add.s32 %r1, %r1, 1; ", "{ ret; } }"):
        with pytest.raises(ValueError, match="expected"):
            read_outline(body)


def read_outline(body: str) -> object:
    """Return the outline of *body*."""
    from numba_ptxlink._formats.ptx import statement_parser

    return statement_parser.read_outline(body, 0, len(body))
