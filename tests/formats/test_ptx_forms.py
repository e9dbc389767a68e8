"""Statements of calls that are read by one match of a pattern: the values are the parser's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from ptx_texts import by_nvrtc

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx.forms import read_form
from numba_ptxlink._formats.ptx.statement_parser import read_statements


def placed(part: Any) -> Any:
    """Return *part* of a statement as a tuple, with the places of all that is in it."""
    if isinstance(part, tuple):
        return tuple(map(placed, part))
    if not isinstance(part, ptx.Node):
        return part
    return (type(part), *(placed(getattr(part, field.name)) for field in dataclasses.fields(part)))


@pytest.mark.parametrize(
    "text",
    [
        " st.param.f32 \t[param0+0], %f1;",
        "st.param.v2.b32 [a+8], {%r1, 5};",
        "st.param.v4.f32 [a], { %f1,0f3F800000 , _ , %f4 };",
        "st.param.b64 [a+24], 0d3FF0000000000000 ;",
        "ld.param.u64 %rd1, [k_param_0];",
        "ld.param.v2.u32 {%r1, %r2}, [s+8];",
        ".param .b32 retval0;",
        ".param .align 16 .b8 s[48];",
        ".param .b8 bytes[4] ;",
        "\n\t.reg .pred \t%p<11>;",
        ".reg .b32 temp_param_reg;",
        "call.uni (retval0), \n\tf0, \n\t(\n\tparam0, \n\tparam1\n\t);",
        "call f, (a);",
        "call.uni (r), %rd1, (a, b);",
        "ret;",
        'ret ; .pragma "nounroll";',
        '.pragma "used_bytes_mask 0xff";',
    ],
)
def test_common_forms_are_read_as_the_parser_reads_them(text):
    """One match gives the values and the places that the parser of tokens gives."""
    statements = []
    end = 0
    while form := read_form(text, end, len(text)):
        statements.append(form)
        end = form.end
    assert end == len(text)
    assert placed(read_statements(text, 0, len(text))) == placed(tuple(statements))


@pytest.mark.parametrize(
    "text",
    [
        "st.param.b32 [a+8], -1;",
        "st.param.b32 [a], %v.x;",
        "ld.param.b32 %r1, [a].unified;",
        "@%p1 ret;",
        "ret.uni;",
        "call.uni (r), %rd1, (a), prototype;",
        ".param .b32 a, b;",
        ".reg .v4 .f32 %v;",
        ".reg .b32 %r<08>;",
        ".param .b32 /* c */ a;",
        "// ret;\n ret;",
        "returned: ret;",
        "call: add.s32 %r1, %r1, 1;",
    ],
)
def test_other_forms_are_left_to_the_parser(text):
    """What has another form is none, whatever comes after it."""
    assert read_form(text, 0, len(text)) is None


def test_compiled_calls_have_common_forms():
    """All that NVRTC writes for a direct call is read by patterns, as the parser reads it."""
    calls = 0
    for function in ptx.parse(by_nvrtc("sm_90", "-lineinfo")).functions:
        for block in ptx.flattened(function.body):
            statements = block.statements if isinstance(block, ptx.Block) else ()
            if not any(isinstance(each, ptx.Call) and not each.prototype for each in statements):
                continue
            calls += 1
            forms = [read_form(function.text, each.start, each.end) for each in statements]
            assert placed(statements) == placed(tuple(forms))
    assert calls
