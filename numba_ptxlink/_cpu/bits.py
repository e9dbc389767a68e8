"""Instructions that move bits: shifts, fields, permutations and tables; as in `integers`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .builder import Unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Builder, Word

# The nibbles that select bytes, for each value of the low bits of the third operand of `prmt`.
_PERMUTED = {
    "f4e": ("0123", "1234", "2345", "3456"),
    "b4e": ("0765", "1076", "2107", "3210"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("0123", "1123", "2223", "3333"),
    "ecr": ("0000", "0111", "0122", "0123"),
    "rc16": ("0101", "2323", "0101", "2323"),
}


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


# As in `integers`.
BITS = {
    **dict.fromkeys(("shl", "shr"), (shift, "ku", "k")),
    "shf": (funnel, "u", "u"),
    "bfe": (extract, "ku", "k"),
    "bfi": (insert, "kku", "k"),
    "bfind": (highest, "k", "u"),
    "bmsk": (mask, "u", "u"),
    "prmt": (permute, "u", "u"),
    "lop3": (lookup, "u", "u"),
}
