"""PTX text out of its tree: as it was, with edits, and spelled out from values."""

from __future__ import annotations

import dataclasses

import pytest
from conftest import make_kernel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ptx_generator import Heading, module

import numba_ptxlink as pl
from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx import Span, parse, render

TEXT = """\
.version 8.0
.target sm_90
.address_size 64

	// .globl	f
.visible .func f() { ret; } // f
	// .globl	g

.func  (.param .b32 r) g() { { ret; } }
.extern .func h();
.visible .global .u32 x, y; .global .u32 z;
"""

generated = given(module())
thorough = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def described(item: ptx.Item) -> object:
    """Return what the generator knows of *item*."""
    if isinstance(item, ptx.Function):
        return Heading(*(getattr(item, field) for field in Heading._fields))
    if isinstance(item, ptx.Declaration):
        return ptx.Declaration(tuple(dataclasses.replace(each, line=0) for each in item.variables))
    return item


@settings(thorough, max_examples=30)
@generated
def test_what_is_read_is_what_was_written(written):
    """A module's values are those it was generated from, whatever is written between them."""
    text, items = written
    assert items == [described(item) for item in parse(text).items]


@pytest.mark.slow
@thorough
@generated
def test_the_text_is_put_together_again(written):
    """A module's text is that of its items, statements and braces, and what is aside between them."""
    text, items = written
    module = parse(text)
    assert text == str(module)
    assert items == [described(item) for item in module.items]


@pytest.mark.slow
@thorough
@generated
def test_what_is_spelled_out_means_the_same(written):
    """Text that is spelled out from values is read as equal values, and is spelled so again."""
    text, _ = written
    printed = render(parse(text))
    again = parse(printed)
    assert [_spelled(item) for item in parse(text).items] == [_spelled(item) for item in again.items]
    assert printed == render(again)


def _spelled(item: ptx.Item) -> object:
    """Return what is known of *item*, with initializers as values."""
    known = described(item)
    if isinstance(known, Heading):
        return known._replace(body=tuple(map(_spelled, known.body)))
    if isinstance(known, ptx.Block):
        return tuple(map(_spelled, known.statements))
    if isinstance(known, ptx.Declaration):
        return [(each.initializer, dataclasses.replace(each, initial="")) for each in known.variables]
    return known


@pytest.mark.slow
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(module(), st.data())
def test_damaged_text_is_read_without_an_exception(written, data):
    """Text of which a piece is missing or doubled is read and put together again."""
    text, _ = written
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 20)))
    piece = data.draw(st.sampled_from(["", text[start:end] * 2, "{", "}", '"', "/*", ";", "\udcff"]))
    damaged = text[:start] + piece + text[end:]
    found = parse(damaged)
    assert damaged == str(found)
    for function in found.functions:
        try:
            read = function.body
        except pl.LinkError as error:
            assert "cannot be read: line" in str(error)  # noqa: PT017 - it need not be raised
        else:
            assert isinstance(read, tuple)


def test_spans():
    """A node lies where its text is."""
    found = parse(TEXT)
    f, g, h = found.functions
    assert [".visible", "", ".extern"] == [found.text[slice(*each.linkage_span)] for each in (f, g, h)]
    assert ["f", "g", "h"] == [found.text[slice(*each.name_span)] for each in (f, g, h)]
    assert ["{ ret; }", "{ { ret; } }", ""] == [found.text[slice(*each.body_span)] for each in (f, g, h)]
    assert ["x", "y", "z"] == [found.source(variable) for variable in found.variables]
    (block,) = g.body
    assert "{ ret; }" == found.source(block)
    assert "ret;" == found.source(block.statements[0])


def test_replaced_text():
    """Other text takes the place of nodes, and of nothing between two characters."""
    found = parse(TEXT)
    f, g, _ = found.functions
    (block,) = g.body
    text = found.replace({f.name_span: "q", block.statements[0].span: "exit;", Span(0, 0): "// new\n"})
    assert text == "// new\n" + TEXT.replace("func f()", "func q()").replace("{ ret; } }", "{ exit; } }")
    assert found.replace({}) == TEXT


@pytest.mark.parametrize("spans", [[(0, 5), (4, 6)], [(-1, -1)], [(5, 3)], [(0, 10_000)]])
def test_ranges_that_cannot_be_replaced(spans):
    """Ranges that overlap or lie outside of the text are refused."""
    with pytest.raises(ValueError, match="overlaps another, or is outside of the text"):
        parse(TEXT).replace({Span(*span): "" for span in spans})


def test_replaced_text_within_a_range():
    """A part of a text is returned alone, with other text in it; ranges outside of the part are refused."""
    text = "one two three"
    assert ptx.replaced(text, {Span(4, 7): "2", Span(4, 4): "+"}, Span(4, 9)) == "+2 t"
    for outside in (Span(0, 4), Span(8, 10)):
        with pytest.raises(ValueError, match="is outside of the text"):
            ptx.replaced(text, {outside: ""}, Span(4, 9))


def test_other_linkage():
    """Linkage of functions and variables is changed, added and removed by their names."""
    text = parse(TEXT).relinked(
        {"f": "weak", "g": "visible", "h": "", "y": "weak", "z": "visible", "none": "weak"}
    )
    expected = (
        TEXT.replace(".visible .func f", ".weak .func f")
        .replace(".func  (.param", ".visible .func  (.param")
        .replace(".extern .func", " .func")
        .replace(".visible .global", ".weak .global")
        .replace(" .global .u32 z", " .visible .global .u32 z")
    )
    assert expected == text


def test_items_that_are_left_out():
    """A function goes with the rest of its line and the compiler's comment that names it."""
    found = parse(TEXT)
    f, g, _ = found.functions
    assert TEXT.replace(
        "	// .globl	g\n\n.func  (.param .b32 r) g() { { ret; } }\n", ""
    ) == found.without([g])
    assert TEXT.replace("	// .globl	f\n.visible .func f() { ret; }", "") == found.without([f])
    assert ".visible .func f() {}" in parse("// .globl g\n.visible .func f() {}\n.func g() {}").without([])
    assert "// .globl g\n" == parse("// .globl g\n.func f() {}\n").without(
        parse("// .globl g\n.func f() {}\n").functions
    )


def test_a_kernel_spelled_out():
    """What is spelled out has a line for each statement."""
    text = make_kernel(body="@!%p1 st.global.v2.u32 [%rd1+4],{ 7 , %r1 }; // comment")
    assert (
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry kernel(.param .u64 out)\n{\n"
        ".reg .b64 %rd<2>;\nld.param.u64 %rd1, [out];\n@!%p1 st.global.v2.u32 [%rd1+4], {7, %r1};\nret;\n}\n"
    ) == render(parse(text))


def test_made_nodes_have_no_place():
    """A node that was not read cannot be replaced."""
    made = ptx.Instruction("ret")
    assert "ret;" == str(made)
    with pytest.raises(ValueError, match="outside of the text"):
        parse(TEXT).replace({made.span: "exit;"})
