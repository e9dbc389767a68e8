"""PTX inputs as one: calls that are inlined, calls that stay and why, and inputs that cannot be combined."""

from __future__ import annotations

import re

import pytest
from linkcases import HEAD, KERNEL, cubin, function

import numba_ptxlink as pl
from numba_ptxlink._formats import ptx
from numba_ptxlink._fusion.combine import NotCombinedError, combine
from numba_ptxlink._fusion.inline import inline

TOP = HEAD.format(target="sm_80")


def joined(*texts: str) -> str:
    """Return *texts* as one module."""
    return combine([ptx.parse(text) for text in texts]).text


def inlined(*texts: str, inline_all: bool = True, whole_program: bool = True):
    """Return *texts* as one module after inlining, which has to assemble."""
    combined = combine([ptx.parse(text) for text in texts])
    result = inline(combined, inline_all=inline_all, whole_program=whole_program)
    pl.assemble(result.text, "sm_80")
    return result


def calls(text: str) -> int:
    """Return how many calls *text* has."""
    return len(re.findall(r"\bcall\b", text))


def callee(body: str, param: str = ".b32 a", result: str = ".b32 r", before: str = "") -> str:
    """Return a module that defines f(*param*) with a *body*."""
    return f"{TOP}{before}.visible .func (.param {result}) f(.param {param})\n{{\n{body}\n}}\n"


def caller(passed: str = ".b32 a", returned: str = ".b32 r", store: str = "", load: str = "") -> str:
    """Return a module with a kernel that calls f once."""
    declared = f".extern .func (.param {returned}) f(.param {passed});\n"
    return (
        f"{TOP}{declared}.visible .entry k(.param .u64 p)\n{{\n"
        ".reg .b64 %d<4>; .reg .b32 %r<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .pred %p<3>;\n"
        "ld.param.u64 %d1, [p]; ld.global.u32 %r1, [%d1];\n"
        f"{{ .param {passed}; .param {returned};\n{store}\ncall.uni (r), f, (a);\n{load}\n}}\n"
        "st.global.u32 [%d1], %r2;\nret;\n}\n"
    )


PLAIN = caller(store="st.param.b32 [a], %r1;", load="ld.param.b32 %r2, [r];")
RETURN = ".reg .b32 %r<9>; ld.param.b32 %r1, [a]; add.s32 %r2, %r1, 1; st.param.b32 [r], %r2; ret;"


def test_a_call_between_inputs_is_inlined():
    """The kernel has the body of the function, call and function are gone, and the result counts the call."""
    linked = pl.link(PLAIN, callee(RETURN), arch="sm_80")
    assert ("nvptxcompiler", 1, "") == (linked.backend, linked.inlined, linked.log)
    assert "2 PTX as one, 1 call inlined" == linked.reason
    assert ("<ptx 1>", "<ptx 2>") == linked.inputs
    assert ".func" not in linked.ptx
    assert 0 == calls(linked.ptx)
    assert "add.s32 %r2, %r1, 1" in linked.ptx


SHARED = (
    ".reg .b32 %r<9>; .shared .b32 s; ld.param.b32 %r1, [a]; st.shared.b32 [s], %r1; "
    "st.param.b32 [r], %r1; ret;"
)
POINTER = (
    ".reg .b64 %d<9>; .reg .b32 %r<9>; mov.b64 %d1, a; ld.param.b32 %r1, [%d1]; st.param.b32 [r], %r1; ret;"
)
ITSELF = (
    ".reg .b32 %r<9>; { .param .b32 b; .param .b32 s; st.param.b32 [b], 1; call (s), f, (b); "
    "ld.param.b32 %r1, [s]; } st.param.b32 [r], %r1; ret;"
)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (SHARED, "it declares s in .shared memory"),
        (POINTER, "it accesses parameters through a pointer"),
        (ITSELF, "it is recursive"),
    ],
)
def test_a_call_stays_with_a_reason(body, reason):
    """A call stays if the inlined text would have another meaning."""
    result = inlined(PLAIN, callee(body))
    assert result.count == 0
    assert f"k: f: {reason}" in result.not_inlined
    assert "call.uni (r), f" in result.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PLAIN.replace("call.uni", "call (r), f, (a); call.uni"), "has other uses"),
        (PLAIN.replace("b32 a; .param .b32 r", "b32 a, r"), "the variable for r has other uses"),
        (PLAIN.replace(", (a)", ", (%r1)"), "a is not passed in a variable"),
        (PLAIN.replace("{ .param", "{ .local .b32 v; .param"), "the caller declares another v"),
    ],
)
def test_a_caller_may_stand_in_the_way(text, reason):
    """Two calls that pass one variable, a register that is passed, and a name that hides another."""
    body = RETURN.replace("add.s32", "ld.global.b32 %r3, [v]; add.s32")
    result = inlined(text, callee(body, before=".global .b32 v;\n"))
    assert 0 == result.count
    assert any(reason in call for call in result.not_inlined)


def test_functions_of_one_input_stay_apart():
    """A call that a compiler left in its own module stays by default, and goes with "all"."""
    inner = RETURN.replace(
        "add.s32",
        "{ .param .b32 b; .param .b32 s; st.param.b32 [b], %r1; call (s), g, (b); "
        "ld.param.b32 %r1, [s]; } add.s32",
    )
    helper = ".func (.param .b32 r) g(.param .b32 a)\n{ " + RETURN + " }\n"
    by_default = inlined(PLAIN, callee(inner, before=helper), inline_all=False)
    assert (1, ("f: g: both are in one input, whose compiler did not inline the call",)) == (
        by_default.count,
        by_default.not_inlined,
    )
    assert "call (s), g" in by_default.text
    inline_all = inlined(PLAIN, callee(inner, before=helper))
    assert (2, ()) == (inline_all.count, inline_all.not_inlined)
    assert ".func" not in inline_all.text


def test_without_kernels_visible_functions_stay():
    """A module that has nothing to launch is there for others to call, inlined functions too."""
    declared = ".extern .func (.param .b32 r) f(.param .b32 a);\n"
    passed = "{ .param .b32 a; .param .b32 r; st.param.b32 [a], 1; call.uni (r), f, (a); }"
    other = (
        f"{TOP}{declared}.visible .func g()\n{{\n{passed}\nret;\n}}\n"
        ".weak .func w()\n{\nret;\n}\n.func unused()\n{\nret;\n}\n"
    )
    linked = pl.link(callee(RETURN), other, arch="sm_80")
    module = ptx.parse(linked.ptx)
    assert {"f": "visible", "g": "visible", "w": "weak", "unused": ""} == {
        function.name: function.linkage for function in module.functions if function.defined
    }
    assert (1, 0) == (linked.inlined, calls(linked.ptx))
    # A kernel can be linked with it afterwards.
    with_kernel = pl.link(PLAIN, linked.ptx, arch="sm_80")
    assert (1, ["k"]) == (
        with_kernel.inlined,
        [function.name for function in ptx.parse(with_kernel.ptx).functions if function.linkage],
    )


def test_a_large_function_with_several_calls_stays():
    """By default a function of many instructions is copied once at most."""
    long = RETURN.replace("add.s32", "add.s32 %r1, %r1, 3;\n" * 300 + "add.s32")
    once = inlined(PLAIN, callee(long), inline_all=False)
    assert 1 == once.count
    block = re.search(r"\{ \.param.*?\n\}\n", PLAIN, re.DOTALL)[0]
    twice = inlined(PLAIN.replace(block, block * 2), callee(long), inline_all=False)
    assert 0 == twice.count
    assert twice.not_inlined[0].endswith("instructions and 2 calls")


def test_beside_other_inputs_weak_functions_are_called_and_visible_ones_stay():
    """Functions that another input may define or call are left alone."""
    strong = inlined(PLAIN, callee(RETURN), whole_program=False)
    assert strong.count == 1
    assert ".func" in strong.text
    weak = inlined(PLAIN, callee(RETURN).replace(".visible", ".weak"), whole_program=False)
    assert (0, ("k: f: it is weak, and another input may define it",)) == (weak.count, weak.not_inlined)
    linked = pl.link(PLAIN, callee(RETURN), cubin(function(name="g")), arch="sm_80")
    assert ("nvjitlink", 1) == (linked.backend, linked.inlined)


def test_the_strong_definition_is_taken():
    """The strong definition is taken, and the first one if all definitions are weak."""
    text = joined(KERNEL, function(1, linkage=".weak"), function(2), function(3, linkage=".weak"))
    assert ["f"] == [
        function.name
        for function in ptx.parse(text).functions
        if function.defined and function.kind == "func"
    ]
    assert "mov.u32 %r1, 2" in text
    assert "mov.u32 %r1, 1" in joined(
        KERNEL, function(1, linkage=".weak"), function(3, linkage=".weak")
    ).replace(KERNEL, "")


def test_variables_are_bound_to_their_definitions():
    """A definition replaces declarations; a variable comes after those that its initializer names."""
    one = f"{TOP}.extern .global .align 4 .b32 v;\n.visible .global .align 8 .u64 w = generic(v);\n"
    two = f"{TOP}.visible .global .align 4 .b32 v = 7;\n.extern .shared .align 4 .b8 s[];\n"
    three = (
        f"{TOP}.extern .shared .align 16 .b8 s[];\n"
        + PLAIN.removeprefix(TOP)
        + callee(RETURN).removeprefix(TOP).replace(".visible .func", ".func").replace(" f(", " g(")
    )
    text = joined(one, two, three, callee(RETURN))
    assert text.index(" v = 7") < text.index(" w = ")
    assert ".extern .shared .align 16" in text
    assert ".extern .shared .align 4" not in text
    pl.assemble(text, "sm_80")


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ((KERNEL, function(1), function(2)), "f is defined twice"),
        ((KERNEL, function().replace("sm_80", "sm_80, debug")), "debug information"),
        (
            (KERNEL, function().replace("sm_80", "sm_60")),
            "sm_60 and of sm_80 are scheduled in different ways",
        ),
        ((KERNEL, function().replace("sm_80", "sm_80, texmode_independent")), "texture modes"),
        (
            (KERNEL.replace("sm_80", "sm_90a"), function().replace("sm_80", "sm_100a")),
            "for sm_100a and sm_90a",
        ),
        ((KERNEL.replace("sm_80", "sm_80a"), function().replace("sm_80", "sm_90")), "for sm_80a and sm_90"),
        ((KERNEL, function() + "\n.bogus 5 7;\n"), "malformed PTX"),
        ((KERNEL, f"{TOP}.visible .global .b32 f;\n"), "f is a function and a variable"),
        (2 * (f"{TOP}.entry l()\n{{\nret;\n}}\n",), "l is defined twice"),
        ((KERNEL, f"{TOP}.global .b32 v;\n.visible .global .b32 v;\n"), "v is defined twice"),
        ((KERNEL, f"{TOP}.weak .global .b32 v;\n.global .b32 v;\n"), "v is defined twice"),
        (
            (f"{TOP}.weak .global .b32 v;\n", f"{TOP}.weak .global .b64 v;\n"),
            "v is defined with different types",
        ),
    ],
)
def test_what_cannot_be_combined_says_why(texts, reason):
    """Modules that a linker has to link, or that contradict each other, are left to it."""
    with pytest.raises(NotCombinedError, match=reason):
        joined(*texts)


BODY = ".visible .func f()\n{\nret;\n}\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{TOP}{BODY}.version 8.0\n",
        f"{TOP}.target sm_80\n{BODY}",
        f"{TOP}.func f()\n{{\nnonsense.b99 %q;\n}}\n",
        f"{TOP}{BODY}.func g()\n{{\n.reg .b32 %r<2>; add.f32 %r1, %r1;\n}}\n",
        f"{TOP}{BODY}.func g()\n{{\n.loc 1 2 call f, ();\n}}\n",
        f"{TOP}.func f.g()\n{{\nret;\n}}\n",
        f"{TOP}.visible .func f() .bogus\n{{\nret;\n}}\n",
        f'{TOP}.file 1 "caf\u00e9.cu"\n{BODY}',
        f'{TOP}.file "a.cu"\n{BODY}',
        f"{TOP}{BODY}\v",
        f"{TOP}{BODY}.section .debug_str {{ .b8 1; }}\n",
        f"{TOP}{BODY}.section debug {{ .b8 1 }}\n",
        f"{TOP}.local .b8 x[4];\n{BODY}",
        f"{TOP}.extern {BODY[9:]}",
        f"{TOP}.extern .func f();\n{BODY}",
        f"{TOP}.global .u64 v = w;\n.global .u64 w;\n{BODY}",
        f"{TOP}.visible .entry l()\n{{\ncall f, ();\nret;\n}}\n{BODY}",
        f"{TOP.replace('sm_80', 'sm_90')}{BODY}",
        f"{TOP.replace('sm_80', 'sm_8x')}{BODY}",
    ],
)
def test_what_a_linker_refuses_is_refused(text):
    """A mistake in one input is an error, also in a function that the combined module leaves out."""
    for inline_ in ("none", "auto"):
        with pytest.raises(pl.LinkError):
            pl.link(f"{TOP}.visible .entry k()\n{{\nret;\n}}\n", text, arch="sm_80", inline=inline_)


@pytest.mark.parametrize(("word", "wrong"), [(" f(", " f.g("), ("a)\n", "a) .maxnreg 32\n")])
def test_what_ptxas_refuses_of_a_called_function_is_refused(word, wrong):
    """A function whose heading has a mistake is not inlined, so that the compiler finds it."""
    with pytest.raises(pl.PtxlinkError, match="Parsing error"):
        pl.link(PLAIN, callee(RETURN).replace(word, wrong), arch="sm_80")


def test_what_nothing_reaches_may_call_what_is_not_defined():
    """A linker drops such a function, so it keeps no inputs from becoming one."""
    library = f"{callee(RETURN)}.extern .func h();\n.visible .func g()\n{{\ncall h, ();\nret;\n}}\n"
    assert 1 == pl.link(PLAIN, library, arch="sm_80").inlined


def test_blocks_of_any_depth_are_read():
    """A compiler of templates nests many blocks, in which names are those of the blocks around."""
    body = "{ .reg .b32 %r1; mov.u32 %r1, 1;" * 1500 + "}" * 1500
    linked = pl.link(PLAIN.replace("call.uni", f"{body} call.uni"), callee(RETURN), arch="sm_80")
    assert 1 == linked.inlined
