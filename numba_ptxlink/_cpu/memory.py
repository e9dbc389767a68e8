"""Loads, stores and atomic operations, each compared with what the launch may access."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import arithmetic
from .function_text import THEIRS, Unknown
from .runtime import SHARED_START, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .function_text import Word
    from .translator import Translator

_SPACES = ("global", "shared", "local", "param", "const")
_ORDERED = {"acquire", "release", "relaxed", "volatile"}
# Modifiers that are known; most change when and how memory is reached, and not what is read or written.
_KNOWN = re.compile(
    r"(global|shared|local|param|const)(::\w+)?|acquire|release|relaxed|volatile|weak|mmio|sys|gpu|cta|cluster"
    r"|nc|c[agsv]|lu|w[bt]|noftz|unified|entry|func|v[248]|L[12].*"
)
_ATOMIC = {
    "add": "add",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
}


def _space_of(word: Word) -> str:
    """Return the state space that an opcode names, "" for a generic address."""
    found = (flag.partition("::")[0] for flag in word.flags)
    return next((each for each in found if each in _SPACES), "")


def _pointer(b: Translator, operand: str, space: str, size: int, *, write: bool = False) -> str:
    """Return a pointer to *size* bytes, after a check that they may be read or written."""
    found = ptx.address(operand)
    if found is None:
        raise Unknown
    base, offset = found
    storage = b.storage(base)
    if storage:
        if not 0 <= offset <= storage.size - size:
            b.fault(Fault.ACCESS, str(offset % (1 << 64)), size)
            b.label(b.fresh())
        return b.at(storage.pointer, offset)
    _, width = b.register(base) or ("", 64)
    value = b.resize(b.bits(base, width), width, 64)
    if offset:
        value = b.op("add", "i64", value, offset)
    if space == "shared":
        return _shared(b, value, size)
    if b.unit.checks:
        _check(b, value, size, write=write)
    return b.let(f"inttoptr i64 {value} to ptr")


def _shared(b: Translator, value: str, size: int) -> str:
    """Return a pointer into the block's shared memory."""
    start = b.field("shared")
    if b.unit.checks:
        inside = b.entry("access.shared", value=value, first=SHARED_START, size=size)
        b.unless(inside, Fault.ACCESS, value, size)
        rest = b.op("and", "i64", value, size - 1)
        b.unless(b.op("icmp eq", "i64", rest, 0), Fault.MISALIGNED, value, size)
    return b.let(f"inttoptr i64 {b.op('add', 'i64', value, start)} to ptr")


def _check(b: Translator, value: str, size: int, *, write: bool) -> None:
    """Compare an address with the region that this access was in last, and otherwise with all of them."""
    last = b.at("%found", 16 * b.unit.accesses)
    b.unit.accesses += 1
    low, room = b.load("i64", last), b.load("i64", last, 8)
    fine = b.entry("access.found", value=value, low=low, room=room, less=size - 1)
    good, search = b.fresh(), b.fresh()
    b.fork(fine, good, search, likely=True)
    b.label(search)
    access = f"i64 {value}", f"i64 {size}", f"i64 {b.site()}", f"i1 {int(write)}"
    b.fork(b.call("ptxlink.find", "i1", "ptr %ctx", f"ptr {last}", *access), good, "leave", likely=True)
    b.label(good)


def _shape(word: Word) -> tuple[int, set[str]]:
    """Return how many elements an access has, and the modifiers that nobody knows."""
    lanes = next((int(flag[1:]) for flag in word.flags if flag in ("v2", "v4", "v8")), 1)
    return lanes, {flag for flag in word.flags if not _KNOWN.fullmatch(flag)}


def access(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`ld`, `ldu` and `st`."""
    lanes, rest = _shape(word)
    if rest:
        raise Unknown
    writes, bits, size = word.opcode == "st", word.type.width, word.type.width // 8
    atomic, order = (" atomic", " seq_cst") if _ORDERED.intersection(word.flags) else ("", "")
    memory, registers = operands if writes else operands[::-1]
    place = _pointer(b, memory, _space_of(word), size * lanes, write=writes)
    for number, each in enumerate(ptx.elements(registers)):
        at = f"ptr {b.at(place, size * number)}{order}, align {size}, {THEIRS}"
        if writes:
            b.do(f"store{atomic} i{bits} {b.bits(each, bits)}, {at}")
        else:
            b.put(each, b.let(f"load{atomic} i{bits}, {at}"), bits, signed=word.type.signed)


def atomic(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`atom` and `red`."""
    target = operands[0] if word.opcode == "atom" else "_"
    place, *given = operands[word.opcode == "atom" :]
    lanes, rest = _shape(word)
    what, *others = rest - {"acq_rel"}
    if others or lanes > 1:
        raise Unknown
    bits, signed = word.type.width, word.type.signed
    values = [b.bits(each, bits) for each in given]
    at = _pointer(b, place, _space_of(word), bits // 8, write=True)
    if what == "cas":
        old = _exchanged(b, at, bits, *values)[0]
    elif word.type.floating and what != "exch":
        old = _again(b, word, what, at, values[0])
    else:
        name = f"{'' if signed else 'u'}{what}" if what in ("min", "max") else _ATOMIC[what]
        old = b.let(f"atomicrmw {name} ptr {at}, i{bits} {values[0]} seq_cst")
    b.put(target, old, bits, signed=signed)


def _exchanged(b: Translator, at: str, bits: int, expected: str, new: str) -> list[str]:
    """Return what was in memory, and whether it was *expected* and is *new* now."""
    pair = b.let(f"cmpxchg ptr {at}, i{bits} {expected}, i{bits} {new} seq_cst seq_cst")
    return [b.let(f"extractvalue {{i{bits}, i1}} {pair}, {part}") for part in (0, 1)]


def _again(b: Translator, word: Word, what: str, at: str, value: str) -> str:
    """Return what was in memory before an operation on floats, which is tried until nobody comes between."""
    bits = word.type.width
    last = b.variable(f"i{bits}")
    first = b.let(f"load atomic i{bits}, ptr {at} monotonic, align {bits // 8}")
    b.do(f"store i{bits} {first}, ptr {last}")
    again, after = b.fresh(), b.fresh()
    b.label(again)
    expected = b.let(f"load i{bits}, ptr {last}")
    new = arithmetic.computed(b, word._replace(opcode=what, flags=()), [expected, value])
    old, done = _exchanged(b, at, bits, expected, new)
    b.do(f"store i{bits} {old}, ptr {last}")
    b.fork(done, after, again)
    b.label(after)
    return expected


def convert_address(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`cvta`: addresses in shared memory count from a start of their own, all others are the host's."""
    bits = word.type.bits
    value = b.bits(operands[1], bits)
    if _space_of(word) == "shared":
        start = b.resize(b.field("shared"), 64, bits)
        value = b.op("sub" if "to" in word.flags else "add", f"i{bits}", value, start)
    b.put(operands[0], value, bits)


def is_space(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`isspacep`."""
    name = f"isspacep.{_space_of(word)}"
    b.put_entry(operands[0], name, value=b.bits(operands[1], 64), first=SHARED_START)


def fence(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`membar` and `fence`."""
    b.do("fence seq_cst")


def hint(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """Nothing, for what only makes a device faster."""


def stack(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`stacksave`, around which some compilers put calls: nothing is allocated there."""
    b.put(operands[0], "0", word.type.bits)


MEMORY = {
    **dict.fromkeys(("ld", "ldu", "st"), access),
    **dict.fromkeys(("atom", "red"), atomic),
    "cvta": convert_address,
    "isspacep": is_space,
    **dict.fromkeys(("membar", "fence"), fence),
    **dict.fromkeys(("prefetch", "prefetchu", "applypriority", "discard", "nanosleep", "pmevent"), hint),
    **dict.fromkeys(("griddepcontrol", "stackrestore"), hint),
    "stacksave": stack,
}
