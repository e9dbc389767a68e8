"""
How floats are read, rounded, converted and written: halves are computed with as floats, and rounded once.

LLVM's own functions for halves are in a library of compilers; where that is absent, the process would end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .arithmetic import modified
from .builder import Kind, Unknown

if TYPE_CHECKING:
    from .builder import Builder, Word

_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
"""Roundings, as LLVM numbers them."""
_DIRECTED = """define internal {result} @{own}({parameters}) noinline strictfp {{
  call void @llvm.set.rounding(i32 {mode}) strictfp
  %r = call {result} @llvm.experimental.constrained.{name}.{suffix}(
    {parameters}, metadata !"round.dynamic", metadata !"fpexcept.ignore") strictfp
  call void @llvm.set.rounding(i32 1) strictfp
  ret {result} %r
}}"""
_SATURATED = """
    above = call i128 @llvm.smax.i128(i128 {wide}, i128 {low})
    result = call i128 @llvm.smin.i128(i128 {above}, i128 {high})
"""
_TO_INTEGER = """
    whole = call {ir} @llvm.{rounded}.{suffix}({ir} {value})
    result = call {raw} @llvm.fpto{letter}i.sat.{raw}.{suffix}({ir} {whole})
"""
# No number becomes 0, or half the range in 64 bits.
_TO_WIDE_INTEGER = """
    none = fcmp uno {ir} {value}, {value}
    chosen = select i1 {none}, {raw} {half}, {raw} {result}
"""
# What a double drops of a large integer is told by the lowest bit that it keeps.
_KEPT = """
    moved = add i64 {value}, 9007199254740992
    small = icmp ult i64 {moved}, 18014398509481984
    dropped = and i64 {value}, 2047
    some = icmp ne i64 {dropped}, 0
    upper = and i64 {value}, -2048
    last = select i1 {some}, i64 2048, i64 0
    kept = or i64 {upper}, {last}
    result = select i1 {small}, i64 {value}, i64 {kept}
"""


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
        return b.let(f"call i16 @ptxlink.{kind.letter}16.write(float {value}, i32 {MODES[rounding]})")
    return b.let(f"bitcast {kind.ir} {value} to {kind.raw}")


def directed(b: Builder, name: str, result: str, rounding: str, kind: str, *values: str) -> str:
    """Return what a function of LLVM such as "fadd" computes of values of a type, rounded in a direction."""
    own = f"ptxlink.{name}.{rounding}.{kind}.{result}"
    suffix = ".".join(
        {"float": "f32", "double": "f64"}.get(each, each) for each in dict.fromkeys((result, kind))
    )
    b.defined[own] = _DIRECTED.format(
        own=own,
        name=name,
        suffix=suffix,
        mode=MODES[rounding],
        result=result,
        parameters=", ".join(f"{kind} %a{number}" for number in range(len(values))),
    )
    return b.let(f"call {result} @{own}({', '.join(f'{kind} {each}' for each in values)})")


def convert(b: Builder, word: Word, target: Kind, source: Kind, value: str) -> str:
    """Return the bits of *value* in another type."""
    rounding = [flag for flag in word.flags if flag not in ("ftz", "sat", "relu")]
    if len(rounding) > 1 or not {*rounding} <= {*_INTEGRAL, *MODES}:
        raise Unknown
    mode = rounding[0] if rounding else ""
    if source.floating:
        value = modified(b, source, value, word.flags, ["ftz"])
    if not target.floating:
        if source.floating:
            return _to_integer(b, target, source, value, _INTEGRAL[mode])
        return _between_integers(b, target, source, value, saturates="sat" in word.flags)
    if source.floating:
        if mode in _INTEGRAL:
            value = b.call(f"llvm.{_INTEGRAL[mode]}.{source.suffix}", source.ir, f"{source.ir} {value}")
        value = _between_floats(b, target, source, value, mode)
    else:
        value = _from_integer(b, target, source, value, mode or "rn")
    value = modified(b, target, value, word.flags, ("sat", "relu", "ftz"))
    return write(b, target, value, mode if mode in MODES else "rn")


def _to_integer(b: Builder, target: Kind, source: Kind, value: str, rounded: str) -> str:
    """Return an integer, the nearest that there is."""
    return b.ir(
        _TO_INTEGER + (_TO_WIDE_INTEGER if 64 in (source.bits, target.bits) else ""),
        value=value,
        ir=source.ir,
        raw=target.raw,
        suffix=source.suffix,
        rounded=rounded,
        letter="s" if target.signed else "u",
        half=-(1 << (target.bits - 1)),
    )


def _between_integers(b: Builder, target: Kind, source: Kind, value: str, *, saturates: bool) -> str:
    """Return an integer in another width; the nearest that there is for ".sat"."""
    if not saturates:
        return b.resize(value, source.raw, target.raw, signed=source.signed)
    wide = b.resize(value, source.raw, "i128", signed=source.signed)
    low = -(1 << (target.bits - 1)) if target.signed else 0
    high = (1 << (target.bits - target.signed)) - 1
    return b.resize(b.ir(_SATURATED, wide=wide, low=low, high=high), "i128", target.raw)


def _from_integer(b: Builder, target: Kind, source: Kind, value: str, mode: str) -> str:
    """Return a float; on its way to a half, with a last bit that tells whether there is more."""
    opcode = "sitofp" if source.signed else "uitofp"
    if target.bits == 16:
        value = b.ir(_KEPT, value=value) if source.bits == 64 else value
        return b.let(f"call float @ptxlink.odd(double {b.let(f'{opcode} {source.raw} {value} to double')})")
    if mode != "rn":
        return directed(b, opcode, target.ir, mode, source.raw, value)
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
        return directed(b, "fptrunc", "float", mode, "double", value)
    return b.let(f"fptrunc double {value} to float")


# `odd` is the float whose last bit tells whether a double has more, so that a second rounding is as if it
# were the only one.
HELPERS = """
define internal float @ptxlink.odd(double %x) alwaysinline {
  %f = fptrunc double %x to float
  %back = fpext float %f to double
  %exact = fcmp ueq double %back, %x
  %bits = bitcast float %f to i32
  %size = call double @llvm.fabs.f64(double %x)
  %other = call double @llvm.fabs.f64(double %back)
  %above = fcmp ogt double %other, %size
  %one = zext i1 %above to i32
  %below = sub i32 %bits, %one
  %odd = or i32 %below, 1
  %chosen = select i1 %exact, i32 %bits, i32 %odd
  %result = bitcast i32 %chosen to float
  ret float %result
}
define internal float @ptxlink.fused(float %a, float %b, float %c) alwaysinline {
  ; Of halves the product is exact in a double. What the sum drops is told by its last bit.
  %a.wide = fpext float %a to double
  %b.wide = fpext float %b to double
  %c.wide = fpext float %c to double
  %product = fmul double %a.wide, %b.wide
  %sum = fadd double %product, %c.wide
  %back = fsub double %sum, %product
  %rest = fsub double %sum, %back
  %missing.product = fsub double %product, %rest
  %missing.c = fsub double %c.wide, %back
  %missing = fadd double %missing.product, %missing.c
  %some = fcmp one double %missing, 0.0
  %apart = fmul double %missing, %sum
  %above = fcmp olt double %apart, 0.0
  %bits = bitcast double %sum to i64
  %one = zext i1 %above to i64
  %below = sub i64 %bits, %one
  %odd = or i64 %below, 1
  %chosen = select i1 %some, i64 %odd, i64 %bits
  %value = bitcast i64 %chosen to double
  %result = call float @ptxlink.odd(double %value)
  ret float %result
}
define internal float @ptxlink.f16.read(i16 %h) alwaysinline {
  %wide = zext i16 %h to i32
  %size = and i32 %wide, 32767
  %moved = shl i32 %size, 13
  %small = bitcast i32 %moved to float
  %scaled = fmul float %small, 0x46F0000000000000
  %bits = bitcast float %scaled to i32
  %special = icmp uge i32 %size, 31744
  %filled = or i32 %moved, 2139095040
  %value = select i1 %special, i32 %filled, i32 %bits
  %top = and i32 %wide, 32768
  %sign = shl i32 %top, 16
  %all = or i32 %value, %sign
  %result = bitcast i32 %all to float
  ret float %result
}
define internal float @ptxlink.bf16.read(i16 %h) alwaysinline {
  %wide = zext i16 %h to i32
  %bits = shl i32 %wide, 16
  %result = bitcast i32 %bits to float
  ret float %result
}
define internal i16 @ptxlink.round(i32 %bits, i32 %kept, i32 %shift, i32 %most, i32 %mode) alwaysinline {
  %one = shl i32 1, %shift
  %ones = sub i32 %one, 1
  %rest = and i32 %kept, %ones
  %quotient = lshr i32 %kept, %shift
  %half = lshr i32 %one, 1
  %above = icmp ugt i32 %rest, %half
  %tie = icmp eq i32 %rest, %half
  %low = trunc i32 %quotient to i1
  %even = and i1 %tie, %low
  %near = or i1 %above, %even
  %inexact = icmp ne i32 %rest, 0
  %negative = icmp slt i32 %bits, 0
  %positive = xor i1 %negative, true
  %up = and i1 %inexact, %positive
  %down = and i1 %inexact, %negative
  %is.rn = icmp eq i32 %mode, 1
  %is.rp = icmp eq i32 %mode, 2
  %is.rm = icmp eq i32 %mode, 3
  %a = select i1 %is.rn, i1 %near, i1 false
  %b = select i1 %is.rp, i1 %up, i1 %a
  %c = select i1 %is.rm, i1 %down, i1 %b
  %more = zext i1 %c to i32
  %sum = add i32 %quotient, %more
  %p = select i1 %is.rp, i1 %positive, i1 %is.rn
  %away = select i1 %is.rm, i1 %negative, i1 %p
  %edge = select i1 %away, i32 0, i32 1
  %limit = sub i32 %most, %edge
  %fits = icmp ult i32 %sum, %limit
  %capped = select i1 %fits, i32 %sum, i32 %limit
  %size = and i32 %bits, 2147483647
  %infinite = icmp eq i32 %size, 2139095040
  %number = select i1 %infinite, i32 %most, i32 %capped
  %nan = icmp ugt i32 %size, 2139095040
  %sign = lshr i32 %bits, 16
  %top = and i32 %sign, 32768
  %signed = or i32 %number, %top
  %all = select i1 %nan, i32 32767, i32 %signed
  %result = trunc i32 %all to i16
  ret i16 %result
}
define internal i16 @ptxlink.f16.write(float %x, i32 %mode) alwaysinline {
  %bits = bitcast float %x to i32
  %size = and i32 %bits, 2147483647
  %normal = icmp uge i32 %size, 947912704
  %rebased = sub i32 %size, 939524096
  %exponent = lshr i32 %size, 23
  %distance = sub i32 126, %exponent
  %bounded = call i32 @llvm.umin.i32(i32 %distance, i32 31)
  %fraction = and i32 %size, 8388607
  %hidden = or i32 %fraction, 8388608
  %empty = icmp eq i32 %exponent, 0
  %digits = select i1 %empty, i32 %fraction, i32 %hidden
  %kept = select i1 %normal, i32 %rebased, i32 %digits
  %shift = select i1 %normal, i32 13, i32 %bounded
  %result = call i16 @ptxlink.round(i32 %bits, i32 %kept, i32 %shift, i32 31744, i32 %mode)
  ret i16 %result
}
define internal i16 @ptxlink.bf16.write(float %x, i32 %mode) alwaysinline {
  %bits = bitcast float %x to i32
  %size = and i32 %bits, 2147483647
  %result = call i16 @ptxlink.round(i32 %bits, i32 %size, i32 16, i32 32640, i32 %mode)
  ret i16 %result
}
"""
