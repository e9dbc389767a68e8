"""Names, branches and whole cycles of calls after inlining: the code is that of a program without calls."""

from __future__ import annotations

import re

import pytest
from linkcases import HEAD

import numba_ptxlink as pl
from numba_ptxlink._formats import elf, ptx
from numba_ptxlink._fusion.combine import NotCombinedError, combine
from numba_ptxlink._fusion.inline import inline

TOP = HEAD.format(target="sm_90")
REGISTERS = ".reg .b64 %d<5>; .reg .b32 %r<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .pred %p<5>;"
CALL = "{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1; call.uni (r), f, (a); ld.param.b32 %r2, [r]; }"


def kernel(body: str, registers: str = REGISTERS) -> str:
    """Return a kernel that loads %r1, executes *body*, and stores %r2."""
    return (
        f".visible .entry k(.param .u64 p)\n{{\n{registers}\n"
        f"ld.param.u64 %d1, [p]; cvta.to.global.u64 %d2, %d1; ld.global.u32 %r1, [%d2];\n"
        f"{body}\nst.global.u32 [%d2], %r2;\nret;\n}}\n"
    )


def caller(body: str = CALL, registers: str = REGISTERS) -> str:
    """Return a module with a kernel that calls f."""
    return f"{TOP}.extern .func (.param .b32 r) f(.param .b32 a);\n{kernel(body, registers)}"


def callee(body: str, before: str = "") -> str:
    """Return a module with f, which gets %r1 and returns %r2."""
    return (
        f"{TOP}{before}.visible .func (.param .b32 y) f(.param .b32 x)\n{{\n{REGISTERS}\n"
        f"ld.param.b32 %r1, [x];\n{body}\nst.param.b32 [y], %r2;\nret;\n}}\n"
    )


def inlined(*texts: str):
    """Return *texts* as one module after inlining all that can be."""
    return inline(combine([ptx.parse(text) for text in texts]), inline_all=True)


def machine_code(text: str) -> bytes:
    """Return the instructions of the kernel k."""
    section = elf.read(pl.assemble(text, "sm_90").code, "cubin").section(".text.k")
    assert section
    return section.content


SWITCH = (
    "$table: .branchtargets $one, $two;\nbrx.idx %r1, $table;\n"
    "$one: mov.u32 %r2, 5; bra.uni $after;\n$two: mul.lo.u32 %r2, %r1, 7;\n$after:\n"
)
LOOP = (
    "mov.u32 %r2, 0; $next: add.u32 %r2, %r2, %r1; shr.u32 %r1, %r1, 1; setp.ne.u32 %p1, %r1, 0;\n"
    '.pragma "nounroll";\n@%p1 bra $next;'
)
BODIES = {
    "a table of branches": SWITCH,
    "a loop": LOOP,
    "two predicates": "setp.lt.and.s32 %p1|%p2, %r1, 3, %p3; selp.u32 %r2, 1, 2, %p1; @%p2 neg.s32 %r2, %r2;",
    "a label with a percent sign": (
        "setp.eq.u32 %p1, %r1, 3; @%p1 bra %L; mov.u32 %r1, 5; %L: mov.u32 %r2, %r1;"
    ),
    "an exit": "setp.eq.u32 %p1, %r1, 3; @%p1 exit; mov.u32 %r2, %r1;",
    "a trap": "setp.eq.u32 %p1, %r1, 3; @!%p1 bra $fine; trap; $fine: mov.u32 %r2, %r1;",
    "a barrier": "bar.sync 0; mov.u32 %r2, %clock; membar.cta;",
    "votes": "setp.eq.u32 %p1, %r1, 3; vote.sync.ballot.b32 %r2, %p1, -1;\n"
    "shfl.sync.bfly.b32 %r2|%p2, %r2, 1, 31, -1;",
    "vectors": (
        ".reg .v2 .b32 %v; mov.b64 %d3, {%r1, %r1}; mov.b64 {%r3, %r4}, %d3;\n"
        "mov.b32 {%h1, %h2}, %r4; cvt.u32.u16 %r2, %h2; mov.b32 %v.x, %r2; mov.b32 %r2, %v.x;"
    ),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_code_is_that_of_the_body_in_the_place_of_the_call(body):
    """The assembler makes the same of the inlined call and of a kernel that has these statements itself."""
    result = inlined(caller(), callee(body))
    assert (1, ()) == (result.count, result.not_inlined)
    assert machine_code(TOP + kernel(body)) == machine_code(result.text)


def test_a_call_through_a_pointer_is_copied_with_its_prototype():
    """Each copy has the label of a prototype, and the function whose address is taken stays."""
    body = (
        "mov.u64 %d1, g; { .param .b32 a; .param .b32 r; st.param.b32 [a], %r1;\n"
        "$type: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
        "call (r), %d1, (a), $type; ld.param.b32 %r2, [r]; }"
    )
    before = (
        ".func (.param .b32 r) g(.param .b32 a)\n{ .reg .b32 %r1; ld.param.b32 %r1, [a]; "
        "st.param.b32 [r], %r1; ret; }\n"
    )
    twice = f"{CALL}\n{CALL.replace('%r1', '%r2')}"
    result = inlined(caller(twice), callee(body, before))
    reasons = ("f: 1 call through a pointer: the function is known only at run time",)
    assert (2, reasons) == (result.count, result.not_inlined)
    assert {"$inl0_0", "$inl1_0"} == set(re.findall(r"(\S+):\s+\.callprototype", result.text))
    pl.assemble(result.text, "sm_90")


@pytest.mark.parametrize("registers", [".reg .b64 g<13>;", ".reg .b64 g1<5>;", ".reg .b64 g12;"])
def test_registers_with_a_count_hide_variables(registers):
    """A call stays where a variable of the callee has the name of the caller's register."""
    reads = callee("mov.u64 %d3, g12; ld.u32 %r2, [%d3];", ".visible .global .align 4 .b32 g12;\n")
    result = inlined(caller(registers=f"{REGISTERS} {registers}"), reads)
    assert (0, ("k: f: the caller declares another g12",)) == (result.count, result.not_inlined)


def test_registers_with_a_count_are_not_renamed_with_a_variable():
    """A private variable that two modules have gets another name, and registers of the same prefix do not."""
    first = callee(
        ".reg .b32 g<3>; ld.global.u32 g1, [g]; mov.b32 %r2, g1;", ".global .align 4 .b32 g = 1;\n"
    )
    second = caller(f"{CALL} ld.global.u32 %r3, [g]; add.s32 %r2, %r2, %r3;").replace(
        ".visible .entry", ".global .align 4 .b32 g = 2;\n.visible .entry"
    )
    text = combine([ptx.parse(second), ptx.parse(first)]).text
    assert ".reg .b32 g<3>;\nld.global.u32 g1, [g__1];" in text
    pl.assemble(text, "sm_90")


def test_a_new_name_of_a_variable_is_nobody_elses():
    """Private variables that two modules have get names that nothing else has."""
    private = ".global .align 4 .b32 g = 1;\n"
    first = callee("ld.global.u32 %r2, [g__1];", f"{private}.visible .global .align 4 .b32 g__1;\n")
    second = caller(f"{CALL} ld.global.u32 %r3, [g];").replace(".visible .entry", f"{private}.visible .entry")
    text = combine([ptx.parse(second), ptx.parse(first)]).text
    assert {".b32 g___0 = 1;", ".b32 g___1 = 1;", ".b32 g__1;"} == set(re.findall(r"\.b32 g.*;", text))
    pl.assemble(text, "sm_90")


def test_a_variable_with_the_name_of_a_register_is_left_to_the_linker():
    """Code is not searched for names that have the form of registers."""
    text = f"{TOP}.visible .global .align 4 .b32 %g;\n{kernel('mov.u32 %r2, 1;')}"
    with pytest.raises(NotCombinedError, match="%g has the name of a register"):
        combine([ptx.parse(text), ptx.parse(TOP)])


def test_hints_for_a_load_are_left_out():
    """A hint is removed, since another load may follow it than the one that it was written for."""
    newest = TOP.replace("8.0", "8.8")
    hint = '.pragma "used_bytes_mask 0xf";\n'
    body = f"{hint}ld.global.v2.u32 {{%r2, %r3}}, [%d2];"
    text = combine([ptx.parse(newest + kernel(body))]).text
    assert "used_bytes_mask" not in text
    assert "ld.global.v2.u32" in text
    result = inlined(newest + caller(f"{hint}{CALL}")[len(TOP) :], callee("mov.u32 %r2, %r1;"))
    assert (1, False) == (result.count, "used_bytes_mask" in result.text)


def test_an_element_of_a_vector_is_no_register():
    """A call that passes one stays, since the width of the vector is not that of the element."""
    body = CALL.replace("st.param.b32 [a], %r1;", "mov.b32 %v.x, %r1; st.param.b32 [a], %v.x;")
    result = inlined(caller(body, f"{REGISTERS} .reg .v2 .b32 %v;"), callee("mov.u32 %r2, %r1;"))
    assert (0, ("k: f: the variable for x has other uses",)) == (result.count, result.not_inlined)
    pl.assemble(result.text, "sm_90")


@pytest.mark.parametrize("sign", "bsu")
def test_registers_of_eight_bits(sign):
    """Conversions, loads and stores accept registers of 8 bits; moves do not."""
    loads = callee(f".reg .b8 %c; ld.param.{sign}8 %c, [x+1]; cvt.s32.s8 %r2, %c;")
    call = CALL.replace("st.param.b32 [a], %r1", "st.param.b8 [a+1], 192")
    result = inlined(caller(call), loads)
    assert (1, ()) == (result.count, result.not_inlined)
    pl.assemble(result.text, "sm_90")
