"""Operations of several lanes: each gives the others a value, waits, and reads what all gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .builder import PRED, U32, U64, Unknown
from .layout import LANE, State, lane_offset
from .memory import pointer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Word
    from .code import Code


_COUNTING = frozenset(
    ("shared", "shared::cta", "parity", "acquire", "release", "relaxed", "cta", "cluster", "noComplete")
)

# What `ptxlink.reduce` calls each, and what it begins with.
_REDUCED = {
    "add": (0, 0),
    "and": (1, -1),
    "or": (2, 0),
    "xor": (3, 0),
    "smin": (4, (1 << 31) - 1),
    "smax": (5, -(1 << 31)),
    "umin": (6, -1),
    "umax": (7, 0),
}


def exchange(b: Code, value: str, members: str) -> tuple[str, str]:
    """Wait for the lanes of a mask; return those that came, and a pointer to the first of the warp."""
    b.suspend(State.WARP, key=("i32", members), value=("i64", value))
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
    how = word.flags[-1]
    if how == "ballot":
        b.put(operands[0], found, U32)
        return
    none = b.op("icmp eq", "i32", found, 0)
    every = b.op("icmp eq", "i32", found, together)
    result = {"all": every, "any": b.op("xor", "i1", none, "true"), "uni": b.op("or", "i1", none, every)}[how]
    b.put(operands[0], result, PRED)


def shuffle(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`shfl`."""
    if "sync" not in word.flags:
        raise Unknown
    target, _, told = (each.strip() for each in operands[0].partition("|"))
    value = b.resize(b.unsigned(operands[1]), "i32", "i64")
    number, bounds = b.unsigned(operands[2]), b.unsigned(operands[3])
    _, first = exchange(b, value, b.unsigned(operands[4]))
    lane, how = b.lane(), word.flags[-1]
    number = b.op("and", "i32", number, 31)
    segment = b.op("and", "i32", b.op("lshr", "i32", bounds, 8), 31)
    within = b.op("xor", "i32", segment, 31)
    begin = b.op("and", "i32", lane, segment)
    last = b.op("or", "i32", begin, b.op("and", "i32", b.op("and", "i32", bounds, 31), within))
    if how == "idx":
        source = b.op("or", "i32", begin, b.op("and", "i32", number, within))
    else:
        source = b.op({"up": "sub", "down": "add", "bfly": "xor"}[how], "i32", lane, number)
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
    number, start = _REDUCED[name]
    b.put(
        operands[0],
        b.let(f"call i32 @ptxlink.reduce(ptr {first}, i32 {together}, i32 {start}, i32 {number})"),
        U32,
    )


def converged(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`activemask`: the lanes that come here before any of the warp can do something else."""
    b.suspend(State.CONVERGED)
    b.put(operands[0], gathered(b)[0], U32)


def elect(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`elect`: the lowest of the lanes."""
    target, _, told = (each.strip() for each in operands[0].partition("|"))
    together, _ = exchange(b, "0", b.unsigned(operands[1]))
    lowest = b.call("llvm.cttz.i32", "i32", f"i32 {together}", "i1 false")
    b.put(target, lowest, U32)
    b.put(told, b.op("icmp eq", "i32", lowest, b.lane()), PRED)


def barrier(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`bar` and `barrier`, of warps and of blocks, with a reduction or without."""
    flags = [flag for flag in word.flags if flag not in ("cta", "aligned")]
    if flags == ["warp", "sync"]:
        exchange(b, "0", b.unsigned(operands[0]))
        return
    if flags[:1] == ["cluster"]:
        # A cluster is one block.
        if "arrive" not in flags:
            b.suspend(State.BARRIER, key=("i32", "16"), count=("i32", "0"), value=("i64", "0"))
        return
    if not flags or flags[0] not in ("sync", "red"):
        raise Unknown
    reduces = flags[0] == "red"
    given = list(operands[1:] if reduces else operands)
    value = b.vote(given.pop()) if reduces else "0"
    number, count = b.unsigned(given[0]), b.unsigned(given[1]) if len(given) > 1 else "0"
    b.suspend(State.BARRIER, key=("i32", number), count=("i32", count), value=("i64", value))
    if not reduces:
        return
    hits = b.resize(b.load("i64", "%lane", lane_offset("seen")), "i64", "i32")
    if flags[1] == "popc":
        b.put(operands[0], hits, U32)
        return
    other = b.load("i32", "%lane", lane_offset("together")) if flags[1] == "and" else "0"
    b.put(operands[0], b.op(f"icmp {'eq' if flags[1] == 'and' else 'ne'}", "i32", hits, other), PRED)


def counted(b: Code, word: Word, operands: Sequence[str]) -> None:
    """
    `mbarrier`: a word of shared memory with how many lanes are expected, how many are missing, and the phase.

    The lanes of a block execute one after the other, so nobody comes between a load and a store.
    """
    what, *flags = word.flags
    if (
        what not in ("init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait")
        or set(flags) - _COUNTING
    ):
        raise Unknown
    place, *rest = operands if what in ("init", "inval") else operands[1:]
    at = pointer(b, place, "shared" if {"shared", "shared::cta"} & set(flags) else "", 8, write=True)
    if what in ("test_wait", "try_wait"):
        # The lane that asks gives way, so that the others can come.
        b.suspend(State.YIELDED)
        given = b.unsigned(rest[0]) if "parity" in flags else b.resize(b.bits(rest[0], 64), "i64", "i32")
        now = b.resize(b.let(f"load volatile i64, ptr {at}"), "i64", "i32")
        changed = b.op("and", "i32", b.op("xor", "i32", now, given), 1)
        b.put(operands[0], b.op("icmp ne", "i32", changed, 0), PRED)
        return
    state = b.let(f"load i64, ptr {at}")
    count = b.resize(b.unsigned(rest[0]) if rest else "1", "i32", "i64")
    if what in ("init", "inval"):
        expected = missing = count
        phase = "0"
    else:
        expected = b.op("lshr", "i64", state, 32)
        if what == "arrive_drop":
            expected = b.op("sub", "i64", expected, count)
        missing = b.op("and", "i64", b.op("lshr", "i64", state, 1), (1 << 31) - 1)
        missing = b.op("sub", "i64", missing, count)
        ended = b.op("icmp eq", "i64", missing, 0)
        missing = b.select(ended, "i64", expected, missing)
        phase = b.op("xor", "i64", b.op("and", "i64", state, 1), b.resize(ended, "i1", "i64"))
        b.put(operands[0], state, U64)
    counts = b.op("or", "i64", b.op("shl", "i64", expected, 32), b.op("shl", "i64", missing, 1))
    b.do(f"store i64 {b.op('or', 'i64', counts, phase)}, ptr {at}")


WARPS = {
    "vote": vote,
    "shfl": shuffle,
    "match": match,
    "redux": reduce,
    "activemask": converged,
    "elect": elect,
    "mbarrier": counted,
    **dict.fromkeys(("bar", "barrier"), barrier),
}
