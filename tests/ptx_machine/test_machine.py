"""The machine apart from arithmetic: memory, branches, calls, barriers, warps, and rejected programs."""

from __future__ import annotations

import numpy as np
import pytest
from emulator import Machine, PtxError
from instructions import HEAD

REGISTERS = (
    ".reg .b64 %d<9>; .reg .b32 %r<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .pred %p<9>;\n"
    "ld.param.u64 %d1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %d2, %r1, 4, %d1;\n"
)
FIRST = ".func (.param .b32 r) first(.param .align 4 .b8 s[8]) { .reg .b32 %r<3>;"
NEIGHBOUR = """.visible .func (.param .b32 r) neighbour(.param .b32 v)
{ .reg .b32 %r<4>; ld.param.u32 %r1, [v]; shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;
sub.s32 %r3, %r2, %r1; st.param.b32 [r], %r3; ret; }
"""


def kernel(body: str, before: str = "") -> str:
    """Return a module whose kernel has the address `out` in %d1, the lane in %r1, and its word's in %d2."""
    return f"{HEAD}{before}\n.visible .entry k(.param .u64 out)\n{{\n{REGISTERS}{body}\nret;\n}}\n"


def words(
    *texts: str, lanes: int = 4, grid: int = 1, shared: int = 0, count: int = 0, **options: int
) -> list[int]:
    """Return the words that the kernel k writes, one for each lane."""
    machine = Machine(*texts, **options)
    out = machine.array(np.zeros(1024, np.uint32))
    machine.launch("k", grid, lanes, [out], shared)
    return machine.read(out, count or lanes, np.uint32).tolist()


def test_lanes_part_and_meet_again():
    """Each lane has its number of iterations, and all continue together after the loop."""
    body = """mov.u32 %r2, 0;
$loop: setp.ge.u32 %p1, %r2, %r1; @%p1 bra $end; add.u32 %r2, %r2, 1; bra $loop;
$end: st.shared.u32 [tile], %r1; ld.shared.u32 %r3, [tile]; mad.lo.u32 %r3, %r3, 256, %r2;
st.global.u32 [%d2], %r3;"""
    assert [0x700 + lane for lane in range(8)] == words(kernel(body, ".shared .u32 tile;"), lanes=8)


def test_a_predicate_holds_for_its_lanes_alone():
    """Lanes whose predicate is false keep their registers and store nothing."""
    body = """setp.lt.u32 %p1, %r1, 2; mov.u32 %r2, 5; @%p1 mov.u32 %r2, 7; @!%p1 st.global.u32 [%d2], %r2;"""
    assert [0, 0, 5, 5] == words(kernel(body))


def test_modules_are_linked_by_name():
    """Private names are a module's own, a strong definition precedes a weak one, and aliases are names."""
    callee = """.func (.param .b32 r) {name}()
{{ .reg .b32 %r; mov.u32 %r, {value}; st.param.b32 [r], %r; ret; }}
"""
    linked = ".weak " + callee.format(name="w", value=1) + callee.format(name="own", value=2)
    caller = ".extern .func (.param .b32 r) a();\n"
    other = ".visible " + callee.format(name="w", value=10) + callee.format(name="own", value=20)
    other += ".visible " + callee.format(name="b", value=100)
    other += ".visible .func (.param .b32 r) a();\n.alias a, b;\n"
    calls = "{ .param .b32 q; call (q), %s, (); ld.param.b32 %%r3, [q]; add.u32 %%r2, %%r2, %%r3; }"
    body = (
        "mov.u32 %r2, 0;" + "".join(calls % name for name in ("w", "own", "a")) + "st.global.u32 [%d2], %r2;"
    )
    assert [112] * 4 == words(kernel(body, linked + caller), HEAD + other)
    with pytest.raises(PtxError, match="two modules define w"):
        Machine(HEAD + other, HEAD + other)


def test_functions_call_themselves_and_are_called_by_address():
    """Each call has its own parameters and local variables."""
    before = """.visible .func (.param .b32 r) sum(.param .b32 n)
{ .reg .b32 %r<4>; .reg .b64 %d; .reg .pred %p; .local .align 4 .b8 kept[4];
ld.param.u32 %r1, [n]; st.local.u32 [kept], %r1; mov.u32 %r2, 0; setp.eq.u32 %p, %r1, 0; @%p bra $end;
{ .param .b32 m; .param .b32 q; sub.u32 %r3, %r1, 1; st.param.b32 [m], %r3; mov.u64 %d, sum;
call (q), %d, (m), $type; ld.param.u32 %r2, [q]; }
$type: .callprototype (.param .b32 _) _ (.param .b32 _);
ld.local.u32 %r1, [kept]; add.u32 %r2, %r2, %r1;
$end: st.param.b32 [r], %r2; ret; }"""
    body = (
        "{ .param .b32 n; .param .b32 q; st.param.b32 [n], %r1; call (q), sum, (n); ld.param.u32 %r2, [q]; }"
    )
    assert [0, 1, 3, 6] == words(kernel(body + "st.global.u32 [%d2], %r2;", before))


def test_variables_begin_as_they_are_declared():
    """Numbers, floats, strings of bytes and addresses of others, in global and constant memory."""
    before = """.global .align 4 .u32 n = 7; .const .align 4 .f32 c[2] = {0f3F800000, 0f40200000};
.global .align 1 .b8 text[3] = {1, 0x20, 255}; .global .u64 at = generic(text)+1;"""
    body = """ld.global.u32 %r2, [n]; ld.const.f32 %f1, [c+4]; cvt.rzi.u32.f32 %r3, %f1;
add.u32 %r2, %r2, %r3; ld.global.u64 %d3, [at]; ld.u8 %r4, [%d3]; add.u32 %r2, %r2, %r4;
ld.global.s8 %r5, [text+2]; add.u32 %r2, %r2, %r5; st.global.u32 [%d2], %r2;"""
    assert [7 + 2 + 32 - 1] * 4 == words(kernel(body, before))


def test_blocks_share_memory_and_wait_for_each_other():
    """Static and dynamic shared memory, with a barrier between; each block has its own."""
    before = ".shared .align 4 .b8 tile[16]; .extern .shared .align 16 .b8 more[];"
    body = """mov.u32 %r2, tile; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3; mov.u32 %r7, %ctaid.x;
mad.lo.u32 %r4, %r7, 100, %r1; st.shared.u32 [%r2], %r4; bar.sync 0;
mov.u32 %r2, tile; sub.u32 %r2, %r2, %r3; ld.shared.u32 %r4, [%r2+12];
mov.u32 %r5, more; add.u32 %r5, %r5, %r3; st.shared.u32 [%r5], %r4; bar.sync 0; ld.shared.u32 %r6, [more+4];
mul.wide.u32 %d3, %r7, 16; add.u64 %d2, %d2, %d3; add.u32 %r4, %r4, %r6; st.global.u32 [%d2], %r4;"""
    assert [5, 4, 3, 2, 205, 204, 203, 202] == words(kernel(body, before), grid=2, shared=16, count=8)


def test_generic_addresses_go_to_their_space():
    """An access without a space goes where `cvta` came from, also if it is another space in each lane."""
    body = """.local .align 4 .b8 own[4]; .shared .align 4 .b8 tile[4];
mov.u64 %d3, own; cvta.local.u64 %d3, %d3; mov.u64 %d4, tile; cvta.shared.u64 %d4, %d4;
and.b32 %r2, %r1, 1; setp.eq.u32 %p1, %r2, 0; selp.b64 %d5, %d3, %d4, %p1;
st.u32 [%d5], %r1; isspacep.shared %p2, %d5; ld.local.u32 %r3, [own]; ld.shared.u32 %r4, [tile];
selp.u32 %r5, %r4, %r3, %p2; st.u32 [%d2], %r5;"""
    assert [0, 3, 2, 3] == words(kernel(body))


def test_vectors_are_loaded_and_stored():
    """Elements lie one after the other, and _ takes none."""
    body = """.local .align 16 .b8 own[16]; st.local.v4.u32 [own], {1, %r1, 3, 0f3F800000};
ld.local.v2.u32 {_, %r2}, [own]; ld.local.v2.b16 {%h1, %h2}, [own+12]; mov.b32 %r3, {%h2, %h1};
add.u32 %r2, %r2, %r3; st.global.u32 [%d2], %r2;"""
    assert [0x3F80 + lane for lane in range(4)] == words(kernel(body))


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("shfl.sync.up.b32 %r2|%p1, %r1, 1, 0, 017;", [0, 0, 1, 2]),
        ("shfl.sync.down.b32 %r2|%p1, %r1, 1, 31, 15;", [1, 2, 3, None]),
        ("shfl.sync.bfly.b32 %r2, %r1, 3, 31, 15;", [3, 2, 1, 0]),
        ("shfl.sync.idx.b32 %r2, %r1, 1, 0x1e1f, 15;", [1, 1, 3, 3]),
        ("redux.sync.add.s32 %r2, %r1, 15;", [6] * 4),
        ("atom.global.add.u32 %r2, [%d1+64], 2;", [0, 2, 4, 6]),
        ("atom.global.cas.b32 %r2, [%d1+64], %r1, 9;", [0, 9, 9, 9]),
    ],
)
def test_lanes_speak_with_each_other(operation, expected):
    """Shuffles, votes, reductions and atomic operations have the results of the PTX ISA in each lane."""
    machine = Machine(kernel(f"{operation} st.global.u32 [%d2], %r2;"))
    out = machine.array(np.zeros(256, np.uint32))
    machine.launch("k", 1, 4, [out])
    known = machine.defined(out, 16).view(np.uint32) == 2**32 - 1
    values = machine.read(out, 4, np.uint32)
    assert expected == [int(value) if sure else None for value, sure in zip(values, known, strict=True)]


def test_a_shuffle_waits_for_its_lanes():
    """Lanes that come on two ways to one shuffle, guarded or in a callee, take it together."""
    call = """{ .param .b32 v; .param .b32 q; st.param.b32 [v], %r2; call (q), neighbour, (v);
ld.param.u32 %r3, [q]; }"""
    body = f"""mov.u32 %r2, %r1; and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 0; @%p1 bra $even;
mul.lo.u32 %r2, %r2, 10; $even: {call} st.global.u32 [%d2], %r3;"""
    assert [10, -10 % 2**32, 28, -28 % 2**32] == words(kernel(body, NEIGHBOUR), lanes=4)


def test_lanes_that_have_ended_are_not_waited_for():
    """A barrier, and an operation of a warp, are for those that are left."""
    body = """setp.eq.u32 %p1, %r1, 3; @%p1 ret; bar.sync 0; redux.sync.add.u32 %r2, %r1, -1;
st.global.u32 [%d2], %r2;"""
    assert [3, 3, 3, 0] == words(kernel(body))


PARTLY = ".local .align 4 .b8 own[4]; st.local.u8 [own+1], 5; "


@pytest.mark.parametrize(
    ("body", "known"),
    [
        ("ld.local.u32 %r2, [own];", 0x0000FF00),
        ("ld.local.u32 %r2, [own]; and.b32 %r2, %r2, 0xFFF;", 0xFFFFFF00),
        ("ld.local.u32 %r2, [own]; or.b32 %r2, %r2, 0xFF;", 0x0000FFFF),
        ("ld.local.u32 %r2, [own]; shr.u32 %r2, %r2, 8;", 0xFF0000FF),
        ("ld.local.u32 %r2, [own]; shr.s32 %r2, %r2, 8;", 0x000000FF),
        ("ld.local.u32 %r2, [own]; bfe.u32 %r2, %r2, 8, 8;", 0xFFFFFFFF),
        ("ld.local.u32 %r2, [own]; prmt.b32 %r2, %r2, 0, 0x4441;", 0xFFFFFFFF),
        ("ld.local.u32 %r2, [own]; mov.b32 {%h1, %h2}, %r2; mov.b32 %r2, {%h2, %h1};", 0xFF000000),
        ("ld.local.u16 %h1, [own]; add.u16 %h1, %h1, 0; cvt.u32.u16 %r2, %h1;", 0xFFFF0000),
        (
            "ld.local.u16 %h1, [own]; shr.u16 %h1, %h1, 8; add.u16 %h1, %h1, 1; cvt.u32.u16 %r2, %h1;",
            0xFFFFFFFF,
        ),
        ("ld.local.s8 %r2, [own+2];", 0),
        ("ld.local.u8 %r2, [own+2];", 0xFFFFFF00),
        ("ld.local.u32 %r2, [own]; mul.lo.u32 %r2, %r2, 256;", 0),
        ("ld.local.u8 %r3, [own]; setp.eq.u32 %p1, %r1, 9; selp.u32 %r2, %r3, 4, %p1;", 0xFFFFFFFF),
        ("and.b32 %r2, %r3, 0xF0;", 0xFFFFFF0F),
    ],
)
@pytest.mark.parametrize("fill", [0, 255])
def test_undefined_bits_are_followed(body, known, fill):
    """Bits that nothing stored stay undefined through registers and memory; their value is the fill's."""
    machine = Machine(kernel(f"{PARTLY}{body} st.global.u32 [%d2], %r2;"), fill=fill)
    out = machine.array(np.zeros(64, np.uint32))
    machine.launch("k", 1, 2, [out])
    assert [known] * 2 == machine.defined(out, 8).view(np.uint32).tolist()
    other = Machine(kernel(f"{PARTLY}{body} st.global.u32 [%d2], %r2;"), fill=255 - fill)
    assert out == other.array(np.zeros(64, np.uint32))
    other.launch("k", 1, 2, [out])
    first, second = (filled.read(out, 1, np.uint32)[0] for filled in (machine, other))
    assert first & known == second & known
    assert first != second or known == 2**32 - 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("st.global.u32 [%d1+4096], 1;", "an access to 4 bytes that are no variable's at global"),
        ("ld.global.u32 %r2, [%d1+2];", "a misaligned access to 4 bytes at global"),
        ("ld.global.v2.u32 {%r2, %r3}, [%d1+4];", "a misaligned access to 8 bytes"),
        (".local .b8 own[4]; mov.u64 %d3, own; ld.local.u8 %r2, [%d3+4];", "no variable's at local"),
        ("mov.u64 %d3, 0; ld.u8 %r2, [%d3];", "no variable's at global 0x0 by lane 0"),
        ("mov.u64 %d3, -1; ld.u8 %r2, [%d3];", "no memory at 0xffffffffffffffff"),
        (
            ".local .b8 own[4]; mov.u64 %d3, own; cvta.local.u64 %d3, %d3; ld.global.u8 %r2, [%d3];",
            "no memory at",
        ),
        (
            ".local .b8 own[4]; mov.u64 %d3, own; cvta.local.u64 %d3, %d3; ld.local.u8 %r2, [%d3];",
            "no memory at",
        ),
        ("ld.global.u32 %r2, [%d5];", "an address is undefined"),
        ("@%p1 bra $end; $end:", "a predicate is undefined"),
        ("redux.sync.add.u32 %r2, %r3, -1;", "an operand is undefined"),
        ("trap;", "a trap: trap"),
        ("call missing, ();", "no function missing"),
        ("bra $missing;", "no label"),
        ("ld.global.u32 %r2, [missing];", "no variable missing"),
        ("mov.u32 %r2, %missing;", "no register %missing"),
        ("$again: bra $again;", "executes more than 1000 instructions"),
        ("setp.eq.u32 %p1, %r1, 0; @%p1 bar.sync 1; @!%p1 bar.sync 2;", "lanes wait for others"),
        ("setp.eq.u32 %p1, %r1, 0; @%p1 shfl.sync.idx.b32 %r2, %r1, 0, 31, 14;", "a lane is not in the mask"),
        (
            (
                "setp.eq.u32 %p1, %r1, 0; @%p1 bra $on; bar.sync 0; bra $end; $on: mov.u32 %r3, -1;"
                "shfl.sync.idx.b32 %r2, %r1, 0, 31, %r3; $end:"
            ),
            "lanes wait for others",
        ),
        ("add.u32 %r2, %h1, 1;", "a register of type b16 for u32"),
        ("addc.u32 %r2, %r1, 1;", "not supported: addc.u32 %r2, %r1, 1"),
        ("add.cc.u32 %r2, %r1, 1;", "not supported: add.cc.u32 %r2, %r1, 1"),
        ("wgmma.fence.sync.aligned;", "not supported: wgmma.fence.sync.aligned"),
        ("add.rm.f32 %f1, %f1, %f1;", "not supported: add.rm.f32 %f1, %f1, %f1"),
        ("{ .param .b32 s; .param .b32 q; call (q), first, (s); }", "first is called with other parameters"),
    ],
)
def test_what_is_wrong_is_an_error_that_says_where(body, message):
    """Nothing that PTX leaves open, or that the machine does not know, goes on silently."""
    first = FIRST + "mov.u32 %r1, 1; st.param.b32 [r], %r1; ret; }"
    with pytest.raises(PtxError, match=message.replace("(", r"\(")):
        words(kernel(body, first), limit=1000)


def test_local_memory_ends_with_its_call():
    """A pointer to a variable of a function that has returned is no variable's."""
    before = """.func (.param .b64 r) leak() { .reg .b64 %d<2>; .local .b8 own[4];
mov.u64 %d1, own; cvta.local.u64 %d1, %d1; st.param.b64 [r], %d1; ret; }"""
    body = "{ .param .b64 q; call (q), leak, (); ld.param.u64 %d3, [q]; } ld.u8 %r2, [%d3];"
    with pytest.raises(PtxError, match="no variable's at local"):
        words(kernel(body, before))


@pytest.mark.parametrize("lanes", [1, 33, 1024])
def test_kernels_of_any_number_of_lanes(lanes):
    """The last warp may have fewer lanes; lanes are numbered through three dimensions as in the PTX ISA."""
    body = """mov.u32 %r2, %tid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.y; mad.lo.u32 %r2, %r4, %r3, %r2;
mul.wide.u32 %d2, %r2, 4; add.u64 %d2, %d1, %d2; mov.u32 %r5, 1; redux.sync.add.u32 %r5, %r5, -1;
mad.lo.u32 %r5, %r2, 100, %r5; st.global.u32 [%d2], %r5;"""
    sizes = [min(32, lanes - lane // 32 * 32) for lane in range(lanes)]
    assert [100 * lane + size for lane, size in enumerate(sizes)] == words(
        kernel(body), lanes=(1, lanes), count=lanes
    )
