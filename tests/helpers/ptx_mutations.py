"""Pairs of PTX modules that link, and what random damage makes of their text."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from cxx_pairs import Program
from linkcases import HEAD, KERNEL, function

from numba_ptxlink._arch import Arch
from numba_ptxlink._tools import nvrtc

if TYPE_CHECKING:
    import random

ARCH = "sm_90"
_TOKEN = re.compile(r"//[^\n]*|[%$_A-Za-z][\w$]*|\.[A-Za-z_]\w*|\d[\w.]*|\s+|\S")
_NAME = re.compile(r"[%$_A-Za-z][\w$]*")
_NUMBERS = (
    "0",
    "1",
    "-1",
    "7",
    "4294967296",
    "18446744073709551616",
    "0x",
    "1e400",
    "0f3F80",
    "9" * 40,
    "9" * 5000,
)
_WORDS = (".u8", ".b64", ".f32", ".v4", ".param", ".local", ".shared", ".pred", ".weak", ".extern", ".func")
_ODD = ("\0", "\r", "\u20ac", '"', "/*", "*/", "//", "\\", ";", ",", "@", "<", ">", "#line 3\n")

_STATE = (
    HEAD.format(target="sm_80")
    + """\
.extern .global .align 4 .b32 state[4];
.global .align 8 .u64 place = generic(state);
.common .global .align 4 .b32 zeros[8];
.extern .shared .align 16 .b8 dynamic[];
.const .align 4 .b32 weights[2] = {1, 2};
.weak .func (.param .b32 r) g(.param .align 8 .b8 s[16])
{
    .reg .b32 %r<3>; .reg .b64 %d<2>; .reg .pred %p;
    ld.param.v2.u32 {%r1, %r2}, [s+8];
    setp.eq.s32 %p, %r1, 0;
    @%p bra $skip;
    ld.const.u32 %r2, [weights+4];
$skip:
    st.param.b32 [r], %r2;
    ret;
}
.visible .func (.param .b32 r) f(.param .b32 a)
{
    .reg .b32 %r<4>; .reg .b64 %d<3>; .reg .pred %p;
    ld.param.u32 %r1, [a];
    setp.lt.s32 %p, %r1, 0;
    { .param .align 8 .b8 s[16]; .param .b32 q;
    mov.u64 %d1, place;
    st.param.b64 [s], %d1;
    st.param.v2.b32 [s+8], {%r1, 5};
    @%p call.uni (q), g, (s);
    ld.param.u32 %r2, [q]; }
    mov.u32 %r3, 0;
    ld.shared.u32 %r3, [dynamic];
    add.s32 %r2, %r2, %r3;
    st.param.b32 [r], %r2;
    ret;
}
"""
)
_CALLER = (
    KERNEL
    + """\
.visible .global .align 4 .b32 state[4] = {1, 2, 3, 4};
.common .global .align 4 .b32 zeros[8];
.global .align 4 .b32 table[2] = {0, 1};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 r) g(.param .align 8 .b8 s[16])
{
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [s+12];
    st.param.b32 [r], %r1;
    ret;
}
"""
)

_DEPOT_CALLER = (
    HEAD.format(target="sm_80")
    + """\
.extern .func (.param .b32 r) f(.param .align 8 .b8 s[24]);
.visible .entry k(.param .u64 p)
{
    .local .align 8 .b8 depot[32];
    .reg .b64 %SP, %SPL, %d<5>; .reg .b32 %r<5>; .reg .pred %p;
    mov.u64 %SPL, depot;
    cvta.local.u64 %SP, %SPL;
    ld.param.u64 %d1, [p];
    ld.global.u32 %r1, [%d1];
    setp.eq.s32 %p, %r1, 0;
    add.u64 %d2, %SP, 8;
    st.local.u64 [%SPL], %d1;
    st.v2.u32 [%d2], {%r1, 5};
    @%p st.u8 [%SP+3], %r1;
    st.local.u64 [%SPL+16], 7;
$again:
    { .param .align 8 .b8 s[24]; .param .b32 q;
    ld.u64 %d3, [%SP];
    st.param.b64 [s], %d3;
    ld.local.v2.u64 {%d3, %d4}, [depot+16];
    st.param.b64 [s+16], %d3;
    ld.u32 %r2, [%d2];
    st.param.v2.b32 [s+8], {%r2, 3};
    call.uni (q), f, (s);
    ld.param.u32 %r3, [q]; }
    st.u32 [%SP+24], %r3;
    add.s32 %r1, %r1, 1;
    setp.lt.s32 %p, %r1, 2;
    @%p bra $again;
    ld.local.u16 %r4, [%SPL+24];
    st.global.u32 [%d1], %r4;
    ret;
}
"""
)
_DEPOT_CALLEE = (
    HEAD.format(target="sm_80")
    + """\
.visible .func (.param .b32 r) f(.param .align 8 .b8 s[24])
{
    .reg .b64 %d<4>; .reg .b32 %r<4>;
    mov.b64 %d1, s;
    cvta.local.u64 %d2, %d1;
    cvta.to.local.u64 %d3, %d2;
    ld.local.u8 %r1, [%d3+3];
    ld.param.u32 %r2, [s+8];
    ld.u32 %r3, [%d2+16];
    add.s32 %r1, %r1, %r2;
    add.s32 %r1, %r1, %r3;
    st.param.b32 [r], %r1;
    ret;
}
"""
)


@functools.cache
def pairs(compiled: int) -> tuple[tuple[str, str], ...]:
    """Return pairs of modules that link: some that show rare parts of PTX, and *compiled* ones of NVRTC."""
    sources = map(Program, range(compiled))
    units = tuple((_compiled(program.caller), _compiled(program.callee)) for program in sources)
    return ((KERNEL, function()), (_CALLER, _STATE), (KERNEL, _STATE), (_DEPOT_CALLER, _DEPOT_CALLEE), *units)


def _compiled(source: str) -> str:
    code = nvrtc.compile_source(source, "unit.cu", Arch.of(ARCH), output="ptx").code
    return code.rstrip(b"\0").decode()


def mutated(pair: tuple[str, str], choice: random.Random) -> tuple[str, str]:
    """Return *pair* with one to four kinds of damage in one of its modules or in both."""
    texts = list(pair)
    for _ in range(choice.choice((1, 1, 1, 2, 4))):
        place = choice.randrange(2)
        if texts[place]:
            texts[place] = choice.choice(_DAMAGES)(texts[place], texts[1 - place], choice)
    return texts[0], texts[1]


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _some(tokens: list[str], pattern: str, choice: random.Random) -> int:
    """Return the index of a token that matches, or of any where none does."""
    matching = [number for number, token in enumerate(tokens) if re.match(pattern, token)]
    return choice.choice(matching or range(len(tokens)))


def _drop(text: str, _: str, choice: random.Random) -> str:
    tokens = _tokens(text)
    del tokens[_some(tokens, r"\S", choice)]
    return "".join(tokens)


def _repeat(text: str, _: str, choice: random.Random) -> str:
    tokens = _tokens(text)
    at = _some(tokens, r"\S", choice)
    tokens[at:at] = [tokens[at], " "] * choice.choice((1, 1, 1, 2, 3000))
    return "".join(tokens)


def _exchange(text: str, _: str, choice: random.Random) -> str:
    tokens = _tokens(text)
    one, two = (_some(tokens, r"[^\s]", choice) for _ in "12")
    tokens[one], tokens[two] = tokens[two], tokens[one]
    return "".join(tokens)


def _renumber(text: str, _: str, choice: random.Random) -> str:
    tokens = _tokens(text)
    tokens[_some(tokens, r"\d", choice)] = choice.choice(_NUMBERS)
    return "".join(tokens)


def _rename(text: str, other: str, choice: random.Random) -> str:
    tokens = _tokens(text)
    names = _NAME.findall(choice.choice((text, text, other)))
    tokens[_some(tokens, _NAME.pattern, choice)] = choice.choice(names or [""])
    return "".join(tokens)


def _reword(text: str, _: str, choice: random.Random) -> str:
    tokens = _tokens(text)
    tokens[_some(tokens, r"\.[a-z]", choice)] = choice.choice(_WORDS)
    return "".join(tokens)


def _insert(text: str, _: str, choice: random.Random) -> str:
    at = choice.randrange(len(text) + 1)
    return text[:at] + choice.choice(_ODD) + text[at:]


def _truncate(text: str, _: str, choice: random.Random) -> str:
    at = choice.randrange(len(text) + 1)
    return choice.choice((text[:at], text[at:]))


def _splice(text: str, other: str, choice: random.Random) -> str:
    lines, others = text.splitlines(keepends=True), other.splitlines(keepends=True)
    at, begin = choice.randrange(len(lines) + 1), choice.randrange(len(others) + 1)
    return "".join((*lines[:at], *others[begin : begin + choice.choice((1, 5, 10**6))], *lines[at:]))


def _move(text: str, _: str, choice: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    if lines:
        line = lines.pop(choice.randrange(len(lines)))
        lines.insert(choice.randrange(len(lines) + 1), line)
    return "".join(lines)


def _drop_line(text: str, _: str, choice: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    del lines[choice.randrange(len(lines))]
    return "".join(lines)


def _repeat_line(text: str, _: str, choice: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    at = choice.randrange(len(lines))
    lines.insert(choice.choice((at, choice.randrange(len(lines)))), lines[at])
    return "".join(lines)


def _swap_parts(text: str, _: str, choice: random.Random) -> str:
    """Exchange two items of the module, such as declarations and definitions."""
    parts = re.split(r"(?m)(?<=[;}])\n(?=\.)", text)
    one, two = choice.randrange(len(parts)), choice.randrange(len(parts))
    parts[one], parts[two] = parts[two], parts[one]
    return "\n".join(parts)


def _brace(text: str, _: str, choice: random.Random) -> str:
    at = choice.randrange(len(text) + 1)
    return text[:at] + choice.choice("{}()[]") * choice.choice((1, 1, 1, 2, 5000)) + text[at:]


# What often leaves text that can be read is drawn more often.
_DAMAGES = (
    _drop, _repeat, _exchange, _reword, _insert, _truncate, _splice, _brace, *2 * (_move, _reword),
    *3 * (_drop_line, _repeat_line, _swap_parts), *4 * (_rename, _renumber),
)  # fmt: skip
