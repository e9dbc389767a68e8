"""Loads, stores and atomic operations, each compared with what the launch may access."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import floats
from .builder import PRED, THEIRS, Builder, Kind, Unknown
from .layout import SHARED_START, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Word
    from .code import Code

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
# Whether an access is where it was last, and aligned.
_FOUND = """
    distance = sub i64 {value}, {low}
    near = icmp ult i64 {distance}, {room}
    rest = and i64 {value}, {less}
    straight = icmp eq i64 {rest}, 0
    fine = and i1 {near}, {straight}
"""
# Whether an access is in the block's shared memory.
_WITHIN = """
    place = sub i64 {value}, {first}
    begins = icmp ult i64 {place}, {room}
    end = add i64 {place}, {size}
    ends = icmp ule i64 {end}, {room}
    inside = and i1 {begins}, {ends}
"""
# Whether an address is in shared or local memory, and which of these `isspacep` asks for.
_INSIDE = """
    start = add i64 {shared}, {first}
    place = sub i64 {value}, {start}
    is_shared = icmp ult i64 {place}, {shared_size}
    distance = sub i64 {value}, {local}
    is_local = icmp ult i64 {distance}, {local_total}
"""
_IN_SPACE = {
    "shared": "result = or i1 {is_shared}, false",
    "local": "result = or i1 {is_local}, false",
    "global": """
        either = or i1 {is_shared}, {is_local}
        result = xor i1 {either}, true
    """,
}


def address(operand: str) -> tuple[str, int]:
    """Return the register, variable or number in brackets, and the offset behind it."""
    if operand[:1] != "[" or operand[-1:] != "]":
        raise Unknown
    base, plus, offset = operand[1:-1].replace(" ", "").partition("+")
    if not plus and "-" in base[1:]:
        base, _, offset = base.partition("-")
        offset = f"-{offset}"
    return base, int(offset or "0", 0)


def space_of(word: Word) -> str:
    """Return the state space that an opcode names, "" for a generic address."""
    found = (flag.partition("::")[0] for flag in word.flags)
    return next((each for each in found if each in _SPACES), "")


def pointer(b: Code, operand: str, space: str, size: int, *, write: bool = False, aligned: int = 0) -> str:
    """Return a pointer to *size* bytes, after a check that they may be read or written."""
    base, offset = address(operand)
    storage = b.storage(base)
    if storage:
        if not 0 <= offset <= storage.size - size:
            b.fault(Fault.ACCESS, str(offset % (1 << 64)), size)
            b.label(b.fresh())
        return b.at(storage.pointer, offset)
    if space == "param" and b.kernel_params and b.scope.find(base) is None:
        place = b.unit.parameter(b.activation.outline.function, base)
        if place is not None:
            return b.at(b.kernel_params, place + offset)
    _, width = b.register(base) or ("", 64)
    value = b.resize(b.bits(base, width), f"i{width}", "i64")
    if offset:
        value = b.op("add", "i64", value, offset)
    if space == "shared":
        return _shared(b, value, size, aligned or size)
    if b.unit.checks:
        _check(b, value, size, aligned or size, write=write)
    return b.let(f"inttoptr i64 {value} to ptr")


def _shared(b: Code, value: str, size: int, aligned: int) -> str:
    """Return a pointer into the block's shared memory."""
    start = b.field("shared", kind="i64")
    if b.unit.checks:
        room = b.field("shared_size", kind="i64")
        inside = b.ir(_WITHIN, value=value, first=SHARED_START, room=room, size=size)
        b.unless(inside, Fault.ACCESS, value, size)
        if aligned > 1:
            rest = b.op("and", "i64", value, aligned - 1)
            b.unless(b.op("icmp eq", "i64", rest, 0), Fault.MISALIGNED, value, size)
    return b.let(f"inttoptr i64 {b.op('add', 'i64', value, start)} to ptr")


def _check(b: Code, value: str, size: int, aligned: int, *, write: bool) -> None:
    """Compare an address with the region that this access was in last, and otherwise with all of them."""
    number = b.unit.access(size, aligned, b.site(), write=write)
    low, room = (b.load("i64", "%found", 16 * number + half) for half in (0, 8))
    fine = b.ir(_FOUND, value=value, low=low, room=room, less=aligned - 1)
    good, search = b.fresh(), b.fresh()
    b.fork(fine, good, search, likely=True)
    Builder.label(b, search)
    there = b.let(f"call i1 @ptxlink.find(ptr %ctx, i64 {number}, i64 {value})")
    b.fork(there, good, "leave", likely=True)
    Builder.label(b, good)


def _shape(word: Word) -> tuple[int, str, set[str]]:
    """Return how many elements an access has, its order among others, and the modifiers that nobody knows."""
    lanes = next((int(flag[1:]) for flag in word.flags if flag in ("v2", "v4", "v8")), 1)
    order = next((_ORDERS[flag] for flag in word.flags if flag in _ORDERS), "")
    return lanes, order, {flag for flag in word.flags if not _KNOWN.fullmatch(flag)}


def load(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`ld`, `ldu`."""
    lanes, order, rest = _shape(word)
    if rest:
        raise Unknown
    kind, size = word.kind, word.kind.width // 8
    whole = Kind(kind.letter, kind.width)
    place = pointer(b, operands[1], space_of(word), size * lanes)
    for number, target in enumerate(ptx.elements(operands[0])):
        at = b.at(place, size * number)
        if order and order != "release":
            value = b.let(f"load atomic {whole.raw}, ptr {at} {order}, align {size}")
        else:
            value = b.let(f"load {whole.raw}, ptr {at}, align {size}, {THEIRS}")
        b.put(target, value, whole)


def store(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`st`."""
    lanes, order, rest = _shape(word)
    if rest:
        raise Unknown
    size = word.kind.width // 8
    values = [b.bits(each, 8 * size) for each in ptx.elements(operands[1])]
    place = pointer(b, operands[0], space_of(word), size * lanes, write=True)
    for number, value in enumerate(values):
        at = b.at(place, size * number)
        if order and order != "acquire":
            b.do(f"store atomic i{8 * size} {value}, ptr {at} {order}, align {size}")
        else:
            b.do(f"store i{8 * size} {value}, ptr {at}, align {size}, {THEIRS}")


def atomic(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`atom` and `red`."""
    target = operands[0] if word.opcode == "atom" else "_"
    place, *given = operands[word.opcode == "atom" :]
    lanes, _, rest = _shape(word)
    what, *others = rest - {"acq_rel"}
    if others or lanes > 1 or what not in ("cas", "min", "max", *_ATOMIC):
        raise Unknown
    kind = word.kind
    bits = kind.width
    values = [b.bits(each, bits) for each in given]
    at = pointer(b, place, space_of(word), bits // 8, write=True)
    if what == "cas":
        pair = b.let(f"cmpxchg ptr {at}, i{bits} {values[0]}, i{bits} {values[1]} seq_cst seq_cst")
        b.put(target, b.let(f"extractvalue {{i{bits}, i1}} {pair}, 0"), Kind("b", bits))
        return
    if not kind.floating or what == "exch":
        name = _ATOMIC.get(what) or f"{'' if kind.signed else 'u'}{what}"
        result = b.let(f"atomicrmw {name} ptr {at}, i{bits} {values[0]} seq_cst")
    elif what == "add" and kind.bits > 16:
        value = floats.read(b, kind, values[0])
        result = b.let(f"atomicrmw fadd ptr {at}, {kind.ir} {value} seq_cst")
        result = b.let(f"bitcast {kind.ir} {result} to {kind.raw}")
    else:
        result = _again(b, word, what, at, values[0], bits)
    b.put(target, result, Kind(kind.letter if not kind.floating else "b", bits))


def _again(b: Code, word: Word, what: str, at: str, value: str, bits: int) -> str:
    """Return what was in memory before an operation on halves, which is tried until nobody comes between."""
    from .instructions import computed  # what computes uses nothing of memory

    first = b.let(f"load atomic i{bits}, ptr {at} monotonic, align {bits // 8}")
    old = b.variable(f"i{bits}")
    b.do(f"store i{bits} {first}, ptr {old}")
    again, after = b.fresh(), b.fresh()
    b.label(again)
    before = b.let(f"load i{bits}, ptr {old}")
    new = computed(b, word._replace(opcode=what, flags=()), [before, value])
    pair = b.let(f"cmpxchg ptr {at}, i{bits} {before}, i{bits} {new} seq_cst seq_cst")
    b.do(f"store i{bits} {b.let(f'extractvalue {{i{bits}, i1}} {pair}, 0')}, ptr {old}")
    b.fork(b.let(f"extractvalue {{i{bits}, i1}} {pair}, 1"), after, again)
    b.label(after)
    return before


def convert_address(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`cvta`: addresses in shared memory count from a start of their own, all others are the host's."""
    base, offset = address(f"[{operands[1]}]")
    value = b.bits(base, word.kind.bits)
    if offset:
        value = b.op("add", word.kind.raw, value, offset)
    if space_of(word) == "shared":
        start = b.resize(b.field("shared", kind="i64"), "i64", word.kind.raw)
        value = b.op("sub" if "to" in word.flags else "add", word.kind.raw, value, start)
    b.put(operands[0], value, word.kind)


def is_space(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`isspacep`."""
    text = _INSIDE + _IN_SPACE[space_of(word)]
    fields = {name: b.field(name, kind="i64") for name in ("shared", "shared_size", "local", "local_total")}
    b.put(operands[0], b.ir(text, value=b.bits(operands[1], 64), first=SHARED_START, **fields), PRED)


def fence(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`membar` and `fence`."""
    b.do("fence seq_cst")


def hint(b: Code, word: Word, operands: Sequence[str]) -> None:
    """Nothing, for what only makes a device faster."""


def stack(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`stacksave`, around which some compilers put calls: nothing is allocated there."""
    b.put(operands[0], "0", word.kind)


MEMORY = {
    **dict.fromkeys(("ld", "ldu"), load),
    "st": store,
    **dict.fromkeys(("atom", "red"), atomic),
    "cvta": convert_address,
    "isspacep": is_space,
    **dict.fromkeys(("membar", "fence"), fence),
    **dict.fromkeys(
        (
            "prefetch",
            "prefetchu",
            "applypriority",
            "discard",
            "nanosleep",
            "pmevent",
            "griddepcontrol",
            "stackrestore",
        ),
        hint,
    ),
    "stacksave": stack,
}
