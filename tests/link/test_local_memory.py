"""Local variables in registers after inlining: proven cases, all others, and the values that result."""

from __future__ import annotations

import re

import pytest
from linkcases import HEAD

import numba_ptxlink as pl
from numba_ptxlink._formats import ptx
from numba_ptxlink._fusion import local_memory

TOP = HEAD.format(target="sm_90").replace("8.0", "8.3") + ".extern .func g(.param .b64 p);\n"
REGISTERS = (
    ".local .align 16 .b8 depot[64]; .reg .b64 %SP, %SPL, %d<9>; .reg .b32 %r<9>; .reg .b16 %h<9>;\n"
    ".reg .f32 %f<9>; .reg .f64 %g<9>; .reg .pred %p<3>; .local .align 4 .b8 other[8];\n"
    "ld.param.u64 %d8, [a]; ld.param.u32 %r8, [n]; setp.eq.u32 %p1, %r8, 0;\n"
    "mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;\n"
)


def kernel(body: str, name: str = "k") -> str:
    """Return a kernel with a depot whose address is in two registers."""
    return f".visible .entry {name}(.param .u64 a, .param .u32 n)\n{{\n{REGISTERS}{body}\nret;\n}}\n"


def moved(text: str) -> str:
    """Return the function *text* with registers in place of its depots."""
    (function,) = ptx.parse(text).functions
    return f"{function.heading}\n{ptx.format_body(local_memory.promote_local_memory(function.body, 'inl'))}\n"


def promote_local_memory(text: str) -> str:
    """Return the same, which has to assemble."""
    result = moved(text)
    pl.assemble(TOP + result, "sm_90", relocatable=True)
    return result


def read(text: str) -> str:
    """Return the function *text* as this package prints it, without the unused variable."""
    (function,) = ptx.parse(text).functions
    body = ptx.format_body(function.body).replace(".local .align 4 .b8 other[8];\n", "")
    return f"{function.heading}\n{body}\n"


@pytest.mark.parametrize(
    "body",
    [
        "st.local.u64 [%SPL+8], %d8; ld.local.u64 %d1, [depot+8];",
        # Generic, converted there and back, and by sums.
        "st.u64 [%SP], %d8; cvta.to.local.u64 %d1, %SP; ld.local.v2.u32 {%r1, %r2}, [%d1];",
        "add.u64 %d1, %SP, 16; add.s64 %d2, %d1, -8; st.f64 [%d2+-8], %g1; ld.v2.f32 {%f1, %f2}, [%SP];",
        "mov.b64 %d1, depot+4; mov.u64 %d2, %d1; st.local.u8 [%d2+1], -7; ld.local.s8 %r1, [%SPL+5];",
        # Under predicates, in a loop, after labels and comments.
        "L: @%p1 st.local.u32 [%SPL], %r1; /* a */ @!%p1 ld.local.u64 %d1, [%SPL]; // b\n@%p1 bra L;",
        "M: N: st.local.v4.u8 [%SPL+60], {%h1, %h2, 3, %h4}; ld.local.u8 %h1, [%SPL+61];",
        # Registers of the same names in another block, and the same ones there.
        "{ .reg .b64 %SP; mov.u64 %SP, %d8; st.global.u64 [%SP], %SP; } st.u32 [%SP], %r1;",
        "{ .reg .b64 %d<3>; cvta.to.local.u64 %d1, %SP; st.local.u32 [%d1], %r1; } ld.global.u64 %d1, [%d8];",
        # No use at all, and another variable whose address is passed.
        "",
        "st.u8 [%SP], %h1; mov.u64 %d1, other; st.global.u64 [%d8], %d1; ld.u8 %h2, [%SP];",
    ],
)
def test_what_is_only_accessed_becomes_registers(body):
    """Loads and stores at constant offsets become moves, whatever their widths; the variable is gone."""
    result = promote_local_memory(kernel(body))
    assert "depot" not in result
    assert not re.search(r"%SPL?\b(?!;)", re.sub(r"\{\n\.reg \.b64 %SP;[^}]*\}|\.reg[^;]*;", "", result))


@pytest.mark.parametrize(
    "body",
    [
        # The address goes elsewhere.
        "st.global.u64 [%d8], %SP;",
        "st.local.u64 [%SPL], %SP;",
        "{ .param .b64 p; st.param.b64 [p], %SP; call g, (p); }",
        "cvt.u32.u64 %r1, %SPL;",
        "mov.b64 {%r1, %r2}, %SP;",
        "setp.eq.u64 %p2, %SP, 0;",
        "xor.b64 %d1, %SP, %d8; ld.u8 %h1, [%d1];",
        "mov.b64 %g1, %SP; st.global.f64 [%d8], %g1;",
        "@%p1 st.global.u64 [%d8], %SP;",
        # The address is one of several, or changes.
        "selp.b64 %d1, %SP, %d8, %p1; ld.u8 %h1, [%d1];",
        "mov.u64 %d1, %SP; @%p1 mov.u64 %d1, %d8; ld.u8 %h1, [%d1];",
        "mov.u64 %d1, %SP; @%p1 ld.global.u64 %d1, [%d8]; ld.u8 %h1, [%d1];",
        "mov.u64 %d1, %SP; @%p1 ld.global.v2.u64 {%d1, %d2}, [%d8]; ld.u8 %h1, [%d1];",
        "mov.u64 %d1, %SP;\nL: ld.u8 %h1, [%d1]; add.s64 %d1, %d1, 1; @%p1 bra L;",
        "mov.u64 %d1, %SP; @%p1 add.s64 %d1, %SP, 8; ld.u8 %h1, [%d1];",
        "cvt.u64.u32 %d1, %r8; add.s64 %d2, %SP, %d1; ld.u8 %h1, [%d2];",
        "cvt.u64.u32 %d1, %r8; add.s64 %d2, %d1, %SP; ld.u8 %h1, [%d2];",
        # Other accesses: special, out of range, not aligned, or in a form that the pass does not parse.
        "ld.volatile.u8 %h1, [%SP];",
        "ld.local.cv.u8 %h1, [%SPL];",
        "atom.add.u32 %r1, [%SP], 1;",
        "ld.local.u8 %h1, [%SPL+64];",
        "ld.local.u8 %h1, [%SPL+-1];",
        "ld.local.u32 %r1, [%SPL+2];",
        "ld.local.u32 %r1, [%SPL+0x22];",
        "ld.local.u32 %r1, [%SPL+(16)];",
        "mov.b64 %d1, depot+60; ld.local.u32 %r1, [%d1+4];",
        # Parts of a word, of which one may be undefined.
        "st.local.u32 [%SPL+4], -7; ld.local.s8 %r1, [%SPL+5];",
        "st.local.v4.u8 [%SPL+60], {%h1, %h2, 3, %h4}; ld.local.f32 %f1, [%SPL+60];",
        "st.local.u8 [%SPL+1], %h1; ld.local.u16 %r1, [%SPL];",
        # An address of a window is not generic.
        "ld.u8 %h1, [%SPL];",
        "cvta.to.local.u64 %d1, %SPL; ld.local.u8 %h1, [%d1];",
        "prefetch.local.L1 [%SPL];",
    ],
)
def test_what_may_be_reached_otherwise_stays_in_memory(body):
    """If an address may be used in another way, or an access is of another kind, nothing changes."""
    assert read(kernel(body)) == promote_local_memory(kernel(body))


def test_variables_of_many_parts_stay_in_memory():
    """Hundreds of bytes that are accessed one by one would be put into local memory again."""
    accesses = "".join(
        f"st.local.u8 [%SPL+{number}], %h1;\n" for number in range(local_memory.MAX_PIECES + 1)
    )
    text = kernel(accesses).replace("depot[64]", "depot[512]")
    assert read(text) == promote_local_memory(text)


def test_what_stays_in_memory_is_aligned_like_a_stack():
    """A compiler may read by words what it aligned to two bytes, since a depot used to lie at the start."""
    caller = (
        ".visible .entry k(.param .u64 a)\n{\n.local .align 2 .b8 depot[6];.local\t.align\n01 .b8\fother[3];"
        ".reg .b64 %d<3>;\nmov.u64 %d1, depot; st.local.u64 [%d1], %d1; mov.u64 %d2, other;\n"
        "st.local.u64 [%d2], %d2; call g, ();\nret;\n}\n"
    )
    callee = ".visible .func g()\n{\nret;\n}\n"
    head = HEAD.format(target="sm_90")
    inputs = ((head + ".extern .func g();\n" + caller).encode(), (head + callee).encode())
    linked = pl.link(*inputs, arch="sm_90", inline="all")
    assert 1 == linked.inlined
    assert ["16", "16"] == re.findall(r"\.local\s+\.align (\d+)", linked.ptx)
