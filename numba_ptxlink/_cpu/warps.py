"""Operations of several lanes: each gives the others a value, waits, and reads what all gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .builder import PRED, U32, Unknown
from .layout import LANE, State, lane_offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Word
    from .code import Code


# In the order in which `ptxlink.reduce` has them.
_REDUCED = ("add", "and", "or", "xor", "smin", "smax", "umin", "umax")
_VOTES = {
    "all": "result = icmp eq i32 {found}, {together}",
    "any": "result = icmp ne i32 {found}, 0",
    "uni": """
        none = icmp eq i32 {found}, 0
        every = icmp eq i32 {found}, {together}
        result = or i1 {none}, {every}
    """,
}
# The segment of a warp that a lane is in, and the last lane of it that may be read.
_LAST = """
    upper = lshr i32 {bounds}, 8
    segment = and i32 {upper}, 31
    within = xor i32 {segment}, 31
    begin = and i32 {lane}, {segment}
    clamp = and i32 {bounds}, {within}
    end = and i32 {clamp}, 31
    last = or i32 {begin}, {end}
"""
# The lane that is read.
_SOURCES = {
    "idx": """
        upper = lshr i32 {bounds}, 8
        segment = and i32 {upper}, 31
        within = xor i32 {segment}, 31
        begin = and i32 {lane}, {segment}
        place = and i32 {number}, {within}
        source = or i32 {begin}, {place}
    """,
    "up": """
        distance = and i32 {number}, 31
        source = sub i32 {lane}, {distance}
    """,
    "down": """
        distance = and i32 {number}, 31
        source = add i32 {lane}, {distance}
    """,
    "bfly": """
        distance = and i32 {number}, 31
        source = xor i32 {lane}, {distance}
    """,
}


def exchange(b: Code, value: str, members: str) -> tuple[str, str]:
    """Wait for the lanes of a mask; return those that came, and a pointer to the first of the warp."""
    b.suspend(State.WARP, key=members, value=value)
    return gathered(b)


def gathered(b: Code) -> tuple[str, str]:
    """Return the lanes that go on together, and a pointer to the record of the first of the warp."""
    together = b.load("i32", "%lane", lane_offset("together"))
    back = b.op("mul", "i32", b.lane(), -LANE)
    return together, b.let(f"getelementptr i8, ptr %lane, i32 {back}")


def ballot(b: Code, together: str, first: str, value: str) -> str:
    """Return the lanes that gave a value."""
    return b.let(f"call i32 @ptxlink.ballot(ptr {first}, i32 {together}, i64 {value})")


def vote(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`vote`."""
    if "sync" not in word.flags:
        raise Unknown
    together, first = exchange(b, b.vote(operands[1]), b.unsigned(operands[-1]))
    found = b.op("xor", "i32", together, ballot(b, together, first, "0"))
    if word.flags[-1] == "ballot":
        b.put(operands[0], found, U32)
    else:
        b.put(operands[0], b.ir(_VOTES[word.flags[-1]], found=found, together=together), PRED)


def shuffle(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`shfl`."""
    if "sync" not in word.flags:
        raise Unknown
    target, _, told = (each.strip() for each in operands[0].partition("|"))
    value = b.resize(b.unsigned(operands[1]), "i32", "i64")
    number, bounds = b.unsigned(operands[2]), b.unsigned(operands[3])
    _, first = exchange(b, value, b.unsigned(operands[4]))
    lane, how = b.lane(), word.flags[-1]
    last = b.ir(_LAST, lane=lane, bounds=bounds)
    source = b.ir(_SOURCES[how], lane=lane, number=number, bounds=bounds)
    inside = b.op(f"icmp {'sge' if how == 'up' else 'sle'}", "i32", source, last)
    source = b.select(inside, "i32", source, lane)
    record = b.let(f"getelementptr [{LANE} x i8], ptr {first}, i32 {source}")
    b.put(target, b.load("i32", record, lane_offset("seen")), U32)
    if told:
        b.put(told, inside, PRED)


def match(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`match`."""
    target, _, told = (each.strip() for each in operands[0].partition("|"))
    value = b.resize(b.bits(operands[1], word.kind.bits), word.kind.raw, "i64")
    together, first = exchange(b, value, b.unsigned(operands[2]))
    found = ballot(b, together, first, value)
    if "any" in word.flags:
        b.put(target, found, U32)
        return
    every = b.op("icmp eq", "i32", found, together)
    b.put(target, b.select(every, "i32", together, "0"), U32)
    if told:
        b.put(told, every, PRED)


def reduce(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`redux`."""
    kind, how = word.kind, word.flags[-1]
    if kind.floating:
        raise Unknown
    value = b.resize(b.unsigned(operands[1]), "i32", "i64")
    together, first = exchange(b, value, b.unsigned(operands[2]))
    name = f"{'s' if kind.signed else 'u'}{how}" if how in ("min", "max") else how
    number = _REDUCED.index(name)
    reduced = b.let(f"call i32 @ptxlink.reduce(ptr {first}, i32 {together}, i32 {number})")
    b.put(operands[0], reduced, U32)


def converged(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`activemask`: the lanes that come here before any of the warp can do something else."""
    b.suspend(State.CONVERGED)
    b.put(operands[0], gathered(b)[0], U32)


def barrier(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`bar` and `barrier`, of warps and of blocks, with a reduction or without."""
    flags = [flag for flag in word.flags if flag not in ("cta", "aligned")]
    if flags == ["warp", "sync"]:
        exchange(b, "0", b.unsigned(operands[0]))
        return
    if not flags or flags[0] not in ("sync", "red"):
        raise Unknown
    reduces = flags[0] == "red"
    given = list(operands[1:] if reduces else operands)
    value = b.vote(given.pop()) if reduces else "0"
    number, count = b.unsigned(given[0]), b.unsigned(given[1]) if len(given) > 1 else "0"
    b.suspend(State.BARRIER, key=number, count=count, value=value)
    if not reduces:
        return
    hits = b.resize(b.load("i64", "%lane", lane_offset("seen")), "i64", "i32")
    if flags[1] == "popc":
        b.put(operands[0], hits, U32)
        return
    other = b.load("i32", "%lane", lane_offset("together")) if flags[1] == "and" else "0"
    b.put(operands[0], b.op(f"icmp {'eq' if flags[1] == 'and' else 'ne'}", "i32", hits, other), PRED)


WARPS = {
    "vote": vote,
    "shfl": shuffle,
    "match": match,
    "redux": reduce,
    "activemask": converged,
    **dict.fromkeys(("bar", "barrier"), barrier),
}
