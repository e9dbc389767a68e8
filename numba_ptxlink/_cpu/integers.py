"""Instructions on integers and bits: for each opcode, what computes its result of its operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .builder import Kind, Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Builder, Word

_COMPARED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge", "eq": "eq", "ne": "ne"}
# The nibbles that select bytes, for each value of the low bits of the third operand of `prmt`.
_PERMUTED = {
    "f4e": ("0123", "1234", "2345", "3456"),
    "b4e": ("0765", "1076", "2107", "3210"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("0123", "1123", "2223", "3333"),
    "ecr": ("0000", "0111", "0122", "0123"),
    "rc16": ("0101", "2323", "0101", "2323"),
}


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
    kind, opcode = word.kind, word.opcode[:3]
    part = word.flags[0] if word.flags else ""
    if part not in ("lo", "hi", "wide") or len(word.flags) > 1:
        raise Unknown
    raw, wide = kind.raw, f"i{kind.bits * 2}"
    if part == "lo":
        result = b.op("mul", raw, values[0], values[1])
    else:
        one, two = (b.resize(each, raw, wide, signed=kind.signed) for each in values[:2])
        result = b.op("mul", wide, one, two)
        if part == "hi":
            result = b.resize(b.op("lshr", wide, result, kind.bits), wide, raw)
        else:
            raw = wide
    return b.op("add", raw, result, values[2]) if opcode == "mad" else result


def product24(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the low or the high 32 bits of a product of 48, or the sum of these and the third operand."""
    shift = "ashr" if word.kind.signed else "lshr"
    one, two = (
        b.resize(
            b.let(f"{shift} i32 {b.let(f'shl i32 {each}, 8')}, 8"), "i32", "i64", signed=word.kind.signed
        )
        for each in values[:2]
    )
    result = b.op("mul", "i64", one, two)
    if word.flags[0] == "hi":
        result = b.op("lshr", "i64", result, "16")
    result = b.resize(result, "i64", "i32")
    return b.op("add", "i32", result, values[2]) if word.opcode == "mad24" else result


def quotient(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return a quotient or remainder; by zero, all bits of either are ones, as on a device."""
    raw, (above, below) = word.kind.raw, values
    zero = b.op("icmp eq", raw, below, "0")
    special = zero
    if word.kind.signed:
        # The smallest number by -1 ends the process.
        minus = b.op("icmp eq", raw, below, "-1")
        special = b.op("or", "i1", zero, minus)
    divisor = b.select(special, raw, "1", below)
    result = b.let(f"{'s' if word.kind.signed else 'u'}{word.opcode} {raw} {above}, {divisor}")
    if word.kind.signed:
        negated = b.op("sub", raw, "0", above) if word.opcode == "div" else "0"
        result = b.select(minus, raw, negated, result)
    return b.select(zero, raw, "-1", result)


def unary(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return what is computed of one operand."""
    raw, (value,) = word.kind.raw, values
    if word.flags:
        raise Unknown
    if word.opcode == "neg":
        return b.op("sub", raw, "0", value)
    if word.opcode == "not":
        return b.op("xor", raw, value, "-1")
    if word.opcode == "cnot":
        return b.resize(b.op("icmp eq", raw, value, "0"), "i1", raw)
    if word.opcode == "abs":
        return b.call(f"llvm.abs.{raw}", raw, f"{raw} {value}", "i1 false")
    if word.opcode == "brev":
        return b.call(f"llvm.bitreverse.{raw}", raw, f"{raw} {value}")
    if word.opcode == "popc":
        return b.resize(b.call(f"llvm.ctpop.{raw}", raw, f"{raw} {value}"), raw, "i32")
    return b.resize(b.call(f"llvm.ctlz.{raw}", raw, f"{raw} {value}", "i1 false"), raw, "i32")


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


def shift(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return shifted bits; a shift by the width or more leaves none, or the sign."""
    kind, (value, count) = word.kind, values
    signed = word.opcode == "shr" and kind.signed
    opcode = "shl" if word.opcode == "shl" else "ashr" if signed else "lshr"
    beyond = b.op("icmp uge", "i32", count, kind.bits)
    count = b.resize(b.select(beyond, "i32", str(kind.bits - 1), count), "i32", kind.raw)
    result = b.let(f"{opcode} {kind.raw} {value}, {count}")
    return result if signed else b.select(beyond, kind.raw, "0", result)


def funnel(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return 32 of 64 bits that are shifted."""
    low, high, count = values
    left, clamp = word.flags[0] == "l", word.flags[1] == "clamp"
    if clamp:
        count = b.call("llvm.umin.i32", "i32", f"i32 {count}", "i32 32")
        wide = b.op(
            "or", "i64", b.op("shl", "i64", b.resize(high, "i32", "i64"), "32"), b.resize(low, "i32", "i64")
        )
        by = b.resize(count, "i32", "i64")
        if left:
            return b.resize(b.op("lshr", "i64", b.op("shl", "i64", wide, by), "32"), "i64", "i32")
        return b.resize(b.op("lshr", "i64", wide, by), "i64", "i32")
    return b.call(f"llvm.fsh{'l' if left else 'r'}.i32", "i32", f"i32 {high}", f"i32 {low}", f"i32 {count}")


def _field(b: Builder, place: str, length: str, bits: int) -> tuple[str, str]:
    """Return the place of a field, and ones for its length, as integers of 128 bits."""
    bounded = []
    for each in (place, length):
        low = b.op("and", "i32", each, "255")
        bounded.append(b.resize(b.call("llvm.umin.i32", "i32", f"i32 {low}", f"i32 {bits}"), "i32", "i128"))
    return bounded[0], b.op("sub", "i128", b.op("shl", "i128", "1", bounded[1]), "1")


def extract(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return a field of bits; above the register are its sign or zeros."""
    kind, (value, place, length) = word.kind, values
    place, ones = _field(b, place, length, kind.bits)
    wide = b.resize(value, kind.raw, "i128", signed=kind.signed)
    moved = b.op("ashr", "i128", wide, place)
    found = b.op("and", "i128", moved, ones)
    if kind.signed:
        # The highest bit of the field, or of the register where the field reaches above it, is repeated.
        half = b.op("xor", "i128", b.op("lshr", "i128", ones, "1"), ones)
        sign = b.op("icmp ne", "i128", b.op("and", "i128", moved, half), "0")
        filled = b.op("or", "i128", found, b.op("xor", "i128", ones, "-1"))
        found = b.select(sign, "i128", filled, found)
    return b.resize(found, "i128", kind.raw)


def insert(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the second operand with a field of the first."""
    kind, (value, into, place, length) = word.kind, values
    place, ones = _field(b, place, length, kind.bits)
    mask = b.op("shl", "i128", ones, place)
    moved = b.op("and", "i128", b.op("shl", "i128", b.resize(value, kind.raw, "i128"), place), mask)
    kept = b.op("and", "i128", b.resize(into, kind.raw, "i128"), b.op("xor", "i128", mask, "-1"))
    return b.resize(b.op("or", "i128", moved, kept), "i128", kind.raw)


def mask(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return ones from a place on, as many as a length says."""
    limit = 31 if word.flags == ("wrap",) else 255
    place, length = (b.op("and", "i32", each, limit) if limit == 31 else each for each in values)
    if limit != 31:
        place, length = (b.call("llvm.umin.i32", "i32", f"i32 {each}", "i32 32") for each in (place, length))
    place, length = (b.resize(each, "i32", "i128") for each in (place, length))
    ones = b.op("sub", "i128", b.op("shl", "i128", "1", length), "1")
    return b.resize(b.op("shl", "i128", ones, place), "i128", "i32")


def highest(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the place of the highest bit that is not the sign, or the shift that brings it to the top."""
    raw, (value,) = word.kind.raw, values
    if word.kind.signed:
        value = b.op("xor", raw, value, b.op("ashr", raw, value, word.kind.bits - 1))
    none = b.op("icmp eq", raw, value, "0")
    zeros = b.resize(b.call(f"llvm.ctlz.{raw}", raw, f"{raw} {value}", "i1 false"), raw, "i32")
    place = zeros if "shiftamt" in word.flags else b.op("sub", "i32", word.kind.bits - 1, zeros)
    return b.select(none, "i32", "-1", place)


def permute(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return four of the eight bytes of two operands, or the signs of some."""
    low, high, selector = values
    if word.flags:
        chosen = "0"
        for number, nibbles in enumerate(_PERMUTED[word.flags[0]]):
            here = b.op("icmp eq", "i32", b.op("and", "i32", selector, "3"), number)
            chosen = b.select(here, "i32", str(int(nibbles[::-1], 16)), chosen)
        selector = chosen
    wide = b.op(
        "or", "i64", b.op("shl", "i64", b.resize(high, "i32", "i64"), "32"), b.resize(low, "i32", "i64")
    )
    result = "0"
    for number in range(4):
        nibble = b.op("lshr", "i32", selector, 4 * number)
        by = b.resize(b.op("shl", "i32", b.op("and", "i32", nibble, "7"), "3"), "i32", "i64")
        byte = b.resize(b.op("lshr", "i64", wide, by), "i64", "i8")
        repeated = b.op("icmp ne", "i32", b.op("and", "i32", nibble, "8"), "0")
        byte = b.select(repeated, "i8", b.op("ashr", "i8", byte, "7"), byte)
        result = b.op("or", "i32", result, b.op("shl", "i32", b.resize(byte, "i8", "i32"), 8 * number))
    return result


def lookup(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the bits that a table of eight has for the bits of three operands."""
    if not values[3].isdigit():
        raise Unknown
    inverted = [b.op("xor", "i32", each, "-1") for each in values[:3]]
    result = "0"
    for number in range(8):
        if int(values[3]) >> number & 1:
            terms = [values[place] if number >> (2 - place) & 1 else inverted[place] for place in range(3)]
            term = b.op("and", "i32", b.op("and", "i32", terms[0], terms[1]), terms[2])
            result = b.op("or", "i32", result, term)
    return result


def dot(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the third operand and the products of four bytes, or of two halves and two bytes."""
    first, second = word.kinds
    total = values[2]
    four = word.opcode == "dp4a"
    begin = 2 if "hi" in word.flags else 0
    for number in range(4 if four else 2):
        products = []
        for kind, value, width, place in (
            (first, values[0], 8 if four else 16, number),
            (second, values[1], 8, number + begin),
        ):
            part = b.resize(b.op("lshr", "i32", value, width * place), "i32", f"i{width}")
            products.append(b.resize(part, f"i{width}", "i32", signed=kind.signed))
        total = b.op("add", "i32", total, b.op("mul", "i32", products[0], products[1]))
    return total


def difference(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the third operand and the distance of the first two."""
    raw, (first, second, total) = word.kind.raw, values
    greater = compare(b, word.kind, "gt", first, second)
    one, two = b.op("sub", raw, first, second), b.op("sub", raw, second, first)
    return b.op("add", raw, total, b.select(greater, raw, one, two))


def carried(b: Builder, word: Word, values: Sequence[str], carry: str) -> tuple[str, str]:
    """Return a sum, difference or product with a carry, and the carry out of it."""
    bits, raw, wide = word.kind.bits, word.kind.raw, f"i{word.kind.bits + 1}"
    values = list(values)
    if word.opcode.startswith("mad"):
        values = [product(b, word._replace(opcode="mul", flags=word.flags[:1]), values[:2]), values[2]]
    opcode = "sub" if word.opcode.startswith("sub") else "add"
    one, two = (b.resize(each, raw, wide) for each in values)
    result = b.let(f"{opcode} {wide} {one}, {two}")
    if word.opcode.endswith("c"):
        result = b.let(f"{opcode} {wide} {result}, {b.resize(carry, 'i1', wide)}")
    out = b.resize(b.op("lshr", wide, result, bits), wide, "i1")
    return b.resize(result, wide, raw), out


# For each opcode: what computes it; the types of its operands, of which the last repeats; that of its result.
# k is the last type in the opcode, w the same in twice the width if there is ".wide", u a u32, p a predicate.
INTEGERS = {
    **dict.fromkeys(("add", "sub", "and", "or", "xor"), (plain, "k", "k")),
    "mul": (product, "kkw", "w"),
    "mad": (product, "kkw", "w"),
    **dict.fromkeys(("mul24", "mad24"), (product24, "k", "k")),
    **dict.fromkeys(("div", "rem"), (quotient, "k", "k")),
    **dict.fromkeys(("neg", "not", "cnot", "abs", "brev"), (unary, "k", "k")),
    **dict.fromkeys(("popc", "clz"), (unary, "k", "u")),
    **dict.fromkeys(("min", "max"), (least, "k", "k")),
    **dict.fromkeys(("shl", "shr"), (shift, "ku", "k")),
    "shf": (funnel, "u", "u"),
    "bfe": (extract, "ku", "k"),
    "bfi": (insert, "kku", "k"),
    "bfind": (highest, "k", "u"),
    "bmsk": (mask, "u", "u"),
    "prmt": (permute, "u", "u"),
    "lop3": (lookup, "u", "u"),
    **dict.fromkeys(("dp4a", "dp2a"), (dot, "u", "u")),
    "sad": (difference, "k", "k"),
}
