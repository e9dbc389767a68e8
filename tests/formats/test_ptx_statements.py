"""PTX modules, functions, variables and statements as values."""

from __future__ import annotations

import pytest
from ptx_texts import HEAD, machine_code
from ptx_values import at, imm, name, op, sum_of, vec

from numba_ptxlink._formats.ptx import (
    Block,
    Call,
    CallPrototype,
    Declaration,
    Directive,
    Label,
    Line,
    Location,
    Negated,
    Pair,
    Parameter,
    Pragma,
    Register,
    Registers,
    Targets,
    Variable,
    parse,
)

REGISTERS = (
    ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .f32 %f<9>; .reg .b16 %rs<9>;"
    ".reg .v4 .f32 V; .reg .b32 q; .reg .f64 %fd<9>;\n"
)
OUTER = (
    ".global .align 4 .u32 array[4] = {1, 2, 3, 4};\n.shared .align 8 .b8 tile[64];\n.global .texref tex;\n"
    ".func f() { ret; }\n.func (.param .b32 r) g(.param .b32 a, .param .b32 b)"
    " { st.param.b32 [r], 1; ret; }\n.global .u64 table[1] = {f};\n"
)

# What the PTX ISA document allows in a body, each accepted by the assembler in the kernel around it.
STATEMENTS: dict[str, tuple[str, list[object]]] = {
    "no operands": ("bar.warp.sync 1; exit;", [op("bar.warp.sync", 1), op("exit")]),
    "registers": ("add.s32 %r1,%r2,%r3;", [op("add.s32", "%r1", "%r2", "%r3")]),
    "numbers": (
        (
            "mov.u32 %r1, 0x1FU; mov.f32 %f1, 0f3F800000; mov.f64 %fd1, 1.5; add.s32 %r1, %r1, -7;"
            "mov.u32 %r2, 0b11;"
        ),
        [
            op("mov.u32", "%r1", imm("0x1FU")),
            op("mov.f32", "%f1", imm("0f3F800000")),
            op("mov.f64", "%fd1", imm("1.5")),
            op("add.s32", "%r1", "%r1", sum_of("-", 7)),
            op("mov.u32", "%r2", imm("0b11")),
        ],
    ),
    "modifiers apart": ("ld .global\n.u32 %r1, [%rd1];", [op("ld.global.u32", "%r1", at("%rd1"))]),
    "special registers": (
        "mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid .y; mov.u64 %rd2, %clock64; mov.u32 %r1, WARP_SZ;",
        [
            op("mov.u32", "%r1", "%tid.x"),
            op("mov.u32", "%r2", "%ntid.y"),
            op("mov.u64", "%rd2", "%clock64"),
            op("mov.u32", "%r1", "WARP_SZ"),
        ],
    ),
    "predicates": (
        "@%p1 mov.u32 %r1, 1; @!%p1 mov.u32 %r1, 2; @ ! %p1 ret;",
        [
            op("mov.u32", "%r1", 1, predicate=name("%p1")),
            op("mov.u32", "%r1", 2, predicate=Negated("!", name("%p1"))),
            op("ret", predicate=Negated("!", name("%p1"))),
        ],
    ),
    "two results": (
        "setp.lt.and.f32 %p1|%p2, %f1, %f2, !%p3; elect.sync _|%p1, 1;",
        [
            op("setp.lt.and.f32", Pair(name("%p1"), name("%p2")), "%f1", "%f2", Negated("!", name("%p3"))),
            op("elect.sync", Pair(name("_"), name("%p1")), 1),
        ],
    ),
    "addresses": (
        (
            "ld.global.u32 %r1, [%rd1+4]; ld.global.u32 %r1, [%rd1+-4]; ld.global.u32 %r1, [array]; "
            "ld.shared.u32 %r1, [tile + 2*2]; ld.local.u32 %r1, [16];"
        ),
        [
            op("ld.global.u32", "%r1", at(sum_of("%rd1", "+", 4))),
            op("ld.global.u32", "%r1", at(sum_of("%rd1", "+", "-", 4))),
            op("ld.global.u32", "%r1", at("array")),
            op("ld.shared.u32", "%r1", at(sum_of("tile", "+", 2, "*", 2))),
            op("ld.local.u32", "%r1", at(16)),
        ],
    ),
    "elements of arrays": (
        "mov.u64 %rd1, array[1]; ld.global.u32 %r1, array[2];",
        [
            op("mov.u64", "%rd1", at(1, name="array")),
            op("ld.global.u32", "%r1", at(2, name="array")),
        ],
    ),
    "a uniform load": (
        "ld.global.u32 %r1, [%rd1].unified;",
        [op("ld.global.u32", "%r1", at("%rd1", suffix="unified"))],
    ),
    "vectors": (
        "ld.global.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1]; mov.b64 {%r1,_}, %rd1; mov.b64 %rd1, {%r1, %r2};",
        [
            op("ld.global.v4.f32", vec("%f1", "%f2", "%f3", "%f4"), at("%rd1")),
            op("mov.b64", vec("%r1", "_"), "%rd1"),
            op("mov.b64", "%rd1", vec("%r1", "%r2")),
        ],
    ),
    "elements of vectors": (
        "mov.f32 V.x, %f1; mov.f32 %f2, V.a;",
        [op("mov.f32", "V.x", "%f1"), op("mov.f32", "%f2", "V.a")],
    ),
    "a texture": (
        "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [tex, {%f1,%f2}];",
        [op("tex.2d.v4.f32.f32", vec("%f1", "%f2", "%f3", "%f4"), at("tex", vec("%f1", "%f2")))],
    ),
    "a bulk copy": (
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            " [%r1], [%rd1, {%r2, %r3}], [%r4];"
        ),
        [
            op(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes",
                at("%r1"),
                at("%rd1", vec("%r2", "%r3")),
                at("%r4"),
            )
        ],
    ),
    "parts of registers": (
        "vadd.u32.u32.s32.sat %r1, %r2.b0, %r3.h1; vmad.s32.s32.s32 %r1, -%r2.h0, %r3.h0, %r4;",
        [
            op("vadd.u32.u32.s32.sat", "%r1", "%r2.b0", "%r3.h1"),
            op("vmad.s32.s32.s32", "%r1", Negated("-", name("%r2.h0")), "%r3.h0", "%r4"),
        ],
    ),
    "constant expressions": (
        "mov.u32 %r1, (1<<4) | 3; mov.u32 %r2, 1 ? 2 : 3; mov.u64 %rd2, array+4;",
        [
            op("mov.u32", "%r1", sum_of("(", 1, "<<", 4, ")", "|", 3)),
            op("mov.u32", "%r2", sum_of(1, "?", 2, ":", 3)),
            op("mov.u64", "%rd2", sum_of("array", "+", 4)),
        ],
    ),
    "labels and branches": (
        "bra.uni A; A: B: @%p1 bra B; add: ret; C :",
        [
            op("bra.uni", "A"),
            Label("A"),
            Label("B"),
            op("bra", "B", predicate=name("%p1")),
            Label("add"),
            op("ret"),
            Label("C"),
        ],
    ),
    "a branch to one of several": (
        "T: .branchtargets A, B; brx.idx %r1, T; A: ret; B: ret;",
        [
            Targets("T", "branchtargets", (name("A"), name("B"))),
            op("brx.idx", "%r1", "T"),
            Label("A"),
            op("ret"),
            Label("B"),
            op("ret"),
        ],
    ),
    "opcodes as names": (
        ".reg .b32 add; add.s32 add, add, add;",
        [Registers("b32", (Register("add"),)), op("add.s32", "add", "add", "add")],
    ),
    "calls": (
        "call f; call.uni f, (); @%p1 call f; { .param .b32 a, b, c; call (a), g, (b, c); }",
        [
            Call(name("f")),
            Call(name("f"), modifiers=("uni",)),
            Call(name("f"), predicate=name("%p1")),
            Block(
                (
                    Declaration(tuple(Variable(each, "param", "b32") for each in "abc")),
                    Call(name("g"), (name("b"), name("c")), (name("a"),)),
                )
            ),
        ],
    ),
    "a call that NVVM writes": (
        (
            "{ // callseq 0, 0\n.reg .b32 temp_param_reg;\n.param .b32 param0;\nst.param.b32 [param0+0], %r1;"
            "\n.param .b32 param1;\nst.param.b32 [param1+0], 7;\n.param .b32 retval0;\ncall.uni (retval0), "
            "\ng, \n(\nparam0, \nparam1\n);\nld.param.b32 %r2, [retval0+0];\n} // callseq 0"
        ),
        [
            Block(
                (
                    Registers("b32", (Register("temp_param_reg"),)),
                    Declaration((Variable("param0", "param", "b32"),)),
                    op("st.param.b32", at(sum_of("param0", "+", 0)), "%r1"),
                    Declaration((Variable("param1", "param", "b32"),)),
                    op("st.param.b32", at(sum_of("param1", "+", 0)), 7),
                    Declaration((Variable("retval0", "param", "b32"),)),
                    Call(name("g"), (name("param0"), name("param1")), (name("retval0"),), modifiers=("uni",)),
                    op("ld.param.b32", "%r2", at(sum_of("retval0", "+", 0))),
                )
            )
        ],
    ),
    "indirect calls": (
        (
            "P: .callprototype _ (.param .b32 _) .noreturn;"
            "Q: .callprototype (.param .b32 _) _ (.param .align 4 .b8 _[8]);"
            " N: .callprototype _ (); T: .calltargets f;"
            " { .param .b32 a; call %rd1, (a), P; } call %rd1, (), T; call %rd1, N; call %rd1, (), table;"
        ),
        [
            CallPrototype("P", (), (Parameter("_", "param", "b32"),), (Directive("noreturn"),)),
            CallPrototype(
                "Q", (Parameter("_", "param", "b32"),), (Parameter("_", "param", "b8", 4, extents=(8,)),)
            ),
            CallPrototype("N"),
            Targets("T", "calltargets", (name("f"),)),
            Block(
                (
                    Declaration((Variable("a", "param", "b32"),)),
                    Call(name("%rd1"), (name("a"),), prototype=name("P")),
                )
            ),
            Call(name("%rd1"), prototype=name("T")),
            Call(name("%rd1"), prototype=name("N")),
            Call(name("%rd1"), prototype=name("table")),
        ],
    ),
    "registers of all kinds": (
        ".reg.pred s, t; .reg .b32 x, y<3>; .reg .v2 .f32 W; mov.b32 y0, 1;",
        [
            Registers("pred", (Register("s"), Register("t"))),
            Registers("b32", (Register("x"), Register("y", 3))),
            Registers("f32", (Register("W"),), "v2"),
            op("mov.b32", "y0", 1),
        ],
    ),
    "variables in bodies": (
        ".local .align 8 .b8 depot[56]; .shared .f32 s[4][2], t; .local .b32 l<2>;",
        [
            Declaration((Variable("depot", "local", "b8", alignment=8, extents=(56,)),)),
            Declaration((Variable("s", "shared", "f32", extents=(4, 2)), Variable("t", "shared", "f32"))),
            Declaration((Variable("l", "local", "b32", count=2),)),
        ],
    ),
    "pragmas": (
        '.pragma "nounroll"; .pragma "nounroll", "nounroll";',
        [Pragma(("nounroll",)), Pragma(("nounroll", "nounroll"))],
    ),
    "source lines": (
        (
            ".loc 1 2 3\nmov.u32 %r1, 1; .loc 1 4 5, function_name NAME, inlined_at 1 2 3\n"
            ".loc 1 4 5, function_name NAME + 1, inlined_at 1 2 3"
        ),
        [
            Location(1, 2, 3),
            op("mov.u32", "%r1", 1),
            Location(1, 4, 5, name("NAME"), 0, (1, 2, 3)),
            Location(1, 4, 5, name("NAME"), 1, (1, 2, 3)),
        ],
    ),
    "a line for a preprocessor": ('\n#line 3 "x.cu"\nret;', [Line('#line 3 "x.cu"'), op("ret")]),
    "scopes in scopes": (
        "{ .reg .b32 %r1; { mov.u32 %r1, 1; } { } }",
        [Block((Registers("b32", (Register("%r1"),)), Block((op("mov.u32", "%r1", 1),)), Block(())))],
    ),
}


def kernel(body: str) -> str:
    """Return a module with a kernel around *body*."""
    section = ".section .debug_str\n{\nNAME:\n.b8 97,0\n}\n"
    file = '.file 1 "a.cu"\n'
    return f"{HEAD}{file}{OUTER}.visible .entry k(.param .u64 p)\n{{\n{REGISTERS}{body}\nret;\n}}\n{section}"


@pytest.mark.parametrize("case", STATEMENTS)
def test_statements(case):
    """Each statement of the language becomes its value, spelled out again means the same, and is PTX."""
    text, expected = STATEMENTS[case]
    module = parse(kernel(text))
    skipped = REGISTERS.count(".reg")
    assert expected == list(module.definition("k").body[skipped:-1])
    printed = "".join(f"{statement}\n" for statement in expected)
    again = parse(kernel(printed))
    assert expected == list(again.definition("k").body[skipped:-1])
    assert machine_code(kernel(text)) == machine_code(kernel(printed))
