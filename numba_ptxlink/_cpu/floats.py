"""
Instructions on floats: halves are computed with as floats, and rounded once by functions of our own.

Approximations are LLVM's and the C library's functions, so the last bits are other than a device's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .builder import Kind, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Builder, Word

_FUNCTIONS = {"ex2": "exp2", "lg2": "log2"}
_ARITHMETIC = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_DIRECTED = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
_CLASSES = {
    "finite": 0x1F8,
    "infinite": 0x204,
    "number": 0x3FC,
    "notanumber": 0x003,
    "normal": 0x108,
    "subnormal": 0x090,
}
_SMALLEST = {
    Kind("f", 16): "0x3F10000000000000",
    Kind("f", 32): "0x3810000000000000",
    Kind("f", 64): "0x0010000000000000",
}


def flushed(b: Builder, kind: Kind, value: str) -> str:
    """Return zero, with the sign, for a subnormal float."""
    if kind not in _SMALLEST:
        return value
    suffix, ir = kind_suffix(kind), kind.ir
    size = b.call(f"llvm.fabs.{suffix}", ir, f"{ir} {value}")
    zero = b.call(f"llvm.copysign.{suffix}", ir, f"{ir} 0.0", f"{ir} {value}")
    return b.select(b.op("fcmp olt", ir, size, _SMALLEST[kind]), ir, zero, value)


def saturated(b: Builder, kind: Kind, value: str) -> str:
    """Return a float between 0 and 1; 0 for no number."""
    above = b.select(b.op("fcmp ogt", kind.ir, value, "0.0"), kind.ir, value, "0.0")
    return b.select(b.op("fcmp olt", kind.ir, above, "1.0"), kind.ir, above, "1.0")


def positive(b: Builder, kind: Kind, value: str) -> str:
    """Return a float that is not below 0, or no number."""
    return b.select(b.op("fcmp ugt", kind.ir, value, "0.0"), kind.ir, value, "0.0")


def kind_suffix(kind: Kind) -> str:
    """Return what LLVM's functions have at the end of their names."""
    return "f64" if kind.ir == "double" else "f32"


def directed(b: Builder, name: str, kind: str, rounding: str, *arguments: str) -> str:
    """Return what a function of LLVM with a rounding computes, such as "fadd", in the mode of *rounding*."""
    own = f"ptxlink.{name}.{rounding}." + ".".join(each.rpartition(" ")[0] for each in arguments) + f".{kind}"
    if own not in b.defined:
        kinds = [each.rpartition(" ")[0] for each in arguments]
        suffix = ".".join(
            {"float": "f32", "double": "f64"}.get(each, each) for each in dict.fromkeys((kind, *kinds))
        )
        called = f"llvm.experimental.constrained.{name}.{suffix}"
        given = ", ".join(f"{each} %a{number}" for number, each in enumerate(kinds))
        b.defined[own] = f"""define internal {kind} @{own}({given}) noinline strictfp {{
  call void @llvm.set.rounding(i32 {_DIRECTED[rounding]}) strictfp
  %r = call {kind} @{called}({given}, metadata !"round.dynamic", metadata !"fpexcept.ignore") strictfp
  call void @llvm.set.rounding(i32 1) strictfp
  ret {kind} %r
}}"""
    return b.let(f"call {kind} @{own}({', '.join(arguments)})")


def plain(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return a sum, difference, product or quotient."""
    kind, opcode = word.kind, _ARITHMETIC[word.opcode]
    rounding = _rounding(word)
    if rounding != "rn":
        if kind.bits == 16:
            raise Unknown
        return directed(b, opcode, kind.ir, rounding, *(f"{kind.ir} {each}" for each in values))
    result = b.op(opcode, kind.ir, *values)
    if word.opcode == "div" and "approx" in word.flags:
        # A device multiplies by the reciprocal, which it takes for zero where that is subnormal.
        reciprocal = flushed(b, kind, b.op("fdiv", kind.ir, "1.0", values[1]))
        none = b.op("fcmp oeq", kind.ir, reciprocal, "0.0")
        result = b.select(none, kind.ir, b.op("fmul", kind.ir, values[0], reciprocal), result)
    return result


def fused(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return a product and a sum, rounded once."""
    kind, rounding = word.kind, _rounding(word)
    if kind.bits == 16:
        result = b.call("ptxlink.fused", "float", *(f"float {each}" for each in values))
    elif rounding != "rn":
        result = directed(b, "fma", kind.ir, rounding, *(f"{kind.ir} {each}" for each in values))
    else:
        result = b.call(f"llvm.fma.{kind_suffix(kind)}", kind.ir, *(f"{kind.ir} {each}" for each in values))
    return positive(b, kind, result) if "relu" in word.flags else result


def _rounding(word: Word) -> str:
    """Return how results are rounded."""
    others = set(word.flags) - {"ftz", "sat", "approx", "full", "relu", "noftz"}
    if others - _DIRECTED.keys() or len(others) > 1:
        raise Unknown
    return others.pop() if others else "rn"


# LLVM 20's own functions take the wrong one of two where one is subnormal. Zeros of both signs are equal, and
# their sign bit tells which is smaller.
_LEAST = """
    first = fcmp {order} {ir} {one}, {two}
    same = fcmp oeq {ir} {one}, {two}
    none = fcmp uno {ir} {two}, {two}
    keep = or i1 {first}, {none}
    bits1 = bitcast {ir} {one} to {raw}
    bits2 = bitcast {ir} {two} to {raw}
    both = {join} {raw} {bits1}, {bits2}
    equal = bitcast {raw} {both} to {ir}
    other = select i1 {keep}, {ir} {one}, {ir} {two}
    result = select i1 {same}, {ir} {equal}, {ir} {other}
"""
_SPREAD = """
    unordered = fcmp uno {ir} {one}, {two}
    sum = fadd {ir} {one}, {two}
    spread = select i1 {unordered}, {ir} {sum}, {ir} {result}
"""


def least(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the smaller or greater operand; a number rather than none, but for ".NaN"."""
    ir, suffix = word.kind.ir, kind_suffix(word.kind)
    if set(word.flags) - {"ftz", "NaN", "xorsign", "abs"}:
        raise Unknown
    given, raw = list(values), f"i{suffix[1:]}"
    if "abs" in word.flags:
        given = [b.call(f"llvm.fabs.{suffix}", ir, f"{ir} {each}") for each in given]
    order, join = ("olt", "or") if word.opcode == "min" else ("ogt", "and")
    result = given[0]
    for each in given[1:]:
        text = _LEAST + _SPREAD if "NaN" in word.flags else _LEAST
        result = b.ir(text, one=result, two=each, ir=ir, raw=raw, order=order, join=join)
    if "xorsign" in word.flags:
        one, two = (b.let(f"bitcast {ir} {each} to {raw}") for each in values)
        sign = b.let(f"bitcast {raw} {b.op('xor', raw, one, two)} to {ir}")
        result = b.call(f"llvm.copysign.{suffix}", ir, f"{ir} {result}", f"{ir} {sign}")
    return result


def unary(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return what is computed of one operand."""
    kind, suffix, (value,) = word.kind, kind_suffix(word.kind), values
    rounding, argument = _rounding(word), f"{word.kind.ir} {values[0]}"
    if word.opcode == "neg":
        return b.op("fneg", argument)
    if word.opcode in ("sqrt", "rcp") and rounding != "rn":
        if word.opcode == "sqrt":
            return directed(b, "sqrt", kind.ir, rounding, argument)
        return directed(b, "fdiv", kind.ir, rounding, f"{kind.ir} 1.0", argument)
    if word.opcode in ("rcp", "rsqrt"):
        below = b.call(f"llvm.sqrt.{suffix}", kind.ir, argument) if word.opcode == "rsqrt" else value
        result = b.op("fdiv", kind.ir, "1.0", below)
        if kind.bits == 64 and {"approx", "ftz"} <= set(word.flags):
            # A device's has only the upper half.
            bits = b.op("and", "i64", b.let(f"bitcast double {result} to i64"), "-4294967296")
            result = b.let(f"bitcast i64 {bits} to double")
        return result
    name = {"abs": "fabs", **_FUNCTIONS}.get(word.opcode, word.opcode)
    return b.call(f"llvm.{name}.{suffix}", kind.ir, argument)


def copied_sign(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the second operand with the sign of the first."""
    ir = word.kind.ir
    return b.call(f"llvm.copysign.{kind_suffix(word.kind)}", ir, f"{ir} {values[1]}", f"{ir} {values[0]}")


def tested(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return whether a float is of a class."""
    ir, suffix = word.kind.ir, kind_suffix(word.kind)
    return b.call(f"llvm.is.fpclass.{suffix}", "i1", f"{ir} {values[0]}", f"i32 {_CLASSES[word.flags[0]]}")


def compare(b: Builder, kind: Kind, how: str, first: str, second: str) -> str:
    """Return whether two floats are in an order."""
    order = {"num": "ord", "nan": "uno"}.get(how) or (how if how.endswith("u") and how != "u" else f"o{how}")
    if how in ("equ", "neu", "ltu", "leu", "gtu", "geu"):
        order = f"u{how[:2]}"
    return b.op(f"fcmp {order}", kind.ir, first, second)


# As in `integers`.
FLOATS = {
    **dict.fromkeys(("add", "sub", "mul", "div"), (plain, "k", "k")),
    **dict.fromkeys(("fma", "mad"), (fused, "k", "k")),
    **dict.fromkeys(("min", "max"), (least, "k", "k")),
    **dict.fromkeys(
        ("neg", "abs", "sqrt", "rcp", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"), (unary, "k", "k")
    ),
    "copysign": (copied_sign, "k", "k"),
    "testp": (tested, "k", "p"),
}


# `odd` is the float whose last bit tells whether a double has more, so that a second rounding is as if it
# were the only one. LLVM's own functions for halves are in a library of compilers; where that is absent, the
# process would end.
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
