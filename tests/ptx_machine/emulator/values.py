"""
Instructions that compute values: a table of functions, each of which returns the `Form` of an instruction.

A form computes all lanes at once. The table has what the compilers emit for the programs of the tests; a row
names the modifiers that it knows, besides types.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .memory import WINDOW, WINDOWS
from .numbers import Type, fused, toward_zero, type_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .parse import Instruction

PRED, U32, U64 = map(type_of, ("pred", "u32", "u64"))


def smeared(form: Form, values: list, undefined: list) -> np.ndarray:
    """Return all bits of a result for lanes in which any bit of an operand is undefined."""
    del values
    raw = form.result.raw
    bad = functools.reduce(np.logical_or, (bits != 0 for bits in undefined))
    return np.where(bad, ~raw(0), raw(0))


def upward(form: Form, values: list, undefined: list) -> np.ndarray:
    """Return an undefined bit and all above it, for sums and products."""
    if any(bits.dtype != form.result.raw for bits in undefined):
        return smeared(form, values, undefined)
    bits = functools.reduce(np.bitwise_or, undefined)
    return bits | (~bits + bits.dtype.type(1))


def moved(count: int) -> Callable:
    """Return a rule for results that have bits of the first *count* operands where the others say."""

    def rule(form: Form, values: list, undefined: list) -> np.ndarray:
        pairs = zip(form.sources, undefined[:count], strict=False)
        parts = [kind.unpack(bits) for kind, bits in pairs]
        bits = form.result.pack(form.compute(*parts, *values[count:]), form.result.raw)
        return bits | smeared(form, values, undefined[count:]) if undefined[count:] else bits

    return rule


@dataclass
class Form:
    """
    The computation of an instruction.

    Args:
        result: The type that it writes.
        sources: The types that it reads.
        compute: Returns the values of the result.
        undefined: Returns the undefined bits of the result, from values and undefined bits of the operands.
    """

    result: Type
    sources: tuple[Type, ...]
    compute: Callable
    undefined: Callable = smeared


class Words:
    """The modifiers of an instruction."""

    def __init__(self, instruction: Instruction) -> None:
        self.opcode = instruction.opcode
        self.types = [kind for word in instruction.words if (kind := type_of(word))]
        self.flags = [word for word in instruction.words if not type_of(word)]

    def __contains__(self, flag: str) -> bool:
        return flag in self.flags


ROWS: dict[str, tuple[Callable[[Words], Form], frozenset[str]]] = {}


def row(opcodes: str, flags: str = "") -> Callable:
    """Add a row to the table."""

    def add(make: Callable[[Words], Form]) -> Callable[[Words], Form]:
        ROWS.update(dict.fromkeys(opcodes.split(), (make, frozenset(flags.split()))))
        return make

    return add


def form_of(instruction: Instruction) -> Form:
    """Return the computation of *instruction*."""
    make, flags = ROWS[instruction.opcode]
    words = Words(instruction)
    if not flags.issuperset(words.flags) or not (words.types or words.opcode == "isspacep"):
        raise instruction.error("not supported")
    return make(words)


def alike(kind: Type, count: int, compute: Callable, undefined: Callable = smeared) -> Form:
    """Return the form of an instruction with one type for the result and for *count* operands."""
    return Form(kind, (kind,) * count, compute, undefined)


# Numbers

_NAN = {2: np.array(0x7FFF, np.uint16).view(np.float16), 4: np.array(0x7FFFFFFF, np.uint32).view(np.float32)}


def finished(result: np.ndarray) -> np.ndarray:
    """Return the results of an instruction with the NaN that devices give."""
    nan = _NAN.get(result.dtype.itemsize)
    return result if nan is None else np.where(np.isnan(result), nan, result)


def arithmetic(words: Words, count: int, compute: Callable) -> Form:
    """Return the form of a sum, product, quotient or root."""
    kind = words.types[-1]
    if kind.floating:
        return alike(kind, count, lambda *values: finished(compute(*values)))
    return alike(kind, count, compute, upward)


@row("add sub", "rn rz")
def _sum(words: Words) -> Form:
    if "rz" in words:
        if words.opcode == "add":
            return arithmetic(words, 2, toward_zero)
        return arithmetic(words, 2, lambda a, b: np.where(np.isnan(b), a - b, toward_zero(a, -b)))
    return arithmetic(words, 2, getattr(operator, words.opcode))


@row("rcp sqrt", "rn")
def _root(words: Words) -> Form:
    return arithmetic(words, 1, np.sqrt if words.opcode == "sqrt" else np.reciprocal)


@row("abs neg")
def _sign(words: Words) -> Form:
    kind, compute = words.types[-1], np.abs if words.opcode == "abs" else np.negative
    if not kind.floating:
        return alike(kind, 1, compute)
    # The negation of a NaN of type double keeps its sign.
    keeps = words.opcode == "neg" and kind.bits == 64
    return alike(kind, 1, lambda a: finished(np.where(np.isnan(a) & keeps, a + a, compute(a))))


@row("copysign")
def _sign_of_first(words: Words) -> Form:
    return alike(words.types[-1], 2, lambda a, b: np.copysign(b, a))


def high(a: np.ndarray, b: np.ndarray, kind: Type) -> np.ndarray:
    """Return the upper half of products."""
    a, b = np.broadcast_arrays(a, b)
    products = [x * y >> kind.bits for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    return np.array(products, kind.dtype)


@row("mul mad fma", "rn lo hi wide")
def _product(words: Words) -> Form:
    kind = words.types[-1]
    adds = words.opcode != "mul"
    if kind.floating:
        return arithmetic(words, 2 + adds, fused if adds else operator.mul)
    result, compute = kind, (lambda a, b: high(a, b, kind)) if "hi" in words else operator.mul
    if "wide" in words:
        result = type_of(f"{kind.kind}{kind.bits * 2}")

        def compute(a, b):
            return a.astype(result.dtype) * b.astype(result.dtype)

    rule = upward if "lo" in words else smeared
    if adds:
        return Form(result, (kind, kind, result), lambda a, b, c: compute(a, b) + c, rule)
    return Form(result, (kind, kind), compute, rule)


@row("div rem", "rn")
def _quotient(words: Words) -> Form:
    kind = words.types[-1]
    if kind.floating:
        return arithmetic(words, 2, operator.truediv)

    def compute(a, b):
        zero = b == 0
        divisor = np.where(zero, kind.dtype.type(1), b)
        remainder = np.fmod(a, divisor)
        return np.where(
            zero, ~kind.dtype.type(0), remainder if words.opcode == "rem" else (a - remainder) // divisor
        )

    return alike(kind, 2, compute)


@row("min max")
def _extreme(words: Words) -> Form:
    kind, least = words.types[-1], words.opcode == "min"
    if not kind.floating:
        return alike(kind, 2, np.minimum if least else np.maximum)

    def compute(a, b):
        result = (np.fmin if least else np.fmax)(a, b)
        # The zeros have an order too.
        signed = (np.logical_or if least else np.logical_and)(np.signbit(a), np.signbit(b))
        return finished(np.where((a == 0) & (b == 0), np.where(signed, -0.0, 0.0).astype(kind.dtype), result))

    return alike(kind, 2, compute)


# Bits

BITWISE = {
    "not": (operator.invert, lambda a, p: p),
    "and": (operator.and_, lambda a, b, p, q: (p & (b | q)) | (q & (a | p))),
    "or": (operator.or_, lambda a, b, p, q: (p & (~b | q)) | (q & (~a | p))),
    "xor": (operator.xor, lambda a, b, p, q: p | q),
}


@row(" ".join(BITWISE))
def _bitwise(words: Words) -> Form:
    compute, rule = BITWISE[words.opcode]
    count = 1 if words.opcode == "not" else 2
    return alike(words.types[-1], count, compute, lambda form, values, undefined: rule(*values, *undefined))


@row("shl shr")
def _shift(words: Words) -> Form:
    kind = words.types[-1]
    function = np.left_shift if words.opcode == "shl" else np.right_shift

    def compute(a, b):
        return function(a, np.minimum(b, np.uint32(kind.bits)).astype(kind.dtype))

    return Form(kind, (kind, U32), compute, moved(1))


@row("bfe")
def _extract(words: Words) -> Form:
    kind = words.types[-1]

    def compute(a, *field):
        start, length = (np.minimum(x & np.uint32(255), np.uint32(64)).astype(np.int64) for x in field)
        wide = a.astype(f"{kind.dtype.kind}8")
        # The highest bit of the field goes to the top; beyond the type there is its sign, or zeros.
        drop = np.maximum(64 - start - length, 0).astype(wide.dtype)
        field_bits = np.right_shift(np.right_shift(np.left_shift(wide, drop), drop), start.astype(wide.dtype))
        return np.where(length == 0, kind.dtype.type(0), field_bits.astype(kind.dtype))

    return Form(kind, (kind, U32, U32), compute, moved(1))


def masks(start: np.ndarray, length: np.ndarray, kind: Type) -> np.ndarray:
    """Return *length* ones from the bit *start* on."""
    one = kind.dtype.type(1)
    start, length = (np.minimum(x, np.uint32(kind.bits)).astype(kind.dtype) for x in (start, length))
    return np.left_shift(np.left_shift(one, length) - one, start)


@row("bfi")
def _insert(words: Words) -> Form:
    kind = words.types[-1]

    def compute(a, b, *field):
        start, length = (x & np.uint32(255) for x in field)
        mask = masks(start, length, kind)
        return (b & ~mask) | (np.left_shift(a, start.astype(kind.dtype)) & mask)

    return Form(kind, (kind, kind, U32, U32), compute, moved(2))


@row("bmsk", "clamp")
def _mask(words: Words) -> Form:
    kind = words.types[-1]
    return alike(kind, 2, lambda start, length: masks(start, length, kind))


@row("prmt")
def _permute(words: Words) -> Form:
    def compute(a, b, control):
        both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
        result = np.uint32(0)
        for position in range(4):
            chosen = (control >> np.uint32(4 * position)) & np.uint32(15)
            byte = (both >> ((chosen & np.uint32(7)).astype(np.uint64) * np.uint64(8))).astype(np.uint8)
            byte = np.where(chosen & np.uint32(8), np.right_shift(byte.view(np.int8), 7).view(np.uint8), byte)
            result = result | (byte.astype(np.uint32) << np.uint32(8 * position))
        return result

    return Form(words.types[-1], (U32,) * 3, compute, moved(2))


# Comparisons and choices

ORDERED = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
ORDERED |= {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
UNORDERED = {f"{name}u": name for name in ("eq", "ne", "lt", "le", "gt", "ge")}


@row("setp", " ".join((*ORDERED, *UNORDERED, "num", "nan")))
def _compared(words: Words) -> Form:
    kind, (name,) = words.types[-1], words.flags

    def compute(a, b):
        nan = (np.isnan(a) | np.isnan(b)) if kind.floating else np.zeros(1, bool)
        if name in ("num", "nan"):
            return nan if name == "nan" else ~nan
        if name in UNORDERED:
            return getattr(operator, UNORDERED[name])(a, b) | nan
        return getattr(operator, ORDERED[name])(a, b) & ~nan

    return Form(PRED, (kind, kind), compute)


@row("selp")
def _choice(words: Words) -> Form:
    kind = type_of(f"b{words.types[0].bits}")
    return Form(kind, (kind, kind, PRED), lambda a, b, c: np.where(c, a, b), moved(2))


# Conversions

INTEGRAL = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@row("cvt", " ".join(("rn", *INTEGRAL)))
def _converted(words: Words) -> Form:
    target, source = words.types
    whole = next((INTEGRAL[flag] for flag in words.flags if flag in INTEGRAL), None)
    if (source.kind + target.kind, source.bits, target.bits) in (
        ("ff", 16, 64),
        ("ff", 64, 32),
        ("ff", 64, 16),
    ):
        # Conversions from and to doubles keep the payload of a NaN as far as it fits, and make the NaN quiet.
        return Form(target, (source,), lambda x: x.astype(target.dtype) * target.dtype.type(1))
    if target.floating:
        return Form(target, (source,), lambda x: finished((whole(x) if whole else x).astype(target.dtype)))
    if source.floating:
        return Form(target, (source,), lambda x: to_integer(whole(x.astype(np.float64)), target, source))
    return Form(target, (source,), lambda x: x.astype(target.dtype), moved(1))


def to_integer(x: np.ndarray, target: Type, source: Type) -> np.ndarray:
    """Return whole numbers as integers, those out of range as the nearest."""
    limits, nan = np.iinfo(target.dtype), np.isnan(x)
    low, high = x < float(limits.min), x >= 2.0 ** (target.bits - (target.kind == "s"))
    result = np.where(low | high | nan, 0, x).astype(target.dtype)
    for where, value in ((low, limits.min), (high, limits.max)):
        result = np.where(where, target.dtype.type(value), result)
    unknown = 0 if source.bits < 64 and target.bits < 64 else 1 << (target.bits - 1)
    return np.where(nan, np.array(unknown, target.raw).view(target.dtype), result)


@row("cvta", "to " + " ".join(WINDOWS))
def _generic(words: Words) -> Form:
    base = np.uint64(WINDOWS[words.flags[-1]])
    compute = (lambda a: a - base) if "to" in words else (lambda a: a + base)
    return alike(U64, 1, compute, undefined=upward)


@row("isspacep", " ".join(WINDOWS))
def _is_space(words: Words) -> Form:
    window = WINDOWS[words.flags[0]] // WINDOW
    return Form(PRED, (U64,), lambda a: a // np.uint64(WINDOW) == window)
