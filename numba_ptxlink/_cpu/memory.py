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
_ORDERS = {"acquire": "acquire", "release": "release", "relaxed": "monotonic", "volatile": "monotonic"}
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
    parameter = b.parameter(base, offset) if space == "param" else ""
    if parameter:
        return parameter
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
    start = b.field("shared", kind="i64")
    if b.unit.checks:
        room = b.field("shared_size", kind="i64")
        inside = arithmetic.entry(b, "access.shared", value=value, first=SHARED_START, room=room, size=size)
        b.unless(inside, Fault.ACCESS, value, size)
        rest = b.op("and", "i64", value, size - 1)
        b.unless(b.op("icmp eq", "i64", rest, 0), Fault.MISALIGNED, value, size)
    return b.let(f"inttoptr i64 {b.op('add', 'i64', value, start)} to ptr")


def _check(b: Translator, value: str, size: int, *, write: bool) -> None:
    """Compare an address with the region that this access was in last, and otherwise with all of them."""
    last = b.at("%found", 16 * b.unit.accesses)
    b.unit.accesses += 1
    low, room = b.load("i64", last), b.load("i64", last, 8)
    fine = arithmetic.entry(b, "access.found", value=value, low=low, room=room, less=size - 1)
    good, search = b.fresh(), b.fresh()
    b.fork(fine, good, search, likely=True)
    b.label(search)
    access = f"i64 {value}", f"i64 {size}", f"i64 {b.site()}", f"i1 {int(write)}"
    b.fork(b.call("ptxlink.find", "i1", "ptr %ctx", f"ptr {last}", *access), good, "leave", likely=True)
    b.label(good)


def _shape(word: Word) -> tuple[int, str, set[str]]:
    """Return how many elements an access has, its order among others, and the modifiers that nobody knows."""
    lanes = next((int(flag[1:]) for flag in word.flags if flag in ("v2", "v4", "v8")), 1)
    order = next((_ORDERS[flag] for flag in word.flags if flag in _ORDERS), "")
    return lanes, order, {flag for flag in word.flags if not _KNOWN.fullmatch(flag)}


def load(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`ld`, `ldu`."""
    lanes, order, rest = _shape(word)
    if rest:
        raise Unknown
    bits, size = word.type.width, word.type.width // 8
    place = _pointer(b, operands[1], _space_of(word), size * lanes)
    for number, target in enumerate(ptx.elements(operands[0])):
        at = b.at(place, size * number)
        if order and order != "release":
            value = b.let(f"load atomic i{bits}, ptr {at} {order}, align {size}")
        else:
            value = b.let(f"load i{bits}, ptr {at}, align {size}, {THEIRS}")
        b.put(target, value, bits, signed=word.type.signed)


def store(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`st`."""
    lanes, order, rest = _shape(word)
    if rest:
        raise Unknown
    bits, size = word.type.width, word.type.width // 8
    values = [b.bits(each, bits) for each in ptx.elements(operands[1])]
    place = _pointer(b, operands[0], _space_of(word), size * lanes, write=True)
    for number, value in enumerate(values):
        at = b.at(place, size * number)
        if order and order != "acquire":
            b.do(f"store atomic i{bits} {value}, ptr {at} {order}, align {size}")
        else:
            b.do(f"store i{bits} {value}, ptr {at}, align {size}, {THEIRS}")


def atomic(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`atom` and `red`."""
    target = operands[0] if word.opcode == "atom" else "_"
    place, *given = operands[word.opcode == "atom" :]
    lanes, _, rest = _shape(word)
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
    found = ptx.address(f"[{operands[1]}]")
    if found is None:
        raise Unknown
    value = b.bits(found[0], bits)
    if found[1]:
        value = b.op("add", f"i{bits}", value, found[1])
    if _space_of(word) == "shared":
        start = b.resize(b.field("shared", kind="i64"), 64, bits)
        value = b.op("sub" if "to" in word.flags else "add", f"i{bits}", value, start)
    b.put(operands[0], value, bits)


def is_space(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`isspacep`."""
    fields = {name: b.field(name, kind="i64") for name in ("shared", "shared_size", "local", "local_total")}
    value, name = b.bits(operands[1], 64), f"isspacep.{_space_of(word)}"
    b.put(operands[0], arithmetic.entry(b, name, value=value, first=SHARED_START, **fields), 1)


def fence(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`membar` and `fence`."""
    b.do("fence seq_cst")


def hint(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """Nothing, for what only makes a device faster."""


def stack(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`stacksave`, around which some compilers put calls: nothing is allocated there."""
    b.put(operands[0], "0", word.type.bits)


MEMORY = {
    **dict.fromkeys(("ld", "ldu"), load),
    "st": store,
    **dict.fromkeys(("atom", "red"), atomic),
    "cvta": convert_address,
    "isspacep": is_space,
    **dict.fromkeys(("membar", "fence"), fence),
    **dict.fromkeys(("prefetch", "prefetchu", "applypriority", "discard", "nanosleep", "pmevent"), hint),
    **dict.fromkeys(("griddepcontrol", "stackrestore"), hint),
    "stacksave": stack,
}
