"""Instructions on registers: operands become values, the table computes, and results are written."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import arithmetic, floats
from .builder import PRED, U32, Kind, Unknown, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Builder
    from .code import Code

_COMPARED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}
# What LLVM calls a function that rounds in a direction; others begin with an f.
_DIRECTED = {"fma": "fma", "mad": "fma", "sqrt": "sqrt", "rcp": "fdiv"}
_ONES = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF << 52}


def _kind(letter: str, word: Word) -> Kind:
    """Return the type that a letter of the table stands for."""
    if letter == "w":
        return Kind(word.kind.letter, word.kind.bits * 2)
    return {"u": U32, "n": U32, "p": PRED}.get(letter, word.kind)


def compute(b: Code, word: Word, operands: Sequence[str]) -> None:
    """Execute an instruction of the table."""
    if "cc" in word.flags:
        carried(b, word, operands)
        return
    row = arithmetic.row(word)
    sources = row.sources.ljust(len(operands) - 1, row.sources[-1])
    kinds = [_kind(letter, word) for letter in sources]
    given = [b.bits(each, kind.width) for each, kind in zip(operands[1:], kinds, strict=False)]
    kind = _kind(row.result, word)
    b.put(operands[0], computed(b, word, given), Kind(kind.letter, kind.width))


def computed(b: Builder, word: Word, given: Sequence[str]) -> str:
    """Return the bits that an instruction computes of bits; for each part of packed ones."""
    kind = word.kind
    if kind.lanes == 1:
        return _floating(b, word, given) if kind.floating else _integral(b, word, given)
    single = word._replace(kinds=(kind.one,))
    columns = zip(*(b.parts(each, kind.width, kind.lanes) for each in given), strict=True)
    return b.joined([computed(b, single, each) for each in columns], kind.bits)


def _integral(b: Builder, word: Word, given: Sequence[str]) -> str:
    row = arithmetic.row(word)
    result = row.compute(b, word, given)
    if row.result == "n":
        return b.resize(result, word.kind.raw, "i32")
    third = given[2] if word.opcode in ("mad", "mad24") else ""
    return b.op("add", _kind(row.result, word).raw, result, third) if third else result


def _floating(b: Builder, word: Word, given: Sequence[str]) -> str:
    row, kind, flags = arithmetic.row(word), word.kind, word.flags
    values = [arithmetic.modified(b, kind, floats.read(b, kind, each), flags, ["ftz"]) for each in given]
    rounding = next((each for each in flags if each in ("rz", "rp", "rm")), "")
    if rounding:
        if kind.bits == 16:
            raise Unknown
        values = ["1.0", *values] if word.opcode == "rcp" else values
        value = floats.directed(
            b, _DIRECTED.get(word.opcode, f"f{word.opcode}"), kind.ir, rounding, kind.ir, *values
        )
    elif word.opcode in ("min", "max"):
        value = functools.reduce(lambda one, two: row.compute(b, word, (one, two)), values)
    else:
        value = row.compute(b, word, values)
    if row.result == "p":
        return value
    return floats.write(b, kind, arithmetic.modified(b, kind, value, flags, ("relu", "sat", "ftz")))


def carried(b: Code, word: Word, operands: Sequence[str]) -> None:
    """Execute one that reads the carry, or sets it."""
    kind, wide = word.kind, f"i{word.kind.bits + 1}"
    values = [b.bits(each, kind.bits) for each in operands[1:]]
    if word.opcode.startswith("mad"):
        values = [computed(b, Word("mul", word.flags[:1], word.kinds), values[:2]), values[2]]
    opcode = "sub" if word.opcode.startswith("sub") else "add"
    result = b.op(opcode, wide, *(b.resize(each, kind.raw, wide) for each in values))
    if word.opcode.endswith("c"):
        result = b.op(opcode, wide, result, b.resize(b.let(f"load i1, ptr {b.carry}"), "i1", wide))
    if "cc" in word.flags:
        out = b.resize(b.op("lshr", wide, result, kind.bits), wide, "i1")
        b.do(f"store i1 {out}, ptr {b.carry}")
    b.put(operands[0], b.resize(result, wide, kind.raw), kind)


def move(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`mov`: a value, the address of a variable, or the parts of a register."""
    target, source = operands
    bits = word.kind.width
    if target[:1] == "{":
        parts = ptx.elements(target)
        for part, piece in zip(parts, b.parts(b.bits(source, bits), bits, len(parts)), strict=True):
            b.put(part, piece, Kind("b", bits // len(parts)))
    elif source[:1] == "{":
        parts = ptx.elements(source)
        size = bits // len(parts)
        b.put(target, b.joined([b.bits(part, size) for part in parts], size), Kind("b", bits))
    else:
        base, _, offset = source.partition("+") if source[:1] not in "%-" else (source, "", "")
        value = b.bits(base.strip(), bits)
        if offset:
            value = b.op("add", f"i{bits}", value, int(offset, 0))
        b.put(target, value, Kind(word.kind.letter, bits))


def compared(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`setp` and `set`: one or two comparisons, combined with a predicate."""
    how, *rest = [flag for flag in word.flags if flag != "ftz"]
    if not {*rest} <= {"and", "or", "xor"} or len(rest) > 1:
        raise Unknown
    kind, single = word.kind, word.kind.one
    columns = [b.parts(b.bits(each, kind.width), kind.width, kind.lanes) for each in operands[1:3]]
    results = []
    for pair in zip(*columns, strict=True):
        values = [floats.read(b, single, each) for each in pair]
        if kind.floating:
            values = [arithmetic.modified(b, single, each, word.flags, ["ftz"]) for each in values]
            unordered = len(how) == 3 and how.endswith("u")
            order = {"num": "ord", "nan": "uno"}.get(how) or (f"u{how[:2]}" if unordered else f"o{how}")
            results.append(b.op(f"fcmp {order}", kind.ir, *values))
        else:
            order = _COMPARED.get(how) or f"{'s' if kind.signed else 'u'}{how}"
            results.append(b.op(f"icmp {order}", kind.raw, *values))
    targets = [each.strip() for each in operands[0].split("|")]
    if kind.lanes == 1 and len(targets) > 1:
        results.append(b.op("xor", "i1", results[0], "true"))
    if rest:
        other = b.bits(operands[3], 1)
        results = [b.op(rest[0], "i1", each, other) for each in results]
    if word.opcode == "setp":
        for target, result in zip(targets, results, strict=False):
            b.put(target, result, PRED)
        return
    # Ones or 1.0 for what holds.
    kind = word.kinds[0]
    bits = kind.width // len(results)
    ones = str(_ONES[f"{kind.letter}{kind.bits}"]) if kind.floating else "-1"
    parts = [b.select(each, f"i{bits}", ones, "0") for each in results]
    b.put(targets[0], b.joined(parts, bits), Kind("b", kind.width))


def selected(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`selp`."""
    bits = word.kind.width
    one, two = (b.bits(each, bits) for each in operands[1:3])
    b.put(operands[0], b.select(b.bits(operands[3], 1), f"i{bits}", one, two), Kind("b", bits))


def converted(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`cvt`; of two operands the first comes above the second."""
    target, source = word.kinds
    if source.lanes > 1 or len(operands) != target.lanes + 1:
        raise Unknown
    values = [floats.read(b, source, b.bits(each, source.bits)) for each in operands[:0:-1]]
    parts = [floats.convert(b, word, target.one, source, each) for each in values]
    b.put(operands[0], b.joined(parts, target.bits), Kind(target.letter, target.width))


REGISTERS = {
    **dict.fromkeys(("addc", "subc", "madc"), carried),
    "mov": move,
    **dict.fromkeys(("setp", "set"), compared),
    "selp": selected,
    "cvt": converted,
}
"""What is no arithmetic of the table."""
