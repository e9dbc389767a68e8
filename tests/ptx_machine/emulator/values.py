"""
The instructions that compute values: a table of functions that make the `Form` of one.

A form computes all lanes at once; a row names the modifiers that it knows, besides types.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .memory import WINDOW, WINDOWS
from .numbers import MODES, Type, directed, flushed, fused, narrowed, type_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .parse import Instruction

PRED, U32, U64 = map(type_of, ("pred", "u32", "u64"))
ROUNDINGS = "rn rz rm rp"


def smeared(form: Form, values: list, undefined: list) -> np.ndarray:
    """Return all bits of a result for lanes in which any bit of an operand is undefined."""
    del values
    raw = form.results[0].raw
    bad = False
    for bits in undefined:
        bad = bad | (bits != 0)
    return bad if raw is np.bool_ else np.where(bad, ~raw(0), raw(0))


def upward(form: Form, values: list, undefined: list) -> np.ndarray:
    """Return an undefined bit and all above it, for sums and products."""
    if any(bits.dtype != form.results[0].raw for bits in undefined):
        return smeared(form, values, undefined)
    bits = undefined[0]
    for other in undefined[1:]:
        bits = bits | other
    return bits | (~bits + bits.dtype.type(1))


def moved(count: int) -> Callable:
    """Return a rule for results that have bits of the first *count* operands where the others say."""

    def rule(form: Form, values: list, undefined: list) -> np.ndarray:
        pairs = zip(form.sources, undefined[:count], strict=False)
        parts = [kind.unpack(bits) for kind, bits in pairs]
        result = form.results[0]
        bits = result.pack(form.compute(*parts, *values[count:]), result.raw)
        return bits | smeared(form, values, undefined[count:]) if undefined[count:] else bits

    return rule


@dataclass
class Form:
    """
    What an instruction computes.

    Args:
        results: The types that it writes.
        sources: The types that it reads.
        compute: Returns the values of the result, a tuple if there are several.
        undefined: Returns the undefined bits of the result, from values and undefined bits of the operands.
        inexact: Whether devices compute something else, within some error.
    """

    results: tuple[Type, ...]
    sources: tuple[Type, ...]
    compute: Callable
    undefined: Callable = smeared
    inexact: bool = False


class Words:
    """The modifiers of an instruction."""

    def __init__(self, instruction: Instruction) -> None:
        self.opcode, self.operands = instruction.opcode, instruction.operands
        self.types = [kind for word in instruction.words if (kind := type_of(word))]
        self.flags = [word for word in instruction.words if not type_of(word)]
        self.mode = next((MODES[word] for word in self.flags if word in MODES), "n")

    def __contains__(self, flag: str) -> bool:
        return flag in self.flags

    def choice(self, table: dict) -> object:
        """Return what *table* has for the flag that it has, None if it has none."""
        return next((table[flag] for flag in self.flags if flag in table), None)


ROWS: dict[str, tuple[Callable[[Words], Form], frozenset[str]]] = {}


def row(opcodes: str, flags: str = "") -> Callable:
    """Add a row to the table."""

    def add(make: Callable[[Words], Form]) -> Callable[[Words], Form]:
        ROWS.update(dict.fromkeys(opcodes.split(), (make, frozenset(flags.split()))))
        return make

    return add


def form_of(instruction: Instruction) -> Form:
    """Return what *instruction* computes."""
    make, flags = ROWS[instruction.opcode]
    words = Words(instruction)
    if not flags.issuperset(words.flags) or not (words.types or words.opcode == "isspacep"):
        raise instruction.error("not supported")
    return make(words)


def alike(kind: Type, count: int, compute: Callable, **more: object) -> Form:
    """Return the form of an instruction with one type for the result and for *count* operands."""
    return Form((kind,), (kind,) * count, compute, **more)


# Floating-point numbers

NEAREST = {
    "add": lambda a, b, kind: a + b,
    "sub": lambda a, b, kind: a - b,
    "mul": lambda a, b, kind: a * b,
    "div": lambda a, b, kind: a / b,
    "rcp": lambda a, kind: kind.dtype.type(1) / a,
    "sqrt": lambda a, kind: np.sqrt(a),
    "fma": fused,
}
_NAN = {2: np.array(0x7FFF, np.uint16).view(np.float16), 4: np.array(0x7FFFFFFF, np.uint32).view(np.float32)}


def finished(words: Words, kind: Type, result: np.ndarray) -> np.ndarray:
    """Return *result* after what the modifiers ask for, with the NaN that devices give."""
    # What is converted to halves is not flushed.
    if "ftz" in words and not (words.opcode == "cvt" and kind.bits < 32):
        result = flushed(result)
    if "relu" in words:
        result = np.where(result < 0, result.dtype.type(0), result)
    if "sat" in words:
        result = np.where(result > 0, np.minimum(result, result.dtype.type(1)), result.dtype.type(0))
    if kind.bits < 64:
        result = np.where(np.isnan(result), _NAN[result.dtype.itemsize], result)
    return result


def floating(words: Words, name: str, count: int, *, inexact: bool = False) -> Form:
    """Return the form of the arithmetic *name*."""
    kind = words.types[-1]

    def compute(*values):
        if "ftz" in words:
            values = tuple(map(flushed, values))
        result = NEAREST[name](*values, kind)
        if words.mode != "n":
            result = directed(name, result, values, kind, words.mode)
        elif kind.kind == "bf" and name != "fma":
            result = narrowed(result, kind)
        return finished(words, kind, result)

    return alike(kind, count, compute, inexact=inexact)


@row("rcp sqrt", f"{ROUNDINGS} ftz approx")
def _root(words: Words) -> Form:
    return floating(words, words.opcode, 1, inexact="approx" in words)


APPROXIMATIONS = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}


@row(" ".join(APPROXIMATIONS), "approx ftz")
def _approximation(words: Words) -> Form:
    kind, function = words.types[-1], APPROXIMATIONS[words.opcode]

    def compute(x):
        x = flushed(x) if "ftz" in words else x
        return finished(words, kind, function(x.astype(np.float64)).astype(kind.dtype))

    return alike(kind, 1, compute, inexact=True)


@row("abs neg", "ftz")
def _sign(words: Words) -> Form:
    function = np.abs if words.opcode == "abs" else np.negative
    return alike(words.types[-1], 1, (lambda a: function(flushed(a))) if "ftz" in words else function)


@row("copysign")
def _sign_of_first(words: Words) -> Form:
    return alike(words.types[-1], 2, lambda a, b: np.copysign(b, a))


CLASSES = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda a: ~np.isnan(a),
    "notanumber": np.isnan,
    "normal": lambda a: np.isfinite(a) & ((a == 0) | (np.abs(a) >= np.finfo(a.dtype).tiny)),
    "subnormal": lambda a: (a != 0) & (np.abs(a) < np.finfo(a.dtype).tiny),
}


@row("testp", " ".join(CLASSES))
def _class(words: Words) -> Form:
    return Form((PRED,), (words.types[-1],), words.choice(CLASSES))


# Integers, and what both have


@row("add sub", f"{ROUNDINGS} ftz sat")
def _sum(words: Words) -> Form:
    kind = words.types[-1]
    if kind.floating:
        return floating(words, words.opcode, 2)
    compute = operator.add if words.opcode == "add" else operator.sub
    if "sat" in words:
        return alike(kind, 2, lambda a, b: clamped(compute(a.astype(np.int64), b.astype(np.int64)), kind))
    return alike(kind, 2, compute, undefined=upward)


def clamped(values: np.ndarray, kind: Type) -> np.ndarray:
    """Return integers, those out of the range of a type as the nearest in it."""
    limits = np.iinfo(kind.dtype)
    return np.array([min(max(value, limits.min), limits.max) for value in values.tolist()], kind.dtype)


def high(a: np.ndarray, b: np.ndarray, kind: Type) -> np.ndarray:
    """Return the upper half of products."""
    a, b = np.broadcast_arrays(a, b)
    products = [x * y >> kind.bits for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    return np.array(products, kind.dtype)


def product(words: Words) -> tuple[Type, Callable]:
    """Return the type and the function of an integer product."""
    kind = words.types[-1]
    if "wide" in words:
        wide = type_of(f"{kind.kind}{kind.bits * 2}")
        return wide, lambda a, b: a.astype(wide.dtype) * b.astype(wide.dtype)
    return kind, (lambda a, b: high(a, b, kind)) if "hi" in words else operator.mul


@row("mul", f"{ROUNDINGS} ftz sat lo hi wide")
def _product(words: Words) -> Form:
    kind = words.types[-1]
    if kind.floating:
        return floating(words, "mul", 2)
    result, compute = product(words)
    return Form((result,), (kind, kind), compute, upward if "lo" in words else smeared)


@row("mad fma", f"{ROUNDINGS} ftz sat relu lo hi wide")
def _product_sum(words: Words) -> Form:
    kind = words.types[-1]
    if kind.floating:
        return floating(words, "fma", 3)
    result, compute = product(words)
    rule = upward if "lo" in words else smeared
    return Form((result,), (kind, kind, result), lambda a, b, c: compute(a, b) + c, rule)


@row("div rem", f"{ROUNDINGS} ftz approx full")
def _quotient(words: Words) -> Form:
    kind = words.types[-1]
    if kind.floating:
        return floating(words, "div", 2, inexact="approx" in words or "full" in words)

    def compute(a, b):
        zero = b == 0
        divisor = np.where(zero, kind.dtype.type(1), b)
        rest = np.fmod(a, divisor)
        if words.opcode == "rem":
            return np.where(zero, ~kind.dtype.type(0), rest)
        return np.where(zero, ~kind.dtype.type(0), (a - rest) // divisor)

    return alike(kind, 2, compute)


@row("min max", "ftz NaN relu")
def _extreme(words: Words) -> Form:
    kind, least = words.types[-1], words.opcode == "min"
    if not kind.floating:
        return alike(kind, 2, np.minimum if least else np.maximum)

    def compute(a, b, *more):
        if more:
            return compute(compute(a, b), *more)
        result = (np.fmin if least else np.fmax)(a, b)
        # The zeros have an order too.
        signed = (np.logical_or if least else np.logical_and)(np.signbit(a), np.signbit(b))
        zero = np.where(signed, result.dtype.type(-0.0), result.dtype.type(0))
        result = np.where((a == 0) & (b == 0), zero, result)
        if "NaN" in words:
            result = np.where(np.isnan(a) | np.isnan(b), result.dtype.type(np.nan), result)
        return finished(words, kind, result)

    return alike(kind, len(words.operands) - 1, compute)


@row("sad")
def _difference(words: Words) -> Form:
    return alike(words.types[-1], 3, lambda a, b, c: c + np.where(a > b, a - b, b - a))


# Bits


@row("and or xor not")
def _bitwise(words: Words) -> Form:
    kind = words.types[-1]
    if words.opcode == "not":
        return alike(kind, 1, operator.invert, undefined=lambda form, values, undefined: undefined[0])
    rule = {
        "and": lambda a, b, p, q: (p & (b | q)) | (q & (a | p)),
        "or": lambda a, b, p, q: (p & (~b | q)) | (q & (~a | p)),
        "xor": lambda a, b, p, q: p | q,
    }[words.opcode]
    compute = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[words.opcode]
    return alike(kind, 2, compute, undefined=lambda form, values, undefined: rule(*values, *undefined))


@row("lop3")
def _table(words: Words) -> Form:
    def compute(a, b, c, table):
        result = np.uint32(0)
        for number in range(8):
            if int(table[0]) >> number & 1:
                result |= (a if number & 4 else ~a) & (b if number & 2 else ~b) & (c if number & 1 else ~c)
        return result + (a & np.uint32(0))

    def undefined(form, values, bits):
        return bits[0] | bits[1] | bits[2]

    return Form((words.types[-1],), (U32,) * 4, compute, undefined)


@row("shl shr")
def _shift(words: Words) -> Form:
    kind = words.types[-1]
    function = np.left_shift if words.opcode == "shl" else np.right_shift
    bits = np.uint32(kind.bits)
    return Form(
        (kind,), (kind, U32), lambda a, b: function(a, np.minimum(b, bits).astype(kind.dtype)), moved(1)
    )


@row("shf", "l r wrap clamp")
def _funnel(words: Words) -> Form:
    def compute(a, b, c):
        count = (c & np.uint32(31) if "wrap" in words else np.minimum(c, np.uint32(32))).astype(np.uint64)
        both = (b.astype(np.uint64) << np.uint64(32)) | a
        return ((both << count) >> np.uint64(32) if "l" in words else both >> count).astype(np.uint32)

    return Form((U32,), (U32,) * 3, compute, moved(2))


@row("bfe")
def _extract(words: Words) -> Form:
    kind = words.types[-1]

    def compute(a, start, length):
        start, length = (
            np.minimum(x & np.uint32(255), np.uint32(64)).astype(np.int64) for x in (start, length)
        )
        wide = a.astype(f"{kind.dtype.kind}8")
        # The highest bit of the field goes to the top; beyond the type there is its sign, or zeros.
        drop = np.maximum(64 - start - length, 0).astype(wide.dtype)
        start = start.astype(wide.dtype)
        field = np.right_shift(np.right_shift(np.left_shift(wide, drop), drop), start)
        return np.where(length == 0, kind.dtype.type(0), field.astype(kind.dtype))

    return Form((kind,), (kind, U32, U32), compute, moved(1))


@row("bfi")
def _insert(words: Words) -> Form:
    kind = words.types[-1]
    one = kind.dtype.type(1)

    def compute(a, b, start, length):
        start, length = (
            np.minimum(x & np.uint32(255), kind.bits).astype(kind.dtype) for x in (start, length)
        )
        mask = np.left_shift(np.left_shift(one, length) - one, start)
        return (b & ~mask) | (np.left_shift(a, start) & mask)

    return Form((kind,), (kind, kind, U32, U32), compute, moved(2))


@row("bmsk", "clamp wrap")
def _mask(words: Words) -> Form:
    def compute(start, length):
        if "wrap" in words:
            start, length = start & np.uint32(31), length & np.uint32(31)
        end = np.minimum(start.astype(np.uint64) + length, 32)
        low, high = (
            np.left_shift(np.uint64(1), each.astype(np.uint64)) - np.uint64(1)
            for each in (np.minimum(start, np.uint32(32)), end)
        )
        return (high & ~low).astype(np.uint32)

    return alike(words.types[-1], 2, compute)


@row("prmt")
def _permute(words: Words) -> Form:
    def compute(a, b, control):
        both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
        result = np.uint32(0)
        for place in range(4):
            chosen = (control >> np.uint32(4 * place)) & np.uint32(15)
            byte = (both >> ((chosen & np.uint32(7)).astype(np.uint64) * np.uint64(8))).astype(np.uint8)
            byte = np.where(chosen & np.uint32(8), np.right_shift(byte.view(np.int8), 7).view(np.uint8), byte)
            result = result | (byte.astype(np.uint32) << np.uint32(8 * place))
        return result

    return Form((words.types[-1],), (U32,) * 3, compute, moved(2))


def bit_rows(values: np.ndarray) -> np.ndarray:
    """Return the bits of each value as a row, the lowest first."""
    octets = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
    return np.unpackbits(octets, axis=1, bitorder="little")


@row("popc clz bfind brev", "shiftamt")
def _count(words: Words) -> Form:
    kind = type_of(f"u{words.types[-1].bits}")

    def compute(a):
        bits = bit_rows(a)
        if words.opcode == "popc":
            return bits.sum(axis=1, dtype=np.uint32)
        if words.opcode == "brev":
            return np.packbits(bits[:, ::-1], axis=1, bitorder="little").view(a.dtype).reshape(-1)
        if words.types[-1].kind == "s":
            bits ^= bits[:, -1:]
        zeros = np.where(bits.any(axis=1), bits[:, ::-1].argmax(axis=1), kind.bits).astype(np.uint32)
        if words.opcode == "clz":
            return zeros
        found = zeros if "shiftamt" in words else np.uint32(kind.bits - 1) - zeros
        return np.where(zeros == kind.bits, ~np.uint32(0), found)

    return Form((kind if words.opcode == "brev" else U32,), (kind,), compute)


# Comparisons and choices

ORDERED = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
ORDERED |= {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
UNORDERED = {f"{name}u": name for name in ("eq", "ne", "lt", "le", "gt", "ge")}
JOINS = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
COMPARISONS = " ".join((*ORDERED, *UNORDERED, *JOINS, "num nan ftz"))


def comparison(words: Words) -> tuple[Callable, tuple[Type, ...]]:
    """Return a function that compares, and joins a predicate; and the types of its operands."""
    kind = words.types[-1]
    name, join = next(flag for flag in words.flags if flag not in JOINS), words.choice(JOINS)

    def compute(a, b, *joined):
        if "ftz" in words:
            a, b = flushed(a), flushed(b)
        nan = (np.isnan(a) | np.isnan(b)) if kind.floating else False
        if name in ("num", "nan"):
            found = nan if name == "nan" else ~nan
        elif name in UNORDERED:
            found = getattr(operator, UNORDERED[name])(a, b) | nan
        else:
            found = getattr(operator, ORDERED[name])(a, b) & ~np.asarray(nan)
        return tuple(join(each, joined[0]) if join else each for each in (found, ~found))

    return compute, (kind, kind, PRED) if join else (kind, kind)


@row("setp", COMPARISONS)
def _compared(words: Words) -> Form:
    compute, sources = comparison(words)
    if isinstance(words.operands[0], tuple):
        return Form((PRED, PRED), sources, compute)
    return Form((PRED,), sources, lambda *values: compute(*values)[0])


@row("set", COMPARISONS)
def _set(words: Words) -> Form:
    compute, sources = comparison(words)
    result = words.types[0]
    yes = result.dtype.type(1) if result.floating else ~result.dtype.type(0)
    no = result.dtype.type(0)
    return Form((result,), sources, lambda *values: np.where(compute(*values)[0], yes, no))


@row("selp slct", "ftz")
def _choice(words: Words) -> Form:
    kind = type_of(f"b{words.types[0].bits}")
    if words.opcode == "selp":
        return Form((kind,), (kind, kind, PRED), lambda a, b, c: np.where(c, a, b), moved(2))
    return Form((kind,), (kind, kind, words.types[1]), lambda a, b, c: np.where(c >= 0, a, b), moved(2))


# Conversions


@row("cvt", " ".join(MODES) + " ftz sat relu")
def _converted(words: Words) -> Form:
    target, source = words.types
    if target.floating:
        return Form((target,), (source,), _to_float(words, target, source))
    if source.floating:
        return Form((target,), (source,), _to_integer(words, target, source))
    if "sat" in words:
        return Form((target,), (source,), lambda x: clamped(x, target))
    return Form((target,), (source,), lambda x: x.astype(target.dtype), moved(1))


INTEGRAL = {"n": np.rint, "z": np.trunc, "m": np.floor, "p": np.ceil}


def _to_float(words: Words, target: Type, source: Type) -> Callable:
    def compute(x):
        if not source.floating:
            near = narrowed(x.astype(np.float64), target) if target.kind == "bf" else x.astype(target.dtype)
            if words.mode != "n":
                near = directed("cvt", near, (x,), target, words.mode)
            return finished(words, target, near)
        if "ftz" in words and source.bits == 32:
            x = flushed(x)
        if any(flag in words for flag in ("rni", "rzi", "rmi", "rpi")):
            x = INTEGRAL[words.mode](x)
        elif target.bits < source.bits or target.kind != source.kind:
            x = narrowed(x, target, words.mode)
        return finished(words, target, x.astype(target.dtype))

    return compute


def _to_integer(words: Words, target: Type, source: Type) -> Callable:
    limits = np.iinfo(target.dtype)
    nan = 0 if source.bits < 64 and target.bits < 64 else 1 << (target.bits - 1)

    def compute(x):
        if "ftz" in words and source.bits == 32:
            x = flushed(x)
        x = INTEGRAL[words.mode](x.astype(np.float64))
        low, high = x < float(limits.min), x >= 2.0 ** (target.bits - (target.kind == "s"))
        result = np.where(low | high | np.isnan(x), 0, x).astype(target.dtype)
        result = np.where(low, target.dtype.type(limits.min), result)
        result = np.where(high, target.dtype.type(limits.max), result)
        return np.where(np.isnan(x), np.array(nan, target.raw).view(target.dtype), result)

    return compute


@row("cvta", "to " + " ".join(WINDOWS))
def _generic(words: Words) -> Form:
    base = np.uint64(words.choice(WINDOWS))
    compute = (lambda a: a - base) if "to" in words else (lambda a: a + base)
    return alike(U64, 1, compute, undefined=upward)


@row("isspacep", " ".join(WINDOWS))
def _is_space(words: Words) -> Form:
    window = words.choice(WINDOWS) // WINDOW
    return Form((PRED,), (U64,), lambda a: a // np.uint64(WINDOW) == window)
