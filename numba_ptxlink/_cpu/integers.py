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


def shift(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return shifted bits; a shift by the width or more leaves none, or the sign."""
    kind, (value, count) = word.kind, values
    signed = word.opcode == "shr" and kind.signed
    opcode = "shl" if word.opcode == "shl" else "ashr" if signed else "lshr"
    beyond = b.op("icmp uge", "i32", count, kind.bits)
    count = b.resize(b.select(beyond, "i32", str(kind.bits - 1), count), "i32", kind.raw)
    result = b.op(opcode, kind.raw, value, count)
    return result if signed else b.select(beyond, kind.raw, "0", result)


def funnel(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return 32 of 64 bits that are shifted."""
    side, mode = word.flags
    return b.ir(
        """
        upper = zext i32 {high} to i64
        lower = zext i32 {low} to i64
        top = shl i64 {upper}, 32
        whole = or i64 {top}, {lower}
        bounded = call i32 @llvm.umin.i32(i32 {count}, i32 32)
        wrapped = and i32 {count}, 31
        by = zext i32 {used} to i64
        moved = {opcode} i64 {whole}, {by}
        place = lshr i64 {moved}, {from}
        result = trunc i64 {place} to i32
        """.replace("{used}", "{bounded}" if mode == "clamp" else "{wrapped}").replace(
            "{from}", "32" if side == "l" else "0"
        ),
        low=values[0],
        high=values[1],
        count=values[2],
        opcode="shl" if side == "l" else "lshr",
    )


# The place and the length of a field of bits, each at most the width, and ones for it.
_FIELD = """
        place_low = and i32 {place}, 255
        length_low = and i32 {length}, 255
        place_most = call i32 @llvm.umin.i32(i32 {place_low}, i32 {bits})
        length_most = call i32 @llvm.umin.i32(i32 {length_low}, i32 {bits})
        by = zext i32 {place_most} to i128
        size = zext i32 {length_most} to i128
        above = shl i128 1, {size}
        ones = sub i128 {above}, 1
"""


def extract(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return a field of bits; above the register are its sign or zeros."""
    kind = word.kind
    text = (
        _FIELD
        + """
        wide = {extend} {raw} {value} to i128
        moved = ashr i128 {wide}, {by}
        found = and i128 {moved}, {ones}
        half = lshr i128 {ones}, 1
        top = xor i128 {half}, {ones}
        """
    )
    if kind.signed:
        # The highest bit of the field, or of the register where the field reaches above it, is repeated.
        text += """
        sign = and i128 {moved}, {top}
        negative = icmp ne i128 {sign}, 0
        outside = xor i128 {ones}, -1
        filled = or i128 {found}, {outside}
        found = select i1 {negative}, i128 {filled}, i128 {found}
        """
    return b.ir(
        text + "result = trunc i128 {found} to {raw}",
        value=values[0],
        place=values[1],
        length=values[2],
        bits=kind.bits,
        raw=kind.raw,
        extend="sext" if kind.signed else "zext",
    )


def insert(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the second operand with a field of the first."""
    return b.ir(
        _FIELD
        + """
        mask = shl i128 {ones}, {by}
        wide = zext {raw} {value} to i128
        moved = shl i128 {wide}, {by}
        inside = and i128 {moved}, {mask}
        others = xor i128 {mask}, -1
        around = zext {raw} {into} to i128
        kept = and i128 {around}, {others}
        both = or i128 {inside}, {kept}
        result = trunc i128 {both} to {raw}
        """,
        value=values[0],
        into=values[1],
        place=values[2],
        length=values[3],
        bits=word.kind.bits,
        raw=word.kind.raw,
    )


def mask(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return ones from a place on, as many as a length says."""
    place, length = values
    if word.flags == ("wrap",):
        place, length = (b.op("and", "i32", each, 31) for each in values)
    # Unlike for a field, all bits of the place and the length count.
    place, length = (b.call("llvm.umin.i32", "i32", f"i32 {each}", "i32 32") for each in (place, length))
    text = _FIELD + "moved = shl i128 {ones}, {by}\n result = trunc i128 {moved} to i32"
    return b.ir(text, place=place, length=length, bits=32)


def highest(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the place of the highest bit that is not the sign, or the shift that brings it to the top."""
    raw, (value,) = word.kind.raw, values
    if word.kind.signed:
        value = b.op("xor", raw, value, b.op("ashr", raw, value, word.kind.bits - 1))
    none = b.op("icmp eq", raw, value, 0)
    zeros = b.resize(b.call(f"llvm.ctlz.{raw}", raw, f"{raw} {value}", "i1 false"), raw, "i32")
    place = zeros if "shiftamt" in word.flags else b.op("sub", "i32", word.kind.bits - 1, zeros)
    return b.select(none, "i32", "-1", place)


def permute(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return four of the eight bytes of two operands, or the signs of some."""
    low, high, selector = values
    if word.flags:
        chosen = "0"
        for number, nibbles in enumerate(_PERMUTED[word.flags[0]]):
            here = b.op("icmp eq", "i32", b.op("and", "i32", selector, 3), number)
            chosen = b.select(here, "i32", str(int(nibbles[::-1], 16)), chosen)
        selector = chosen
    whole = b.ir(
        """
        upper = zext i32 {high} to i64
        lower = zext i32 {low} to i64
        top = shl i64 {upper}, 32
        whole = or i64 {top}, {lower}
        """,
        low=low,
        high=high,
    )
    result = "0"
    for number in range(4):
        result = b.ir(
            """
            nibble = lshr i32 {selector}, {place}
            which = and i32 {nibble}, 7
            bits = shl i32 {which}, 3
            by = zext i32 {bits} to i64
            moved = lshr i64 {whole}, {by}
            byte = trunc i64 {moved} to i8
            sign = ashr i8 {byte}, 7
            flag = and i32 {nibble}, 8
            repeats = icmp ne i32 {flag}, 0
            chosen = select i1 {repeats}, i8 {sign}, i8 {byte}
            wide = zext i8 {chosen} to i32
            part = shl i32 {wide}, {to}
            all = or i32 {result}, {part}
            """,
            selector=selector,
            place=4 * number,
            whole=whole,
            to=8 * number,
            result=result,
        )
    return result


def lookup(b: Builder, word: Word, values: Sequence[str]) -> str:
    """Return the bits that a table of eight has for the bits of three operands."""
    if not values[3].isdigit():
        raise Unknown
    inverted = [b.op("xor", "i32", each, -1) for each in values[:3]]
    result = "0"
    for number in range(8):
        if int(values[3]) >> number & 1:
            terms = [values[place] if number >> (2 - place) & 1 else inverted[place] for place in range(3)]
            term = b.op("and", "i32", b.op("and", "i32", terms[0], terms[1]), terms[2])
            result = b.op("or", "i32", result, term)
    return result


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
