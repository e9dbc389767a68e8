"""Instructions on registers: operands become values, the table computes, and results are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import arithmetic
from .function_text import PRED, U32, PtxType, Unknown, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .function_text import FunctionText
    from .translator import Translator

_COMPARED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}
_ONES = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF << 52}
_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _type(letter: str, word: Word) -> PtxType:
    """Return the type that a letter of the table stands for."""
    if letter == "w":
        return PtxType(word.type.letter, word.type.bits * 2)
    return {"u": U32, "n": U32, "p": PRED}.get(letter, word.type)


def compute(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """Execute an instruction of the table."""
    if "cc" in word.flags:
        carried(b, word, operands)
        return
    row = arithmetic.row(word)
    sources = row.sources.ljust(len(operands) - 1, row.sources[-1])
    widths = [_type(letter, word).width for letter in sources]
    given = [b.bits(each, width) for each, width in zip(operands[1:], widths, strict=False)]
    result, kind = arithmetic.computed(b, word, given), _type(row.result, word)
    if row.result == "n":
        result = b.resize(result, word.type.bits, kind.bits)
    b.put(operands[0], result, kind.width, signed=kind.signed)


def carried(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """Execute one that reads the carry, or sets it."""
    kind, wide = word.type, word.type.bits + 1
    values = [b.bits(each, kind.bits) for each in operands[1:]]
    if word.opcode.startswith("mad"):
        values = [arithmetic.computed(b, Word("mul", word.flags[:1], word.types), values[:2]), values[2]]
    opcode = "sub" if word.opcode.startswith("sub") else "add"
    result = b.op(opcode, f"i{wide}", *(b.resize(each, kind.bits, wide) for each in values))
    if word.opcode.endswith("c"):
        carry = b.resize(b.let(f"load i1, ptr {b.carry}"), 1, wide)
        result = b.op(opcode, f"i{wide}", result, carry)
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
        base, _, offset = source.partition("+") if source[:1] not in "%-" else (source, "", "")
        value = b.bits(base.strip(), bits)
        if offset:
            value = b.op("add", f"i{bits}", value, int(offset, 0))
    for part, piece in zip(targets, b.parts(value, bits, len(targets)), strict=True):
        b.put(part, piece, bits // len(targets), signed=word.type.signed)


def compared(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`setp` and `set`: one or two comparisons, combined with a predicate."""
    how, *rest = [flag for flag in word.flags if flag != "ftz"]
    if not {*rest} <= {"and", "or", "xor"} or len(rest) > 1:
        raise Unknown
    kind, single = word.type, word.type.one
    columns = [b.parts(b.bits(each, kind.width), kind.width, kind.lanes) for each in operands[1:3]]
    results = []
    for pair in zip(*columns, strict=True):
        values = [arithmetic.read(b, single, each) for each in pair]
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
    parts = [_converted(b, word, target.one, source, b.bits(each, source.bits)) for each in operands[:0:-1]]
    b.put(operands[0], b.joined(parts, target.bits), target.width, signed=target.signed)


def _converted(b: FunctionText, word: Word, target: PtxType, source: PtxType, bits: str) -> str:
    """Return bits in another type."""
    rounding = [flag for flag in word.flags if flag not in ("ftz", "sat", "relu")]
    if len(rounding) > 1 or not {*rounding} <= {*_INTEGRAL, *arithmetic.MODES}:
        raise Unknown
    mode = rounding[0] if rounding else ""
    value = arithmetic.read(b, source, bits)
    if source.floating:
        value = arithmetic.modified(b, source, value, word.flags, ["ftz"])
    if not target.floating:
        if source.floating:
            return _to_integer(b, target, source, value, _INTEGRAL[mode])
        return _between_integers(b, target, source, value, saturates="sat" in word.flags)
    if not source.floating:
        value = _from_integer(b, target, source, value, mode or "rn")
    else:
        if mode in _INTEGRAL:
            value = b.call(f"llvm.{_INTEGRAL[mode]}.{source.suffix}", source.ir, f"{source.ir} {value}")
        value = _between_floats(b, target, source, value, mode)
    value = arithmetic.modified(b, target, value, word.flags, ("sat", "relu", "ftz"))
    return arithmetic.write(b, target, value, mode if mode in arithmetic.MODES else "rn")


def _to_integer(b: FunctionText, target: PtxType, source: PtxType, value: str, rounded: str) -> str:
    """Return an integer, the nearest that there is."""
    return arithmetic.entry(
        b,
        "cvt.integer",
        value=value,
        ir=source.ir,
        raw=target.raw,
        suffix=source.suffix,
        rounded=rounded,
        letter="s" if target.signed else "u",
        no_number=-(1 << (target.bits - 1)) if 64 in (source.bits, target.bits) else 0,
    )


def _between_integers(
    b: FunctionText, target: PtxType, source: PtxType, value: str, *, saturates: bool
) -> str:
    """Return an integer in another width; the nearest that there is for ".sat"."""
    if not saturates:
        return b.resize(value, source.bits, target.bits, signed=source.signed)
    low = -(1 << (target.bits - 1)) if target.signed else 0
    high = (1 << (target.bits - target.signed)) - 1
    wide = b.resize(value, source.bits, 128, signed=source.signed)
    return b.resize(arithmetic.entry(b, "cvt.sat", value=wide, low=low, high=high), 128, target.bits)


def _from_integer(b: FunctionText, target: PtxType, source: PtxType, value: str, mode: str) -> str:
    """Return a float; on its way to a half, with a last bit that tells whether there is more."""
    opcode = "sitofp" if source.signed else "uitofp"
    if target.bits == 16:
        value = arithmetic.entry(b, "cvt.kept", value=value) if source.bits == 64 else value
        return b.call("ptxlink.odd", "float", f"double {b.let(f'{opcode} {source.raw} {value} to double')}")
    if mode != "rn":
        return arithmetic.directed(b, opcode, target.ir, mode, source.raw, value)
    return b.let(f"{opcode} {source.raw} {value} to {target.ir}")


def _between_floats(b: FunctionText, target: PtxType, source: PtxType, value: str, mode: str) -> str:
    """Return a float in the type that is computed with for *target*."""
    if source.ir == target.ir:
        return value
    if target.ir == "double":
        return b.let(f"fpext float {value} to double")
    if target.bits == 16:
        return b.call("ptxlink.odd", "float", f"double {value}")
    if mode in ("rz", "rm", "rp"):
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
