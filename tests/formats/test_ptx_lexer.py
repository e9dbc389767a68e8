"""PTX text as tokens."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numba_ptxlink._formats.ptx import lexer

TOKENS = {
    "names of all kinds": (
        "a a1_$ _ __x $L__BB0_1 %r1 %_ %$ sm_90a",
        "word a, word a1_$, word _, word __x, word $L__BB0_1, word %r1, word %_, word %$, word sm_90a",
    ),
    "selectors": ("%tid.x V.r a.b0", "word %tid.x, word V.r, word a.b0"),
    "opcodes with modifiers": (
        "ld.global.v4.f32 mov.b64 cp.async.bulk.tensor.2d.shared::cluster.mbarrier::complete_tx::bytes",
        (
            "word ld.global.v4.f32, word mov.b64, "
            "word cp.async.bulk.tensor.2d.shared::cluster.mbarrier::complete_tx::bytes"
        ),
    ),
    "modifiers apart": (
        "ld .global .L2::128B .2d",
        "word ld, directive .global, directive .L2::128B, directive .2d",
    ),
    "directives without white space": (
        ".reg.pred %p;",
        "directive .reg, directive .pred, word %p, punctuation ;",
    ),
    "decimals": ("0 12 12U 017", "number 0, number 12, number 12U, number 017"),
    "other bases": ("0x1fU 0XAB 0b101 0B1U", "number 0x1fU, number 0XAB, number 0b101, number 0B1U"),
    "bits of floats": (
        "0f3F800000 0F3f800000 0d3FF0000000000000",
        "number 0f3F800000, number 0F3f800000, number 0d3FF0000000000000",
    ),
    "floats": (
        "1.5 1. .5 1e3 1.5E-3 .5e+1",
        "number 1.5, number 1., number .5, number 1e3, number 1.5E-3, number .5e+1",
    ),
    "too few bits of a float": ("0f3f8", "number 0, word f3f8"),
    "a version": (".version 8.10", "directive .version, number 8.10"),
    "strings": (
        '"a;{//" "" "C:\\dir\\" "a\nb"',
        'string "a;{//", string "", string "C:\\dir\\", string "a\nb"',
    ),
    "comments": ('a// b { " \nc/* } " // */d/**/e/***/', "word a, word c, word d, word e"),
    "a carriage return ends no comment": ("// a\rb\nc", "word c"),
    "a comment in a comment": ("/* a /* b */ c", "word c"),
    "white space": (" \t\r\n\f\v\0a", "word a"),
    "a predicate": ("@!%p1 bra", "punctuation @, punctuation !, word %p1, word bra"),
    "a label": ("$L:ret;", "word $L, punctuation :, word ret, punctuation ;"),
    "results": ("%p1|%p2", "word %p1, punctuation |, word %p2"),
    "an address": (
        "[%rd1+-4]",
        "punctuation [, word %rd1, punctuation +, punctuation -, number 4, punctuation ]",
    ),
    "registers": ("%r<5>", "word %r, punctuation <, number 5, punctuation >"),
    "operators": (
        "<< >> <= >= == != && ||",
        ", ".join(f"punctuation {sign}" for sign in ("<<", ">>", "<=", ">=", "==", "!=", "&&", "||")),
    ),
    "a line for a preprocessor": ('#line 1 "a.cu"\nret', 'line #line 1 "a.cu", word ret'),
    "a line of DWARF": ("@@DWARF .byte 1 // x\nret", "line @@DWARF .byte 1 // x, word ret"),
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
    found = list(lexer.tokens(text))
    last = found[-1]
    assert expected == ", ".join(f"{token.kind} {token.text}" for token in found if token.text)
    assert ("end", "") == (last.kind, last.text)


@given(
    st.one_of(
        st.text(), st.lists(st.sampled_from([*'/*"{}.;:@#%$_<>|=0x \n', "//", "ab", "0f"])).map("".join)
    )
)
def test_every_character_is_in_a_token_or_between_two(text):
    """Tokens come in order, and nothing but white space and comments is between them."""
    end = 0
    for token in lexer.tokens(text):
        between = text[end : token.start]
        assert text[token.start : token.end] == token.text
        assert re.fullmatch(r"(\s|\0|//[^\n]*(\n|$)|/\*(?:(?!\*/)[\s\S])*\*/)*", between)
        end = token.end
    assert len(text) == end


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("{}", 2),
        ("{ { } } }", 7),
        ('{ "}" }', 7),
        ("{ // }\n}", 8),
        ("{ /* } */ }", 11),
        ('{ // "\n}', 8),
        ("{ { }", None),
        ('{ " }', None),
        ("{ /* }", None),
    ],
)
def test_where_a_block_ends(text, end):
    """Braces in strings and comments do not count."""
    assert end == lexer.block_end(text, 0)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("a // b\nc", "a  \nc"),
        ("a /* b\n */ c", "a   c"),
        ('a "// b" /* "c" */ d', 'a "// b"   d'),
        ("a / b", "a / b"),
    ],
)
def test_comments_become_blanks(text, plain):
    """What looks like a comment in a string stays."""
    assert plain == lexer.without_comments(text)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("", ()),
        (" ", ()),
        ("%r1,%r2, 3", ("%r1", "%r2", "3")),
        ("{%r1, %r2}, [a+4]", ("{%r1, %r2}", "[a+4]")),
        ("{%f1}, [tex, {%f1, %f2}]", ("{%f1}", "[tex, {%f1, %f2}]")),
        ("(r), f, (a, b), proto", ("(r)", "f", "(a, b)", "proto")),
        ("%p1|%p2, %r1, !%p3", ("%p1|%p2", "%r1", "!%p3")),
        ("%d1, generic(a)+4", ("%d1", "generic(a)+4")),
        ("%r1, ", ("%r1", "")),
    ],
)
def test_operands(listed, expected):
    """Commas in brackets separate no operands."""
    assert expected == lexer.operands(listed)


@pytest.mark.parametrize(
    ("operand", "expected"),
    [
        ("%tid.x", ["%tid"]),
        ("[%rd1+4]", ["%rd1"]),
        ("{%r1, _, V.x}", ["%r1", "_", "V"]),
        ("0f3F800000", []),
        ("1.5e3", []),
        ("generic(a)+4", ["a"]),
        ("$L__BB0_1", ["$L__BB0_1"]),
        ("!%p1", ["%p1"]),
    ],
)
def test_names(operand, expected):
    """Registers and symbols are names; numbers, selectors and operators are none."""
    assert expected == lexer.names(operand)
