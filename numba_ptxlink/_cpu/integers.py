"""Instructions on integers and bits: for each opcode, what computes its result of its operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .bits import BITS
from .builder import Kind, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Builder, Word

_COMPARED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}


def plain(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return what one instruction of LLVM computes."""
    if word.flags == ("sat",) and word.opcode in ("add", "sub") and word.kind.signed:
        raw = word.kind.raw
        return b.call(f"llvm.s{word.opcode}.sat.{raw}", raw, *(f"{raw} {each}" for each in values))
    if set(word.flags) - {"lo"}:
        raise Unknown
    return b.let(f"{word.opcode} {word.kind.raw} {', '.join(values)}")


def product(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return a product, or the sum of one and the third operand."""
    kind = word.kind
    if word.flags not in (("lo",), ("hi",), ("wide",)):
        raise Unknown
    raw, wide = kind.raw, f"i{kind.bits * 2}"
    if word.flags == ("lo",):
        result = b.op("mul", raw, values[0], values[1])
    else:
        one, two = (b.resize(each, raw, wide, signed=kind.signed) for each in values[:2])
        result = b.op("mul", wide, one, two)
        if word.flags == ("hi",):
            result = b.resize(b.op("lshr", wide, result, kind.bits), wide, raw)
        else:
            raw = wide
    return b.op("add", raw, result, values[2]) if word.opcode == "mad" else result


def product24(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the low or the high 32 bits of a product of 48, or the sum of these and the third operand."""
    return b.ir(
        """
        top1 = shl i32 {one}, 8
        top2 = shl i32 {two}, 8
        low1 = {shift} i32 {top1}, 8
        low2 = {shift} i32 {top2}, 8
        wide1 = {extend} i32 {low1} to i64
        wide2 = {extend} i32 {low2} to i64
        product = mul i64 {wide1}, {wide2}
        moved = lshr i64 {product}, {by}
        result = trunc i64 {moved} to i32
        sum = add i32 {result}, {third}
        """,
        one=values[0],
        two=values[1],
        third=values[2] if word.opcode == "mad24" else 0,
        shift="ashr" if word.kind.signed else "lshr",
        extend="sext" if word.kind.signed else "zext",
        by=16 if word.flags == ("hi",) else 0,
    )


def quotient(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return a quotient or remainder; by zero, all bits of either are ones, as on a device."""
    raw, (above, below) = word.kind.raw, values
    # The smallest number by -1, like a division by zero, ends a process.
    return b.ir(
        """
        zero = icmp eq {raw} {below}, 0
        minus = icmp eq {raw} {below}, {one}
        special = or i1 {zero}, {minus}
        divisor = select i1 {special}, {raw} 1, {raw} {below}
        plain = {opcode} {raw} {above}, {divisor}
        negated = sub {raw} 0, {above}
        result = select i1 {minus}, {raw} {other}, {raw} {plain}
        all = select i1 {zero}, {raw} -1, {raw} {result}
        """.replace("{other}", "{negated}" if word.opcode == "div" else "0"),
        raw=raw,
        above=above,
        below=below,
        # Of unsigned numbers 0 is the only divisor that is special.
        one=-1 if word.kind.signed else 0,
        opcode=f"{'s' if word.kind.signed else 'u'}{word.opcode}",
    )


def unary(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return what is computed of one operand."""
    raw, (value,) = word.kind.raw, values
    if word.flags:
        raise Unknown
    made = {
        "neg": "sub {raw} 0, {value}",
        "not": "xor {raw} {value}, -1",
        "cnot": "icmp eq {raw} {value}, 0",
        "abs": "call {raw} @llvm.abs.{raw}({raw} {value}, i1 false)",
        "brev": "call {raw} @llvm.bitreverse.{raw}({raw} {value})",
        "popc": "call {raw} @llvm.ctpop.{raw}({raw} {value})",
        "clz": "call {raw} @llvm.ctlz.{raw}({raw} {value}, i1 false)",
    }[word.opcode]
    result = b.let(made.format(raw=raw, value=value))
    if word.opcode in ("popc", "clz"):
        return b.resize(result, raw, "i32")
    return b.resize(result, "i1", raw) if word.opcode == "cnot" else result


def least(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the smaller or greater operand."""
    raw, first, second = word.kind.raw, *values
    if set(word.flags) - {"relu"}:
        raise Unknown
    name = f"llvm.{'s' if word.kind.signed else 'u'}{word.opcode}.{raw}"
    result = b.call(name, raw, f"{raw} {first}", f"{raw} {second}")
    return b.call(f"llvm.smax.{raw}", raw, f"{raw} {result}", f"{raw} 0") if "relu" in word.flags else result


def compare(b: Builder, kind: Kind, how: str, first: str, second: str) -> str:
    """Return whether two integers are in an order."""
    order = _COMPARED.get(how) or f"{'s' if kind.signed else 'u'}{how}"
    return b.op(f"icmp {order}", kind.raw, first, second)


def dot(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the third operand and the products of four bytes, or of two halves and two bytes."""
    total, four = values[2], word.opcode == "dp4a"
    begin = 2 if "hi" in word.flags else 0
    for number in range(4 if four else 2):
        total = b.ir(
            """
            above1 = shl i32 {one}, {up1}
            above2 = shl i32 {two}, {up2}
            part1 = {shift1} i32 {above1}, {down1}
            part2 = {shift2} i32 {above2}, 24
            product = mul i32 {part1}, {part2}
            sum = add i32 {total}, {product}
            """,
            one=values[0],
            two=values[1],
            total=total,
            up1=24 - 8 * number if four else 16 - 16 * number,
            up2=24 - 8 * (number + begin),
            down1=24 if four else 16,
            shift1="ashr" if word.kinds[0].signed else "lshr",
            shift2="ashr" if word.kinds[1].signed else "lshr",
        )
    return total


def difference(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the third operand and the distance of the first two."""
    raw, (first, second, total) = word.kind.raw, values
    greater = compare(b, word.kind, "gt", first, second)
    one, two = b.op("sub", raw, first, second), b.op("sub", raw, second, first)
    return b.op("add", raw, total, b.select(greater, raw, one, two))


def carried(b: Builder, word: Word, values: Sequence[str], carry: str) -> tuple[str, str]:
    """Return a sum, difference or product with a carry, and the carry out of it."""
    raw, wide = word.kind.raw, f"i{word.kind.bits + 1}"
    if word.opcode.startswith("mad"):
        values = product(b, word._replace(opcode="mul", flags=word.flags[:1]), values[:2]), values[2]
    opcode = "sub" if word.opcode.startswith("sub") else "add"
    one, two = (b.resize(each, raw, wide) for each in values)
    result = b.op(opcode, wide, one, two)
    if word.opcode.endswith("c"):
        result = b.op(opcode, wide, result, b.resize(carry, "i1", wide))
    out = b.resize(b.op("lshr", wide, result, word.kind.bits), wide, "i1")
    return b.resize(result, wide, raw), out


# For each opcode: what computes it; the types of its operands, of which the last repeats; that of its result.
# k is the last type in the opcode, w the same in twice the width if there is ".wide", u a u32, p a predicate.
INTEGERS = {
    **BITS,
    **dict.fromkeys(("add", "sub", "and", "or", "xor"), (plain, "k", "k")),
    "mul": (product, "kkw", "w"),
    "mad": (product, "kkw", "w"),
    **dict.fromkeys(("mul24", "mad24"), (product24, "k", "k")),
    **dict.fromkeys(("div", "rem"), (quotient, "k", "k")),
    **dict.fromkeys(("neg", "not", "cnot", "abs", "brev"), (unary, "k", "k")),
    **dict.fromkeys(("popc", "clz"), (unary, "k", "u")),
    **dict.fromkeys(("min", "max"), (least, "k", "k")),
    **dict.fromkeys(("dp4a", "dp2a"), (dot, "u", "u")),
    "sad": (difference, "k", "k"),
}
