"""Instructions on registers: operands become values, the table computes, and results are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import arithmetic
from .function_text import PRED, U32, PtxType, Unknown, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .translator import Translator

_ONES = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF << 52}
_COMBINED = {"and", "or", "xor"}
# Whole numbers up to this one are exact in a double.
_EXACT = 1 << 53
_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _type(letter: str, word: Word) -> PtxType:
    """Return the type that a letter of the table stands for."""
    if letter == "w":
        return PtxType(word.type.letter, word.type.bits * 2)
    return {"u": U32, "p": PRED}.get(letter, word.type)


def compute(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """Execute an instruction of the table."""
    if "cc" in word.flags:
        carried(b, word, operands)
        return
    row = arithmetic.row(word)
    sources = row.sources.ljust(len(operands) - 1, row.sources[-1])
    widths = [_type(letter, word).width for letter in sources]
    given = [b.bits(each, width) for each, width in zip(operands[1:], widths, strict=False)]
    kind = _type(row.result, word)
    b.put(operands[0], arithmetic.computed(b, word, given), kind.width, signed=kind.signed)


def carried(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """Execute one that reads the carry, or sets it."""
    kind, wide = word.type, word.type.bits + 1
    values = [b.bits(each, kind.bits) for each in operands[1:]]
    if word.opcode.startswith("mad"):
        values = [arithmetic.computed(b, Word("mul", word.flags[:1], word.types), values[:2]), values[2]]
    subtracts = word.opcode.startswith("sub")
    if subtracts:
        # A device adds the complement and one: the flag is set where there is no borrow.
        values[1] = b.op("xor", f"i{kind.bits}", values[1], -1)
    result = b.op("add", f"i{wide}", *(b.resize(each, kind.bits, wide) for each in values))
    if word.opcode.endswith("c"):
        carry = b.resize(b.let(f"load i1, ptr {b.carry}"), 1, wide)
        result = b.op("add", f"i{wide}", result, carry)
    elif subtracts:
        result = b.op("add", f"i{wide}", result, 1)
    if "cc" in word.flags:
        out = b.resize(b.op("lshr", f"i{wide}", result, kind.bits), wide, 1)
        b.do(f"store i1 {out}, ptr {b.carry}")
    b.put(operands[0], b.resize(result, wide, kind.bits), kind.bits)


def move(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`mov`: a value, the address of a variable, or the parts of a register."""
    target, source = operands
    bits = word.type.width
    targets, sources = ptx.elements(target), ptx.elements(source)
    if len(sources) > 1:
        size = bits // len(sources)
        value = b.joined([b.bits(part, size) for part in sources], size)
    else:
        value = b.bits(source, bits)
    for part, piece in zip(targets, b.parts(value, bits, len(targets)), strict=True):
        b.put(part, piece, bits // len(targets), signed=word.type.signed)


def compared(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`setp` and `set`: one or two comparisons, combined with a predicate."""
    kind = word.type
    flags = [flag for flag in word.flags if flag not in _COMBINED]
    single = Word("setp", tuple(flags), (kind.one,))
    columns = [b.parts(b.bits(each, kind.width), kind.width, kind.lanes) for each in operands[1:3]]
    results = [arithmetic.computed(b, single, pair) for pair in zip(*columns, strict=True)]
    targets = [each.strip() for each in operands[0].split("|")]
    if kind.lanes == 1 and len(targets) > 1:
        results.append(b.op("xor", "i1", results[0], "true"))
    for flag in _COMBINED.intersection(word.flags):
        other = b.bits(operands[3], 1)
        results = [b.op(flag, "i1", each, other) for each in results]
    if word.opcode == "setp":
        for target, result in zip(targets, results, strict=False):
            b.put(target, result, 1)
        return
    # Ones or 1.0 for what holds.
    kind = word.types[0]
    bits = kind.width // len(results)
    ones = str(_ONES[f"{kind.letter}{kind.bits}"]) if kind.floating else "-1"
    parts = [b.select(each, f"i{bits}", ones, "0") for each in results]
    b.put(targets[0], b.joined(parts, bits), kind.width)


def selected(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`selp`."""
    bits = word.type.width
    one, two = (b.bits(each, bits) for each in operands[1:3])
    b.put(operands[0], b.select(b.bits(operands[3], 1), f"i{bits}", one, two), bits)


def converted(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`cvt`; of two operands the first comes above the second."""
    target, source = word.types
    if source.lanes > 1 or len(operands) != target.lanes + 1:
        raise Unknown
    parts = [_converted(b, word, b.bits(each, source.bits)) for each in operands[:0:-1]]
    b.put(operands[0], b.joined(parts, target.bits), target.width, signed=target.signed)


def _converted(b: Translator, word: Word, bits: str) -> str:
    """Return the bits of an element in another type."""
    target, source = word.types[0].one, word.type
    rounding = [flag for flag in word.flags if flag not in ("ftz", "sat", "relu")]
    if len(rounding) > 1 or not {*rounding} <= {*_INTEGRAL, *arithmetic.MODES}:
        raise Unknown
    mode = rounding[0] if rounding else ""
    value = arithmetic.read(b, source, bits)
    # From a half, and to one, a device keeps numbers that are not normal; with bfloat16 it does not.
    flush = [] if ("f", 16) in [(each.letter, each.bits) for each in (target, source)] else ["ftz"]
    if source.floating:
        value = arithmetic.modified(b, source, value, word.flags, flush)
    if not target.floating:
        return _to_integer(b, word, value, mode)
    value = _to_float(b, target, source, value, mode)
    value = arithmetic.modified(b, target, value, word.flags, ("sat", "relu", *flush))
    return arithmetic.write(b, target, value, mode if mode in arithmetic.MODES else "rn")


def _to_integer(b: Translator, word: Word, value: str, mode: str) -> str:
    """Return an integer; of a float, and for ".sat", the nearest that there is."""
    target, source = word.types
    if source.floating:
        return b.entry(
            "cvt.integer",
            value=value,
            ir=source.ir,
            raw=target.raw,
            suffix=source.suffix,
            rounded=_INTEGRAL[mode],
            letter="s" if target.signed else "u",
            no_number=-(1 << (target.bits - 1)) if 64 in (source.bits, target.bits) else 0,
        )
    if "sat" not in word.flags:
        return b.resize(value, source.bits, target.bits, signed=source.signed)
    low = -(1 << (target.bits - 1)) if target.signed else 0
    high = (1 << (target.bits - target.signed)) - 1
    wide = b.resize(value, source.bits, 128, signed=source.signed)
    return b.resize(b.entry("cvt.sat", value=wide, low=low, high=high), 128, target.bits)


def _to_float(b: Translator, target: PtxType, source: PtxType, value: str, mode: str) -> str:
    """Return a float in the type that is computed with for *target*."""
    directed = mode if mode in ("rz", "rm", "rp") else ""
    if not source.floating:
        opcode = "sitofp" if source.signed else "uitofp"
        if target.bits == 16:
            # On its way to a half, the last bit tells whether there is more.
            if source.bits == 64:
                least = _EXACT if source.signed else 0
                value = b.entry("cvt.kept", value=value, least=least, count=_EXACT + least)
            return b.call(
                "ptxlink.odd", "float", f"double {b.let(f'{opcode} {source.raw} {value} to double')}"
            )
        if directed:
            return arithmetic.directed(b, opcode, target.ir, mode, source.raw, value)
        return b.let(f"{opcode} {source.raw} {value} to {target.ir}")
    if mode in _INTEGRAL:
        value = b.call(f"llvm.{_INTEGRAL[mode]}.{source.suffix}", source.ir, f"{source.ir} {value}")
    if source.ir == target.ir:
        return value
    if target.ir == "double":
        return b.let(f"fpext float {value} to double")
    if target.bits == 16:
        return b.call("ptxlink.odd", "float", f"double {value}")
    if directed:
        return arithmetic.directed(b, "fptrunc", "float", mode, "double", value)
    return b.let(f"fptrunc double {value} to float")


REGISTERS = {
    **dict.fromkeys(("addc", "subc", "madc"), carried),
    "mov": move,
    **dict.fromkeys(("setp", "set"), compared),
    "selp": selected,
    "cvt": converted,
}
"""What is no arithmetic of the table."""
