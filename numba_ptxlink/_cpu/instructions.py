"""Instructions on registers: operands become values, the tables compute, and results are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import conversions, floats, integers
from .builder import PRED, U32, Kind, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Builder, Word
    from .code import Code

_BOOLEAN = {"and": "and", "or": "or", "xor": "xor"}


def _kind(letter: str, word: Word) -> Kind:
    """Return the type that a letter of the tables stands for."""
    if letter == "w" and "wide" in word.flags:
        return Kind(word.kind.letter, word.kind.bits * 2)
    return {"u": U32, "p": PRED}.get(letter, word.kind)


def arithmetic(b: Code, word: Word, operands: Sequence[str]) -> None:
    """Execute an instruction of the tables."""
    table = floats.FLOATS if word.kind.floating else integers.INTEGERS
    if word.opcode not in table or "cc" in word.flags:
        raise Unknown
    _, sources, result = table[word.opcode]
    kinds = [_kind(sources[min(place, len(sources) - 1)], word) for place in range(len(operands) - 1)]
    given = [b.bits(each, kind.bits * kind.lanes) for each, kind in zip(operands[1:], kinds, strict=True)]
    kind = _kind(result, word)
    value = computed(b, word, given)
    b.put(operands[0], value, kind if kind.lanes == 1 else Kind("b", kind.bits * kind.lanes))


def computed(b: Builder, word: Word, given: Sequence[str]) -> str:
    """Return the bits that an instruction computes of bits; for both halves of packed ones."""
    kind = word.kind
    if kind.lanes == 1:
        return _one(b, word, given)
    single = word._replace(kinds=(Kind(kind.letter, kind.bits),))
    parts = []
    for number in range(kind.lanes):
        halves = [b.resize(b.op("lshr", "i32", each, kind.bits * number), "i32", kind.raw) for each in given]
        part = b.resize(_one(b, single, halves), kind.raw, "i32")
        parts.append(b.op("shl", "i32", part, kind.bits * number) if number else part)
    return b.op("or", "i32", *parts)


def _one(b: Builder, word: Word, given: Sequence[str]) -> str:
    kind = word.kind
    if not kind.floating:
        return integers.INTEGERS[word.opcode][0](b, word, given)
    function, _, result = floats.FLOATS[word.opcode]
    values = [conversions.read(b, kind, each) for each in given]
    if "ftz" in word.flags:
        values = [floats.flushed(b, kind, each) for each in values]
    value = function(b, word, values)
    if result != "k":
        return value
    if "sat" in word.flags:
        value = floats.saturated(b, kind, value)
    if "ftz" in word.flags:
        value = floats.flushed(b, kind, value)
    return conversions.write(b, kind, value)


def carried(b: Code, word: Word, operands: Sequence[str]) -> None:
    """Execute one that reads the carry, or sets it."""
    values = [b.bits(each, word.kind.bits) for each in operands[1:]]
    result, out = integers.carried(b, word, values, b.let(f"load i1, ptr {b.carry}"))
    if "cc" in word.flags:
        b.do(f"store i1 {out}, ptr {b.carry}")
    b.put(operands[0], result, word.kind)


def move(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`mov`: a value, the address of a variable, or the parts of a register."""
    target, source = operands
    bits = word.kind.bits * word.kind.lanes
    raw = f"i{bits}"
    if target[:1] == "{":
        parts = ptx.elements(target)
        value, size = b.bits(source, bits), bits // len(parts)
        for number, part in enumerate(parts):
            piece = b.resize(b.op("lshr", raw, value, size * number), raw, f"i{size}")
            b.put(part, piece, Kind("b", size))
    elif source[:1] == "{":
        parts = ptx.elements(source)
        value, size = "0", bits // len(parts)
        for number, part in enumerate(parts):
            piece = b.resize(b.bits(part, size), f"i{size}", raw)
            value = b.op("or", raw, value, b.op("shl", raw, piece, size * number))
        b.put(target, value, Kind("b", bits))
    else:
        at = source.partition("+") if source[:1] not in "%-" and "+" in source else (source, "", "")
        value = b.bits(at[0].strip(), bits)
        if at[2]:
            value = b.op("add", raw, value, int(at[2], 0))
        b.put(target, value, Kind(word.kind.letter, bits))


def compared(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`setp` and `set`: one or two comparisons, combined with a predicate."""
    how, *rest = [flag for flag in word.flags if flag != "ftz"]
    if [each for each in rest if each not in _BOOLEAN] or len(rest) > 1:
        raise Unknown
    kind, targets = word.kind, [each.strip() for each in operands[0].split("|")]
    given = [b.bits(each, kind.bits * kind.lanes) for each in operands[1:3]]
    results = []
    for number in range(kind.lanes):
        single = Kind(kind.letter, kind.bits)
        parts = given
        if kind.lanes > 1:
            parts = [b.resize(b.op("lshr", "i32", each, 16 * number), "i32", "i16") for each in given]
        values = [conversions.read(b, single, each) for each in parts]
        if "ftz" in word.flags:
            values = [floats.flushed(b, single, each) for each in values]
        compare = floats.compare if kind.floating else integers.compare
        results.append(compare(b, single, how, values[0], values[1]))
    if kind.lanes == 1 and len(targets) > 1:
        results.append(b.op("xor", "i1", results[0], "true"))
    if rest:
        other = b.bits(operands[3], 1)
        results = [b.op(rest[0], "i1", each, other) for each in results]
    if word.opcode == "setp":
        for target, result in zip(targets, results, strict=False):
            b.put(target, result, PRED)
        return
    _set(b, word, operands[0], results)


def _set(b: Code, word: Word, target: str, results: Sequence[str]) -> None:
    """Write ones or 1.0 for what holds."""
    kind = word.kinds[0]
    if kind.floating:
        true = {"f": {16: 0x3C00, 32: 0x3F800000, 64: 0x3FF << 52}, "bf": {16: 0x3F80}}[kind.letter][
            kind.bits
        ]
        parts = [b.select(each, kind.raw, str(true), "0") for each in results]
    else:
        bits = kind.bits // len(results)
        parts = [b.resize(each, "i1", f"i{bits}", signed=True) for each in results]
    value = parts[0]
    if len(parts) > 1:
        low, high = (b.resize(each, "i16", "i32") for each in parts)
        value = b.op("or", "i32", low, b.op("shl", "i32", high, 16))
    b.put(target, value, Kind("b", kind.bits * kind.lanes))


def selected(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`selp` and `slct`."""
    kind = word.kinds[0]
    bits = kind.bits * kind.lanes
    one, two = (b.bits(each, bits) for each in operands[1:3])
    if word.opcode == "selp":
        condition = b.bits(operands[3], 1)
    else:
        value = b.bits(operands[3], 32)
        if word.kind.floating:
            value = conversions.read(b, word.kind, value)
            if "ftz" in word.flags:
                value = floats.flushed(b, word.kind, value)
            condition = b.op("fcmp oge", "float", value, "0.0")
        else:
            condition = b.op("icmp sge", "i32", value, 0)
    b.put(operands[0], b.select(condition, f"i{bits}", one, two), Kind("b", bits))


def converted(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`cvt`."""
    target, source = word.kinds
    values = [conversions.read(b, source, b.bits(each, source.bits)) for each in operands[1:]]
    if target.lanes > 1 or len(values) > 1:
        if source.lanes > 1 or len(values) != 2:
            raise Unknown
        b.put(operands[0], conversions.packed(b, word, values), Kind("b", 32))
        return
    if source.lanes > 1:
        raise Unknown
    b.put(operands[0], conversions.convert(b, word, target, source, values[0]), target)


REGISTERS = {
    **dict.fromkeys((*integers.INTEGERS, *floats.FLOATS), arithmetic),
    **dict.fromkeys(("addc", "subc", "madc"), carried),
    "mov": move,
    **dict.fromkeys(("setp", "set"), compared),
    **dict.fromkeys(("selp", "slct"), selected),
    "cvt": converted,
}
