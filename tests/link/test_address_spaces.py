"""State spaces of generic accesses after inlining: accesses with a proven space, and all others."""

from __future__ import annotations

import re

import pytest
from linkcases import HEAD

import numba_ptxlink as pl
from numba_ptxlink._formats import ptx
from numba_ptxlink._fusion import address_spaces

TOP = HEAD.format(target="sm_90").replace("8.0", "8.3")
GLOBALS = ".global .align 16 .b8 v[64];\n.const .align 4 .b32 c = 7;\n.shared .align 16 .b8 s[4096];\n"
REGISTERS = (
    ".reg .b64 %d<9>, %e<9>; .reg .u64 q; .reg .b32 %r<9>; .reg .b16 %h<9>; .reg .f32 %f<9>;\n"
    ".reg .f64 %g<3>; .reg .pred %p<3>; .local .align 8 .b8 l[64];\n"
    "ld.param.u64 %d1, [a]; ld.param.v2.u64 {%d2, %d3}, [b+8]; ld.param.s32 %r1, [n];\n"
)


def kernel(body: str) -> str:
    """Return a kernel with the parameters a, b, a struct, and n."""
    return (
        ".visible .entry k(.param .u64 a, .param .align 16 .b8 b[32], .param .s32 n)\n"
        f"{{\n{REGISTERS}{body}\nret;\n}}\n"
    )


def infer_address_spaces(text: str) -> str:
    """Return the function *text* with global accesses where they are proven."""
    (function,) = ptx.parse(text).functions
    params = {parameter.name for parameter in function.params if function.kind == "entry"}
    return (
        f"{function.heading}\n{ptx.format_body(address_spaces.infer_address_spaces(function.body, params))}\n"
    )


def read(text: str) -> str:
    """Return the function *text* as this package prints it."""
    (function,) = ptx.parse(text).functions
    return f"{function.heading}\n{ptx.format_body(function.body)}\n"


def accesses(body: str, function: str = "") -> list[str]:
    """Return the opcodes of the accesses in *body* afterwards; both texts have to assemble."""
    text = function or kernel(body)
    result = infer_address_spaces(text)
    for kernel_text in (text, result):
        pl.assemble(TOP + GLOBALS + kernel_text, "sm_90", relocatable=True)
    written = re.sub(r"//[^\n]*|/\*.*?\*/", "", result)
    return [match[0] for match in re.finditer(r"\b(?:ld|st|atom|red)\.(?!param)[\w.:]+", written)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("ld.f32 %f1, [%d1];", ["ld.global.f32"]),
        ("@!%p1 ld.v4.f32 {%f1, %f2, %f3, %f4}, [%d2+1048576];", ["ld.global.v4.f32"]),
        (
            "cvt.s64.s32 %e1, %r1; shl.b64 %e1, %e1, 2; add.s64 %d4, %e1, %d3; st.b32 [%d4+-4], %r1;",
            ["st.global.b32"],
        ),
        ("mad.wide.s32 %d4, %r1, 4, %d1; ld.u8 %h1, [%d4];", ["ld.global.u8"]),
        ("mad.lo.s64 %d4, %d2, 24, %d1; ld.b64 %d5, [%d4];", ["ld.global.b64"]),
        (
            (
                "mov.u32 %r2, 9; mul.wide.u32 %e1, %r1, %r2; div.u64 %e2, %d2, 12; mul.lo.s64 %e2, %e2, %e1;"
                "rem.s64 %e3, %e2, 7; mul.hi.u64 %e3, %e3, -6148914691236517205;"
                "mad.lo.s64 %d4, %e3, 12, %d1; ld.b64 %d5, [%d4];"
            ),
            ["ld.global.b64"],
        ),
        ("mov.u32 %r1, %tid.x; mad.wide.u32 %d4, %r1, 0x20U, %d1; ld.b64 %d5, [%d4];", ["ld.global.b64"]),
        # Whatever is computed of parameters, constants and special registers alone.
        ("shl.b64 %e1, %d1, 16; shr.u64 %e2, %e1, 16; ld.f32 %f1, [%e2];", ["ld.global.f32"]),
        ("bfi.b64 %d4, %d1, %d2, 0, 48; ld.f32 %f1, [%d4];", ["ld.global.f32"]),
        (
            "cvt.rn.f32.s32 %f1, %r1; cvt.rzi.s64.f32 %e1, %f1; add.s64 %d4, %e1, %d1; ld.f32 %f2, [%d4];",
            ["ld.global.f32"],
        ),
        ("mov.u64 %d4, %clock64; add.s64 %d4, %d4, %d1; ld.f32 %f1, [%d4];", ["ld.global.f32"]),
        (
            "mul.lo.s64 %d4, %d2, %d3; add.s64 %d4, %d4, %d1; ld.f32 %f1, [%d4];",
            ["ld.global.f32"],
        ),
        (
            "cvt.u64.u32 %e1, %r1; shl.b64 %e2, %e1, 32; or.b64 %d4, %e2, %e1; ld.f32 %f1, [%d4];",
            ["ld.global.f32"],
        ),
        # A loop over the threads of a grid.
        (
            (
                "mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x; cvt.u64.u32 %e1, %r2; cvt.u64.u32 %e2, %r3;\n"
                "L: shl.b64 %e3, %e1, 2; add.s64 %e3, %d1, %e3; ld.b32 %r4, [%e3]; add.s64 %e1, %e1, %e2;"
                "setp.lt.u64 %p1, %e1, %d2; @%p1 bra L;"
            ),
            ["ld.global.b32"],
        ),
        ("selp.b64 %d4, %d1, %d2, %p1; and.b64 %d4, %d4, -16; ld.b64 %d5, [%d4];", ["ld.global.b64"]),
        # A null pointer among them, several definitions, and a loop.
        (
            "mov.u64 q, 0; @%p1 mov.u64 q, %d1;\nL: ld.b32 %r1, [q]; add.s64 q, q, 4; @%p1 bra L;",
            ["ld.global.b32"],
        ),
        ("cvta.to.global.u64 %d4, %d1; cvta.global.u64 %d5, %d4; st.f32 [%d5], %f1;", ["st.global.f32"]),
        ("cvta.global.u64 %d4, v; ld.b32 %r1, [%d4+4];", ["ld.global.b32"]),
        # The memory order and the cache operator of an access stay.
        (
            "ld.volatile.f32 %f1, [%d1]; st.volatile.f32 [%d1], %f1;",
            ["ld.volatile.global.f32", "st.volatile.global.f32"],
        ),
        (
            "ld.acquire.gpu.b32 %r1, [%d1]; st.relaxed.sys.b32 [%d1], %r1; ld.weak.b32 %r1, [%d1];",
            ["ld.acquire.gpu.global.b32", "st.relaxed.sys.global.b32", "ld.weak.global.b32"],
        ),
        ("ld.cg.f32 %f1, [%d1]; st.cs.f32 [%d1], %f1;", ["ld.global.cg.f32", "st.global.cs.f32"]),
        ("ld.L1::no_allocate.L2::128B.f32 %f1, [%d1];", ["ld.global.L1::no_allocate.L2::128B.f32"]),
        ("ld.mmio.relaxed.sys.b32 %r1, [%d1];", ["ld.mmio.relaxed.sys.global.b32"]),
        (
            "atom.add.u32 %r1, [%d1], 1; atom.acq_rel.gpu.cas.b32 %r1, [%d2], %r1, 3;",
            ["atom.global.add.u32", "atom.acq_rel.gpu.global.cas.b32"],
        ),
        (
            "red.relaxed.cta.or.b32 [%d1], 1; red.add.f64 [%d2+8], %g1;",
            ["red.relaxed.cta.global.or.b32", "red.global.add.f64"],
        ),
        # An access with a state space keeps it.
        ("st.global.f32 [%d1], %f1; ld.global.nc.f32 %f1, [%d1];", ["st.global.f32", "ld.global.nc.f32"]),
        # Blocks with registers of the same names.
        (
            "{ .reg .b64 %d<3>; cvta.shared.u64 %d2, s; ld.f32 %f1, [%d3]; } ld.f32 %f1, [%d2];",
            ["ld.global.f32", "ld.global.f32"],
        ),
        # Comments, labels and white space.
        (
            "A: B : ld.f32 %f1, // a\n[%d1]; C:\n\t@%p1\tld.f32\t%f1 , [ %d1 + 4 ];",
            ["ld.global.f32", "ld.global.f32"],
        ),
    ],
)
def test_what_can_only_reach_one_space_gets_it(body, expected):
    """Addresses in kernel parameters are global, and so are sums of one of them and numbers."""
    assert expected == accesses(body)


# Instructions that compute %e2 of %e1, which may be an address again then.
DERIVED = [
    "div.u64 %e2, %e1, 12; mul.lo.s64 %e2, %e2, 12;",
    "mul.hi.u64 %e2, %e1, -6148914691236517205; mul.lo.s64 %e2, %e2, 12;",
    "mad.hi.u64 %e2, %e1, 12, 0; mad.lo.s64 %e2, %e2, 12, 4;",
    "mad.lo.s64 %e2, %e3, 12, %e1;",
    "rem.u64 %e2, %e1, 12; sub.s64 %e2, %e1, %e2;",
    "shl.b64 %e2, %e1, 8; shr.u64 %e2, %e2, 8;",
    "bfe.u64 %e2, %e1, 0, 49;",
    "bfi.b64 %e2, %e3, %e1, 0, 4;",
    "brev.b64 %e2, %e1; brev.b64 %e2, %e2;",
    "and.b64 %e2, %e3, %e1;",
    "or.b64 %e2, %e1, 4;",
    "xor.b64 %e2, %e1, %e3;",
    "not.b64 %e2, %e1; not.b64 %e2, %e2;",
    "cnot.b64 %e2, %e1; sub.s64 %e2, %e1, %e2;",
    "neg.s64 %e2, %e1; neg.s64 %e2, %e2;",
    "abs.s64 %e2, %e1;",
    "min.u64 %e2, %e1, -1;",
    "max.u64 %e2, 4, %e1;",
    "sad.u64 %e2, %e1, 0, 0;",
    "slct.b64.s32 %e2, %e1, %e3, %r1;",
    "selp.b64 %e2, 0, %e1, %p1;",
    "sub.s64 %e2, 0, %e1; sub.s64 %e2, 0, %e2;",
    "add.cc.u64 %e2, %e1, 1;",
    "mad.lo.cc.u64 %e2, %e1, 1, 0;",
    "cvt.s64.u64 %e2, %e1;",
    "cvt.rn.f64.u64 %g1, %e1; cvt.rni.u64.f64 %e2, %g1;",
    "shfl.sync.idx.b32 %r2, %r3, 0, 31, -1; mov.b64 %e2, {%r2, %r3}; add.s64 %e2, %e2, %e1;",
]


@pytest.mark.parametrize(
    "body",
    [
        # Windows.
        "mov.u64 %d4, l; cvta.local.u64 %d5, %d4; @%p1 ld.v2.f32 {%f1, %f2}, [%d5+8];",
        "cvta.shared.u64 %d5, s; mad.wide.s32 %d5, %r1, 4, %d5; st.b32 [%d5], %r1;",
        "cvta.const.u64 %d5, c; ld.b32 %r1, [%d5];",
        # A choice of two spaces, by a select, a predicate, a branch.
        "cvta.local.u64 %d4, l; selp.b64 %d5, %d1, %d4, %p1; ld.f32 %f1, [%d5];",
        "cvta.shared.u64 %d4, s; @%p1 mov.u64 %d4, %d1; ld.f32 %f1, [%d4];",
        "mov.u64 %d4, %d1; @%p1 bra L; cvta.local.u64 %d4, l;\nL: st.f32 [%d4], %f1;",
        "L: ld.f32 %f1, [%d1]; @%p1 bra M; bra L;\nM: cvta.local.u64 %d1, l; bra L;",
        # Loaded, by any instruction and of any width.
        "ld.volatile.global.u64 %d4, [%d1]; ld.f32 %f1, [%d4];",
        "ld.global.v2.u64 {%d4, %d5}, [%d1]; ld.f32 %f1, [%d5+8];",
        "ld.global.u64 %d4, [%d1]; add.s64 %d5, %d2, %d4; ld.f32 %f1, [%d5];",
        "ld.global.s32 %e1, [%d1]; shl.b64 %e2, %e1, 3; add.s64 %d4, %d2, %e2; ld.b64 %d5, [%d4];",
        ".reg .v2 .b64 %v; ld.global.v2.b64 %v, [%d1]; mov.b64 %d4, %v.x; ld.f32 %f1, [%d4];",
        "atom.global.exch.b64 %d4, [%d1], %d2; ld.f32 %f1, [%d4];",
        # Put together of halves, bytes and bits.
        "mov.b64 {%r2, %r3}, %d1; mov.b64 %d4, {%r2, %r3}; ld.f32 %f1, [%d4];",
        "cvt.u64.u32 %e1, %r1; or.b64 %e2, %e1, %e3; add.s64 %d4, %e2, %d1; ld.f32 %f1, [%d4];",
        "add.cc.u32 %r2, %r1, %r3; addc.u32 %r4, %r1, 0; mov.b64 %d4, {%r2, %r4}; ld.f32 %f1, [%d4];",
        # Addresses from other threads, and of other state spaces.
        "mapa.u64 %d4, %d1, %r1; ld.f32 %f1, [%d4];",
        "mov.u64 %d4, v; ld.f32 %f1, [%d4];",
        "cvta.shared::cluster.u64 %d4, s; ld.f32 %f1, [%d4];",
        "cvta.to.shared.u64 %d4, %d1; ld.f32 %f1, [%d4];",
        "mov.b64 %d4, b; cvta.param.u64 %d4, %d4; ld.f32 %f1, [%d4];",
        # A sum of two addresses, of one with itself, one that is scaled.
        "cvta.shared.u64 %d4, s; add.s64 %d4, %d4, %d4; ld.f32 %f1, [%d4];",
        "cvta.shared.u64 %d4, s; sub.s64 %d4, 0, %d4; sub.s64 %d4, 0, %d4; ld.f32 %f1, [%d4];",
        # A loaded number that a loop adds up.
        (
            "mov.u64 %e1, 0; ld.global.u32 %e2, [%d1];\nA: add.s64 %e1, %e1, %e2; @%p1 bra A;"
            "add.s64 %d4, %d2, %e1; ld.f32 %f1, [%d4];"
        ),
        "cvta.shared.u64 %d4, s; add.s64 %d4, %d4, %d1; ld.f32 %f1, [%d4];",
        # Any operand of a sum may be the address, the others being an unknown value or a parameter.
        *(
            f"{address} {computed} add.s64 %d5, %e2, %d2; ld.f32 %f1, [%d5];"
            for address in (
                "cvta.shared.u64 %e1, s;",
                "cvta.local.u64 %e1, l;",
                "ld.global.u64 %e1, [%d1];",
                "mov.u64 %e1, v;",
                "mov.b64 %e1, %g2;",
                "{ .param .b64 x; call (x), g, (); ld.param.b64 %e1, [x]; }",
            )
            for computed in DERIVED
        ),
        (
            "cvta.shared.u64 %e1, s; mov.b64 {%r2, %r3}, %e1; mov.b64 %e2, {%r2, %r3}; add.s64 %d5, %e2, %d2;"
            "ld.f32 %f1, [%d5];"
        ),
        # The upper half of an address, moved there.
        *(
            f"cvta.shared.u64 %e1, s; mov.b64 {{%r2, %r3}}, %e1; cvt.u64.u32 %e3, %r3; {moved}"
            "cvt.u64.u32 %e4, %r2; add.s64 %e2, %e2, %e4; add.s64 %d5, %e2, %d2; ld.f32 %f1, [%d5];"
            for moved in (
                "shl.b64 %e2, %e3, 32;",
                "mul.lo.s64 %e2, %e3, 4294967296;",
                "mad.lo.s64 %e2, %e3, 4294967296, 0;",
                "mov.u64 %e2, %e3;\nD: add.s64 %e2, %e2, %e2; @%p1 bra D;",
            )
        ),
        # The result of a call, in a variable with the name of a parameter or with another name.
        "{ .param .b64 a; call (a), g, (); ld.param.b64 %d4, [a]; } ld.f32 %f1, [%d4];",
        "{ .param .b64 x; call (x), g, (); ld.param.b64 %d1, [x]; } ld.f32 %f1, [%d1];",
        # An inner register with the name of an outer one, and the outer one beside fewer inner ones.
        "{ .reg .b64 %d<3>; ld.volatile.global.u64 %d1, [v]; ld.f32 %f1, [%d1]; }",
        "{ .reg .b32 %d<3>; ld.volatile.global.u64 %d5, [v]; } ld.f32 %f1, [%d5];",
        "{ .reg .b64 %d<3>; ld.volatile.global.u64 %d1, [v]; mov.u64 %d5, %d1; } ld.f32 %f1, [%d5];",
    ],
)
def test_what_may_reach_another_space_stays_generic(body):
    """An access stays generic if its address may be of another state space."""
    declared = ".extern .func (.param .b64 r) g();\n" if "call" in body else ""
    text = kernel(body)
    pl.assemble(f"{TOP}{GLOBALS}{declared}{text}", "sm_90", relocatable=True)
    assert read(text) == infer_address_spaces(text)


def test_parameters_of_functions_are_not_known():
    """A function that is called may get any address."""
    body = ".reg .b64 %d<2>; .reg .f32 %f1; ld.param.b64 %d1, [a]; ld.f32 %f1, [%d1]; ret;"
    function = f".visible .func f(.param .b64 a)\n{{\n{body}\n}}\n"
    assert ["ld.f32"] == accesses("", function)
