"""PTX text as tokens."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numba_ptxlink._formats.ptx import lexer

TOKENS = {
    "selectors": ("%tid.x V.r a.b0", "word %tid.x, word V.r, word a.b0"),
    "opcodes with modifiers": (
        "ld.global.v4.f32 mov.b64 cp.async.bulk.tensor.2d.shared::cluster.mbarrier::complete_tx::bytes",
        (
            "word ld.global.v4.f32, word mov.b64, "
            "word cp.async.bulk.tensor.2d.shared::cluster.mbarrier::complete_tx::bytes"
        ),
    ),
    "directives without white space": (
        ".reg.pred %p;",
        "directive .reg, directive .pred, word %p, punctuation ;",
    ),
    "other bases": ("0x1fU 0XAB 0b101 0B1U", "number 0x1fU, number 0XAB, number 0b101, number 0B1U"),
    "bits of floats": (
        "0f3F800000 0F3f800000 0d3FF0000000000000",
        "number 0f3F800000, number 0F3f800000, number 0d3FF0000000000000",
    ),
    "floats": (
        "1.5 1. .5 1e3 1.5E-3 .5e+1",
        "number 1.5, number 1., number .5, number 1e3, number 1.5E-3, number .5e+1",
    ),
    "a version": (".version 8.10", "directive .version, number 8.10"),
    "strings": (
        '"a;{//" "" "C:\\dir\\" "a\nb"',
        'string "a;{//", string "", string "C:\\dir\\", string "a\nb"',
    ),
    "comments": ('a// b { " \nc/* } " // */d/**/e/***/', "word a, word c, word d, word e"),
    "a label": ("$L:ret;", "word $L, punctuation :, word ret, punctuation ;"),
    "results": ("%p1|%p2", "word %p1, punctuation |, word %p2"),
    "registers": ("%r<5>", "word %r, punctuation <, number 5, punctuation >"),
    "an open string": ('a "b;', 'word a, malformed "b;'),
    "an open comment": ("a /* b", "word a, malformed /* b"),
    "what is no PTX": (
        "a \u00e9 \udcff ` \u0663",
        "word a, malformed \u00e9, malformed \udcff, malformed `, malformed \u0663",
    ),
}


@pytest.mark.parametrize("case", TOKENS)
def test_tokens(case):
    """Text becomes tokens, each of its kind."""
    text, expected = TOKENS[case]
    found, _ = lexer.tokens(text, 0, len(text))
    assert expected == ", ".join(f"{lexer.kind(token)} {token}" for token in found)


@given(
    st.one_of(
        st.text(), st.lists(st.sampled_from([*'/*"{}.;:@#%$_<>|=0x \n', "//", "ab", "0f"])).map("".join)
    )
)
def test_every_character_is_in_a_token_or_between_two(text):
    """Tokens come in order, and nothing but white space and comments is between them."""
    end = 0
    blank = re.compile(r"(\s|\0|//[^\n]*(\n|$)|/\*(?:(?!\*/)[\s\S])*\*/)*")
    for token, start in zip(*lexer.tokens(text, 0, len(text)), strict=True):
        assert text.startswith(token, start)
        assert token
        assert blank.fullmatch(text[end:start])
        end = start + len(token)
    assert blank.fullmatch(text[end:])


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("%r1,%r2, 3", ("%r1", "%r2", "3")),
        ("{%r1, %r2}, [a+4]", ("{%r1, %r2}", "[a+4]")),
        ("{%f1}, [tex, {%f1, %f2}]", ("{%f1}", "[tex, {%f1, %f2}]")),
        ("%p1|%p2, %r1, !%p3", ("%p1|%p2", "%r1", "!%p3")),
        ("%r1, ", ("%r1", "")),
    ],
)
def test_operands(listed, expected):
    """Commas in brackets separate no operands."""
    assert expected == lexer.operands(listed)
