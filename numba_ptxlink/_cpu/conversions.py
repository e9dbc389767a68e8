"""`cvt` in all its forms, and how the bits of registers become what LLVM computes with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .builder import Kind, Unknown
from .floats import directed, flushed, kind_suffix, positive, saturated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Builder, Word

_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}


def read(b: Builder, kind: Kind, bits: str) -> str:
    """Return the value that bits are."""
    if not kind.floating:
        return bits
    if kind.bits == 16:
        return b.let(f"call float @ptxlink.{kind.letter}16.read(i16 {bits})")
    return b.let(f"bitcast {kind.raw} {bits} to {kind.ir}")


def write(b: Builder, kind: Kind, value: str, rounding: str = "rn") -> str:
    """Return the bits of a value; of a half, rounded."""
    if not kind.floating:
        return value
    if kind.bits == 16:
        return b.let(f"call i16 @ptxlink.{kind.letter}16.write(float {value}, i32 {_MODES[rounding]})")
    return b.let(f"bitcast {kind.ir} {value} to {kind.raw}")


def convert(b: Builder, word: Word, target: Kind, source: Kind, value: str) -> str:
    """Return the bits of *value* in another type."""
    rounding = [flag for flag in word.flags if flag not in ("ftz", "sat", "relu")]
    if len(rounding) > 1 or (rounding and rounding[0] not in (*_INTEGRAL, *_MODES)):
        raise Unknown
    mode = rounding[0] if rounding else ""
    if "ftz" in word.flags:
        value = flushed(b, source, value)
    if source.floating and not target.floating:
        return _to_integer(b, target, source, value, _INTEGRAL[mode])
    if not target.floating:
        return _between_integers(b, word, target, source, value)
    if source.floating:
        if mode in _INTEGRAL:
            value = b.call(f"llvm.{_INTEGRAL[mode]}.{kind_suffix(source)}", source.ir, f"{source.ir} {value}")
        value = _between_floats(b, target, source, value, mode)
    else:
        value = _from_integer(b, target, source, value, mode or "rn")
    if "sat" in word.flags:
        value = saturated(b, target, value)
    if "relu" in word.flags:
        value = positive(b, target, value)
    if "ftz" in word.flags:
        value = flushed(b, target, value)
    return write(b, target, value, mode if mode in _MODES else "rn")


def _to_integer(b: Builder, target: Kind, source: Kind, value: str, name: str) -> str:
    """Return an integer, the nearest that there is; for no number 0, or half the range in 64 bits."""
    suffix, ir, raw = kind_suffix(source), source.ir, target.raw
    whole = b.call(f"llvm.{name}.{suffix}", ir, f"{ir} {value}")
    function = f"llvm.fpto{'s' if target.signed else 'u'}i.sat.{raw}.{suffix}"
    result = b.call(function, raw, f"{ir} {whole}")
    if 64 in (source.bits, target.bits):
        none = b.op("fcmp uno", ir, value, value)
        result = b.select(none, raw, str(-(1 << (target.bits - 1))), result)
    return result


def _between_integers(b: Builder, word: Word, target: Kind, source: Kind, value: str) -> str:
    """Return an integer in another width; the nearest that there is for ".sat"."""
    if "sat" not in word.flags:
        return b.resize(value, source.raw, target.raw, signed=source.signed)
    wide = b.resize(value, source.raw, "i128", signed=source.signed)
    low = -(1 << (target.bits - 1)) if target.signed else 0
    high = (1 << (target.bits - target.signed)) - 1
    above = b.call("llvm.smax.i128", "i128", f"i128 {wide}", f"i128 {low}")
    return b.resize(b.call("llvm.smin.i128", "i128", f"i128 {above}", f"i128 {high}"), "i128", target.raw)


def _from_integer(b: Builder, target: Kind, source: Kind, value: str, mode: str) -> str:
    """Return a float; on its way to a half, with a last bit that tells whether there is more."""
    opcode = "sitofp" if source.signed else "uitofp"
    if target.bits == 16:
        if source.bits == 64:
            # What a double drops of a large integer is told by the lowest bit that it keeps.
            small = b.op("icmp ult", "i64", b.op("add", "i64", value, 1 << 53), 1 << 54)
            some = b.op("icmp ne", "i64", b.op("and", "i64", value, 2047), 0)
            kept = b.op("or", "i64", b.op("and", "i64", value, -2048), b.select(some, "i64", "2048", "0"))
            value = b.select(small, "i64", value, kept)
        return b.let(f"call float @ptxlink.odd(double {b.let(f'{opcode} {source.raw} {value} to double')})")
    if mode != "rn":
        return directed(b, opcode, target.ir, mode, f"{source.raw} {value}")
    return b.let(f"{opcode} {source.raw} {value} to {target.ir}")


def _between_floats(b: Builder, target: Kind, source: Kind, value: str, mode: str) -> str:
    """Return a float in the type that is computed with for *target*."""
    if source.ir == target.ir:
        return value
    if target.ir == "double":
        return b.let(f"fpext float {value} to double")
    if target.bits == 16:
        return b.let(f"call float @ptxlink.odd(double {value})")
    if mode in ("rz", "rm", "rp"):
        return directed(b, "fptrunc", "float", mode, f"double {value}")
    return b.let(f"fptrunc double {value} to float")


def packed(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return two halves in one register: the first operand above the second."""
    target, source = word.kinds[0], word.kind
    halves = [convert(b, word, Kind(target.letter, 16), source, each) for each in values]
    high, low = (b.let(f"zext i16 {each} to i32") for each in halves)
    return b.op("or", "i32", b.op("shl", "i32", high, "16"), low)
