"""Operations of several lanes: each gives the others a value, waits, and reads what all gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .function_text import Unknown
from .runtime import LANE, State, lane_offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .function_text import Word
    from .translator import Translator

# In the order in which `ptxlink.reduce` has them.
_REDUCED = ("add", "and", "or", "xor", "smin", "smax", "umin", "umax")


def _exchange(b: Translator, value: str, members: str) -> tuple[str, str]:
    """Wait for the lanes of a mask; return those that came, and a pointer to the first of the warp."""
    b.suspend(State.WARP, key=b.bits(members, 32), value=value)
    back = b.op("mul", "i32", b.entry("%laneid"), -LANE)
    return _together(b), b.let(f"getelementptr i8, ptr %lane, i32 {back}")


def _together(b: Translator) -> str:
    """Return the lanes that go on together, or how many came to a barrier."""
    return b.load("i32", "%lane", lane_offset("together"))


def _ballot(b: Translator, together: str, first: str, value: str) -> str:
    """Return the lanes that gave a value."""
    return b.call("ptxlink.ballot", "i32", f"ptr {first}", f"i32 {together}", f"i64 {value}")


def _wide(b: Translator, operand: str, bits: int) -> str:
    """Return an operand as an integer of 64 bits."""
    return b.resize(b.bits(operand, bits), bits, 64)


def vote(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`vote`."""
    if "sync" not in word.flags:
        raise Unknown
    together, first = _exchange(b, _wide(b, operands[1], 1), operands[-1])
    found = b.op("xor", "i32", together, _ballot(b, together, first, "0"))
    b.put_entry(operands[0], f"vote.{word.flags[-1]}", found=found, together=together)


def shuffle(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`shfl`."""
    if "sync" not in word.flags:
        raise Unknown
    target, _, told = (each.strip() for each in operands[0].partition("|"))
    number, bounds = b.bits(operands[2], 32), b.bits(operands[3], 32)
    _, first = _exchange(b, _wide(b, operands[1], 32), operands[4])
    lane, how = b.entry("%laneid"), word.flags[-1]
    last = b.entry("shfl.last", lane=lane, bounds=bounds)
    source = b.entry(f"shfl.{how}", lane=lane, number=number, bounds=bounds)
    inside = b.op(f"icmp {'sge' if how == 'up' else 'sle'}", "i32", source, last)
    source = b.select(inside, "i32", source, lane)
    record = b.let(f"getelementptr [{LANE} x i8], ptr {first}, i32 {source}")
    b.put(target, b.load("i32", record, lane_offset("seen")), 32)
    if told:
        b.put(told, inside, 1)


def match(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`match`."""
    target, _, told = (each.strip() for each in operands[0].partition("|"))
    value = _wide(b, operands[1], word.type.bits)
    together, first = _exchange(b, value, operands[2])
    found = _ballot(b, together, first, value)
    if "any" in word.flags:
        b.put(target, found, 32)
        return
    every = b.op("icmp eq", "i32", found, together)
    b.put(target, b.select(every, "i32", together, "0"), 32)
    if told:
        b.put(told, every, 1)


def reduce(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`redux`."""
    how = word.flags[-1]
    if word.type.floating:
        raise Unknown
    together, first = _exchange(b, _wide(b, operands[1], 32), operands[2])
    name = f"{'s' if word.type.signed else 'u'}{how}" if how in ("min", "max") else how
    given = f"ptr {first}", f"i32 {together}", f"i32 {_REDUCED.index(name)}"
    b.put(operands[0], b.call("ptxlink.reduce", "i32", *given), 32)


def converged(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`activemask`: the lanes that come here before any of the warp can do something else."""
    b.suspend(State.CONVERGED)
    b.put(operands[0], _together(b), 32)


def barrier(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`bar` and `barrier`, of warps and of blocks, with a reduction or without."""
    how, *rest = [flag for flag in word.flags if flag not in ("cta", "aligned")]
    if [how, *rest] == ["warp", "sync"]:
        _exchange(b, "0", operands[0])
        return
    if how not in ("sync", "red"):
        raise Unknown
    given = list(operands[1:] if how == "red" else operands)
    value = _wide(b, given.pop(), 1) if how == "red" else "0"
    count = b.bits(given[1], 32) if len(given) > 1 else "0"
    b.suspend(State.BARRIER, key=b.bits(given[0], 32), count=count, value=value)
    if how == "sync":
        return
    hits = b.load("i32", "%lane", lane_offset("seen"))
    b.put_entry(operands[0], f"bar.{rest[0]}", found=hits, together=_together(b))


WARPS = {
    "vote": vote,
    "shfl": shuffle,
    "match": match,
    "redux": reduce,
    "activemask": converged,
    **dict.fromkeys(("bar", "barrier"), barrier),
}
