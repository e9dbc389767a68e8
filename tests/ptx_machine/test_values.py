"""The machine's arithmetic beside Python's integers and fractions."""

from __future__ import annotations

import math
import re
import zlib
from fractions import Fraction

import numpy as np
import pytest
from emulator import Machine
from instructions import HEAD, Sample, bits_of, kernel, samples

LANES = 128
SAMPLES = {sample.opcode: sample for sample in samples()}


def field(value: int, start: int, length: int, *, signed: bool, bits: int) -> int:
    """Return what `bfe` extracts."""
    start, length = start & 255, length & 255
    at = range(start, start + length)
    sign = (value >> min(start + length - 1, bits - 1) & 1) if signed and length else 0
    chosen = [value >> place & 1 if place < bits else sign for place in at if place - start < bits]
    chosen += [sign] * (bits - len(chosen))
    return sum(bit << place for place, bit in enumerate(chosen))


def permuted(a: int, b: int, control: int) -> int:
    """Return what `prmt` makes of eight bytes."""
    octets = (a | b << 32).to_bytes(8, "little")
    chosen = [(octets[control >> 4 * place & 7], control >> 4 * place & 8) for place in range(4)]
    return int.from_bytes(bytes((byte > 127) * 255 if sign else byte for byte, sign in chosen), "little")


def inserted(a: int, b: int, start: int, length: int, bits: int) -> int:
    """Return what `bfi` makes."""
    mask = sum(1 << place for place in range(start & 255, min((start & 255) + (length & 255), bits)))
    return b & ~mask | a << (start & 255) & mask


def quotient(a: int, b: int, bits: int) -> int:
    """Return a / b, truncated; all ones for 0."""
    return (abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)) if b else (1 << bits) - 1


# Of the operands as Python's integers, those of b types unsigned, and the bits of the type.
WHOLE = {
    "add": lambda n, a, b: a + b,
    "sub": lambda n, a, b: a - b,
    "mul.lo": lambda n, a, b: a * b,
    "mul.hi": lambda n, a, b: a * b >> n,
    "mul.wide": lambda n, a, b: a * b,
    "mad.lo": lambda n, a, b, c: a * b + c,
    "mad.hi": lambda n, a, b, c: (a * b >> n) + c,
    "mad.wide": lambda n, a, b, c: a * b + c,
    "div": lambda n, a, b: quotient(a, b, n),
    "rem": lambda n, a, b: a - quotient(a, b, n) * b if b else -1,
    "min": lambda n, a, b: min(a, b),
    "max": lambda n, a, b: max(a, b),
    "abs": lambda n, a: abs(a),
    "neg": lambda n, a: -a,
    "add.sat": lambda n, a, b: min(max(a + b, -(2**31)), 2**31 - 1),
    "sub.sat": lambda n, a, b: min(max(a - b, -(2**31)), 2**31 - 1),
    "sad": lambda n, a, b, c: abs(a - b) + c,
    "and": lambda n, a, b: a & b,
    "or": lambda n, a, b: a | b,
    "xor": lambda n, a, b: a ^ b,
    "not": lambda n, a: ~a,
    "shl": lambda n, a, b: a << min(b, 64),
    "shr": lambda n, a, b: a >> min(b, n),
    "shf.l.wrap": lambda n, a, b, c: ((b << 32 | a) << (c & 31)) >> 32,
    "shf.r.wrap": lambda n, a, b, c: (b << 32 | a) >> (c & 31),
    "shf.l.clamp": lambda n, a, b, c: ((b << 32 | a) << min(c, 32)) >> 32,
    "shf.r.clamp": lambda n, a, b, c: (b << 32 | a) >> min(c, 32),
    "bfi": lambda n, a, b, c, d: inserted(a, b, c, d, n),
    "bmsk.clamp": lambda n, a, b: ((1 << min(a + b, n)) - 1) & -(1 << min(a, n)),
    "bmsk.wrap": lambda n, a, b: ((1 << min(a % n + b % n, n)) - 1) & -(1 << a % n),
    "prmt": lambda n, a, b, c: permuted(a, b, c),
    "popc": lambda n, a: a.bit_count(),
    "clz": lambda n, a: n - a.bit_length(),
    "bfind": lambda n, a: (a if a >= 0 else ~a).bit_length() - 1,
    "bfind.shiftamt": lambda n, a: (
        n - 1 - top if (top := (a if a >= 0 else ~a).bit_length() - 1) >= 0 else -1
    ),
    "brev": lambda n, a: int(f"{a:0{n}b}"[::-1], 2),
    "selp": lambda n, a, b, c: a if c else b,
    "slct": lambda n, a, b, c: a if c >= 0 else b,
    **{
        f"setp.{name}": compare
        for names, compare in (
            ("eq", lambda n, a, b: a == b),
            ("ne", lambda n, a, b: a != b),
            ("lt lo", lambda n, a, b: a < b),
            ("le ls", lambda n, a, b: a <= b),
            ("gt hi", lambda n, a, b: a > b),
            ("ge", lambda n, a, b: a >= b),
        )
        for name in names.split()
    },
    "setp.lt.and": lambda n, a, b, c: a < b and c,
    "setp.ge.xor": lambda n, a, b, c: (a >= b) != c,
}
FRACTIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "fma": lambda a, b, c: a * b + c,
    "div": lambda a, b: a / b if b else None,
    "rcp": lambda a: 1 / a if a else None,
    "cvt": lambda a: a,
}


def executed(sample: Sample, *, seed: str = "") -> tuple[list[np.ndarray], np.ndarray]:
    """Return the bits of random operands and of what the machine computes."""
    rng = np.random.default_rng(zlib.crc32(f"{sample.opcode} {seed}".encode()))
    given = sample.operands(LANES, rng)
    machine = Machine(HEAD + kernel("k", sample))
    out = machine.array(np.zeros(LANES * 8, np.uint8))
    machine.launch("k", 1, LANES, [out, *map(machine.array, given)])
    return given, machine.read(out, LANES, f"u{bits_of(sample.result) // 8}")


def numbers(kind: str, bits: np.ndarray) -> list:
    """Return bits as Python's numbers."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).tolist()
    letter = "f" if "f" in kind else "i" if kind[0] == "s" else "u"
    return bits.view(f"{letter}{bits.dtype.itemsize}").tolist()


def name_of(sample: Sample) -> str:
    """Return the opcode without its types."""
    words = sample.opcode.split(".")
    return ".".join(word for word in words if word != "pred" and not re.fullmatch(r"(b|u|s|f|bf)\d+", word))


def is_whole(sample: Sample) -> bool:
    """Return whether Python's integers say what a sample computes."""
    floating = any("f" in kind for kind in (sample.result, *sample.sources))
    return not floating and name_of(sample) in (*WHOLE, "bfe")


@pytest.mark.parametrize("sample", list(filter(is_whole, SAMPLES.values())), ids=lambda sample: sample.opcode)
def test_integers_are_pythons(sample):
    """Instructions on integers, bits and predicates compute what Python does."""
    given, results = executed(sample)
    name, kind = name_of(sample), sample.sources[0]
    bits = 1 if kind == "pred" else bits_of(kind)
    rows = zip(*(numbers(*pair) for pair in zip(sample.sources, given, strict=True)), strict=True)
    for row, result in zip(rows, results.tolist(), strict=True):
        if name == "bfe":
            expected = field(row[0], *row[1:], signed=kind[0] == "s", bits=bits)
        else:
            expected = WHOLE[name](bits, *row)
        width = 1 if sample.result == "pred" else bits_of(sample.result)
        assert (row, expected % (1 << width)) == (row, result)


def is_rational(sample: Sample) -> bool:
    """Return whether a sample rounds what fractions say."""
    name, *words = name_of(sample).split(".")
    return name in FRACTIONS and "f" in sample.result and set(words) <= {"rn", "rz", "rm", "rp"}


@pytest.mark.parametrize(
    "sample", list(filter(is_rational, SAMPLES.values())), ids=lambda sample: sample.opcode
)
def test_floating_point_numbers_are_rounded_as_the_modifier_says(sample):
    """No number of the type lies between a result and what fractions say, and it is on the right side."""
    given, results = executed(sample)
    words = sample.opcode.split(".")
    mode = next((word for word in words if word in ("rz", "rm", "rp")), "rn")
    rows = zip(*(numbers(*pair) for pair in zip(sample.sources, given, strict=True)), strict=True)
    one = results.dtype.type(1)
    near = zip(
        *(numbers(sample.result, each) for each in (results - one, results, results + one)), strict=True
    )
    count = 0
    for row, (one, result, other) in zip(rows, near, strict=True):
        exact = FRACTIONS[words[0]](*map(Fraction, row)) if all(map(math.isfinite, row)) else None
        if not exact or not all(map(math.isfinite, (one, result, other))) or not result:
            continue
        count += 1
        error, *others = (abs(exact - Fraction(each)) for each in (result, one, other))
        if mode == "rn":
            assert error <= min(others), row
            continue
        below = Fraction(result) < exact if mode == "rp" else Fraction(result) > exact
        assert not (abs(Fraction(result)) > abs(exact) if mode == "rz" else below), row
        assert error < max(others), row
    assert count > LANES // 8


@pytest.mark.parametrize(
    ("opcode", "given", "expected"),
    [
        ("add.f32", (np.float32(np.inf), np.float32(-np.inf)), 0x7FFFFFFF),
        ("sub.rm.f32", (np.float32(1), np.float32(1)), 0x80000000),
        ("add.rp.f32", (np.float32(1), np.float32(-1)), 0),
        ("mul.ftz.f32", (np.float32(-1e-40), np.float32(1)), 0x80000000),
        ("add.sat.f32", (np.float32(np.nan), np.float32(1)), 0),
        ("min.f32", (np.float32(0.0), np.float32(-0.0)), 0x80000000),
        ("max.f32", (np.float32(np.nan), np.float32(2)), 0x40000000),
        ("min.NaN.f32", (np.float32(np.nan), np.float32(2)), 0x7FFFFFFF),
        ("cvt.rzi.s32.f32", (np.float32(np.nan),), 0),
        ("cvt.rzi.s32.f64", (np.float64(np.nan),), 0x80000000),
        ("cvt.rzi.u32.f32", (np.float32(-3.5),), 0),
        ("cvt.rni.s32.f32", (np.float32(2.5),), 2),
        ("cvt.rzi.s64.f64", (np.float64(1e30),), 2**63 - 1),
        ("cvt.rn.f16.f32", (np.float32(65520),), 0x7C00),
        ("cvt.rz.f16.f32", (np.float32(65520),), 0x7BFF),
        ("copysign.f32", (np.float32(-1), np.float32(2)), 0xC0000000),
        ("div.s32", (np.int32(-(2**31)), np.int32(-1)), 0x80000000),
        ("cvt.sat.u8.s32", (np.int32(300),), 255),
    ],
)
def test_special_values(opcode, given, expected):
    """What rounding, flushing and conversions make of special values is what the manual says."""
    sample = SAMPLES[opcode]
    machine = Machine(HEAD + kernel("k", sample))
    out = machine.array(np.zeros(8, np.uint8))
    machine.launch("k", 1, 1, [out, *(machine.array(np.array([value])) for value in given)])
    assert expected == machine.read(out, 1, f"u{bits_of(sample.result) // 8}")[0]


def test_every_instruction_of_the_table_executes():
    """None is refused, and those that devices approximate are listed."""
    inexact = set()
    for sample in SAMPLES.values():
        machine = Machine(HEAD + kernel("k", sample))
        arrays = [machine.array(np.zeros(8 * LANES, np.uint8)) for _ in range(1 + len(sample.sources))]
        machine.launch("k", 1, 2, arrays)
        inexact |= {sample.opcode for _ in machine.inexact}
    assert {sample.opcode for sample in SAMPLES.values() if sample.inexact} == inexact
