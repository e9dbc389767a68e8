"""The statements of PTX functions as values."""

from __future__ import annotations

import pytest
from ptx_texts import HEAD, machine_code

from numba_ptxlink._formats import ptx

REGISTERS = (
    ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>; .reg .f32 %f<9>; .reg .b16 %rs<9>;"
    ".reg .v4 .f32 V; .reg .b32 q; .reg .f64 %fd<9>;\n"
)
OUTER = (
    ".global .align 4 .u32 array[4] = {1, 2, 3, 4};\n.shared .align 8 .b8 tile[64];\n.global .texref tex;\n"
    ".func f() { ret; }\n.func (.param .b32 r) g(.param .b32 a, .param .b32 b)"
    " { st.param.b32 [r], 1; ret; }\n.global .u64 table[1] = {f};\n"
)

BULK = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
# Statements that the PTX ISA document allows in a body, each accepted by the assembler in the kernel around
# it.
STATEMENTS: dict[str, tuple[str, str]] = {
    "no operands": ("bar.warp.sync 1; exit;", "bar.warp.sync 1;|exit;"),
    "registers": ("add.s32 %r1,%r2,%r3;", "add.s32 %r1, %r2, %r3;"),
    "numbers": (
        "mov.u32 %r1, 0x1FU; mov.f32 %f1,0f3F800000;add.s32 %r1, %r1, -7;",
        "mov.u32 %r1, 0x1FU;|mov.f32 %f1, 0f3F800000;|add.s32 %r1, %r1, -7;",
    ),
    "special registers": (
        "mov.u32 %r1, %tid.x; mov.u32 %r1, WARP_SZ;",
        "mov.u32 %r1, %tid.x;|mov.u32 %r1, WARP_SZ;",
    ),
    "predicates": (
        "@%p1 mov.u32 %r1, 1; @!%p1 mov.u32 %r1, 2; @\t!\f%p1\rret;",
        "@%p1 mov.u32 %r1, 1;|@!%p1 mov.u32 %r1, 2;|@!%p1 ret;",
    ),
    "two results": (
        "setp.lt.and.f32 %p1|%p2, %f1, %f2, !%p3; elect.sync _|%p1, 1;".replace("|", "\u00a6"),
        "setp.lt.and.f32 %p1\u00a6%p2, %f1, %f2, !%p3;|elect.sync _\u00a6%p1, 1;",
    ),
    "addresses": (
        "ld.global.u32 %r1, [%rd1+-4]; ld.shared.u32 %r1, [tile + 2*2]; ld.local.u32 %r1, [16];",
        "ld.global.u32 %r1, [%rd1+-4];|ld.shared.u32 %r1, [tile + 2*2];|ld.local.u32 %r1, [16];",
    ),
    "elements of arrays": (
        "mov.u64 %rd1, array[1]; ld.global.u32 %r1, [%rd1].unified;",
        "mov.u64 %rd1, array[1];|ld.global.u32 %r1, [%rd1].unified;",
    ),
    "vectors": (
        "ld.global.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1]; mov.b64 {%r1,_}, %rd1; mov.f32 V.x, %f1;",
        "ld.global.v4.f32 {%f1,%f2,%f3,%f4}, [%rd1];|mov.b64 {%r1,_}, %rd1;|mov.f32 V.x, %f1;",
    ),
    "a texture": (
        "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [tex, {%f1,%f2}];",
        "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [tex, {%f1,%f2}];",
    ),
    "a bulk copy": (
        f"{BULK} [%r1],[%rd1,{{%r2,%r3}}],[%r4];",
        f"{BULK} [%r1], [%rd1,{{%r2,%r3}}], [%r4];",
    ),
    "constant expressions": (
        "mov.u32 %r1, (1<<4) + 3; mov.u64 %rd2, array+4;",
        "mov.u32 %r1, (1<<4) + 3;|mov.u64 %rd2, array+4;",
    ),
    "labels and branches": (
        "bra.uni A; A: B: @%p1 bra B; add: ret; C :",
        "bra.uni A;|A:|B:|@%p1 bra B;|add:|ret;|C:",
    ),
    "a branch to one of several": (
        "T: .branchtargets A, B; brx.idx %r1, T; A: ret; B: ret;",
        "T:|.branchtargets A, B;|brx.idx %r1, T;|A:|ret;|B:|ret;",
    ),
    "calls": (
        "call f; call.uni f, (); { .param .b32 a, b, c; call (a), g, (b, c); }",
        "call f;|call.uni f, ();|{|.param .b32 a, b, c;|call (a), g, (b, c);|}",
    ),
    "a call that NVVM writes": (
        (
            "{ // callseq 0, 0\n.param .b32 a0;\nst.param.b32 [a0+0], %r1;\n.param .b32 a1;\n"
            "st.param.b32 [a1+0], 7;\n.param .b32 r0;\ncall.uni (r0), \ng, \n(\na0, \na1\n);\n"
            "ld.param.b32 %r2, [r0+0];\n} // callseq 0"
        ),
        (
            "{|.param .b32 a0;|st.param.b32 [a0+0], %r1;|.param .b32 a1;|st.param.b32 [a1+0], 7;|"
            ".param .b32 r0;|call.uni (r0), g, (\na0, \na1\n);|ld.param.b32 %r2, [r0+0];|}"
        ),
    ),
    "indirect calls": (
        (
            "P: .callprototype _ (.param .b32 _) .noreturn; T: .calltargets f;"
            " { .param .b32 a; call %rd1, (a), P; } call %rd1, (), T; call %rd1, (), table;"
        ),
        (
            "P:|.callprototype _ (.param .b32 _) .noreturn;|T:|.calltargets f;|"
            "{|.param .b32 a;|call %rd1, (a), P;|}|call %rd1, (), T;|call %rd1, (), table;"
        ),
    ),
    "declarations": (
        ".reg.pred s, t; .reg .v2 .f32 W; .local .align 8 .b8 depot[56]; .shared .f32 u[4][2], v;",
        ".reg.pred s, t;|.reg .v2 .f32 W;|.local .align 8 .b8 depot[56];|.shared .f32 u[4][2], v;",
    ),
    "a pragma": ('.pragma "nounroll";', '.pragma "nounroll";'),
    "source lines": (
        (
            ".loc 1 2 3\nmov.u32 %r1, 1; .loc 1 02 0x3 mov.u32 %r2, 2;.loc\r1 4\f5\rL: ret;"
            ".loc 1 4 5, function_name NAME + 1, inlined_at 1 2 3 exit;"
        ),
        (
            ".loc 1 2 3|mov.u32 %r1, 1;|.loc 1 02 0x3|mov.u32 %r2, 2;|.loc\r1 4\f5|L:|ret;|"
            ".loc 1 4 5, function_name NAME + 1, inlined_at 1 2 3|exit;"
        ),
    ),
    "white space apart and left out": (
        "mov .u32\n%r1, 7;st.global.u32[%rd1],%r1;mov.u32%r1,7;ld .global.v2\t.u32{%r1,%r2},[%rd1];L\n:ret;",
        (
            "mov.u32 %r1, 7;|st.global.u32 [%rd1], %r1;|mov.u32 %r1, 7;|"
            "ld.global.v2.u32 {%r1,%r2}, [%rd1];|L:|ret;"
        ),
    ),
    "comments and strings": ('/* ; */ ret; // } "\n.pragma "a;} // b";', 'ret;|.pragma "a;} // b";'),
}


def kernel(body: str) -> str:
    """Return a module with a kernel around *body*."""
    section = ".section .debug_str\n{\nNAME:\n.b8 97,0\n}\n"
    file = '.file 1 "a.cu"\n'
    return f"{HEAD}{file}{OUTER}.visible .entry k(.param .u64 p)\n{{\n{REGISTERS}{body}\nret;\n}}\n{section}"


@pytest.mark.parametrize("case", STATEMENTS)
def test_statements(case):
    """Each statement of the language becomes its value, which is printed as PTX that means the same."""
    text, expected = STATEMENTS[case]
    text, lines = text.replace("\u00a6", "|"), [line.replace("\u00a6", "|") for line in expected.split("|")]
    skipped = REGISTERS.count(".reg")
    body = ptx.parse(kernel(text)).functions[-1].body[skipped:-1]
    assert machine_code(kernel(text)) == machine_code(kernel("\n".join(map(str, body))))
    separate = [
        statement.of(statement.mnemonic, *statement.operands, guard=statement.guard)
        if hasattr(statement, "mnemonic")
        else statement
        for statement in body
    ]
    assert lines == [*map(str, separate)]


def test_what_an_instruction_consists_of():
    """An instruction has an opcode, modifiers and names, and a call has its parts."""
    load, call = ptx.parse_statements("@p ld.global.v2.f32 {%f1, %f2}, [%rd1+4]; call (r), %rd1, (a, b), P;")
    assert ("ld", ["global", "v2", "f32"], ["%f1", "%f2", "%rd1"]) == (
        load.opcode,
        load.modifiers,
        load.names,
    )
    assert ("%f1", "%f2") == ptx.split_vector(load.operands[0])
    assert ("%rd1", ("r",), ("a", "b"), "P") == ptx.parse_call(call)


def test_names_mean_what_is_declared_before():
    """A name is that of the innermost block that has declared it before."""
    body = ptx.parse_statements(
        ".reg .b64 %d1, %x<9>; mov.b64 %d1, %x8; { mov.b64 %d1, %x8; .reg .u64 %d1; .reg .b64 %x<5>;"
        " mov.b64 %d1, %x4; mov.b64 %d1, %x8; } mov.b64 %d1, %y; .reg .b64 %y1<3>; mov.b64 %y12, %y13;"
    )
    blocks = [
        [(register and register.block) for register in map(scope.find, statement.operands)]
        for _, statement, scope in ptx.with_scopes(body)
        if isinstance(statement, ptx.Instruction)
    ]
    assert [[-1, -1], [-1, -1], [2, 2], [2, -1], [-1, None], [-1, None]] == blocks


def test_other_labels():
    """Labels and their uses are renamed; registers and functions of the same name are not."""
    body = ptx.parse_statements("L: T: .branchtargets L, M; bra L; @p bra M; call %d, (), T;")
    changed = [str(ptx.with_labels(statement, {"L": "L1", "T": "T1"})) for statement in body]
    assert "L1:|T1:|.branchtargets L1, M;|bra L1;|@p bra M;|call %d, (), T1;" == "|".join(changed)
