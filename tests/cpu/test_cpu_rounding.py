"""Instructions that round in a direction return the exact result, rounded, also at the ends of the range."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from instructions import HEAD

from numba_ptxlink._cpu.run import CpuProgram

COUNT = 150
OPERANDS = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "div": 2, "rcp": 1, "sqrt": 1}
MODES = ("rz", "rp", "rm")
TYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "s32": np.int32,
    "u32": np.uint32,
    "s64": np.int64,
    "u64": np.uint64,
}
CONVERSIONS = [
    ("f32", "f64"),
    *((to, source) for to in ("f32", "f64") for source in ("s32", "u32", "s64", "u64")),
]
CASES = [
    (f"{opcode}.{mode}.{kind}", kind, [kind] * count)
    for opcode, count in OPERANDS.items()
    for mode in MODES
    for kind in ("f32", "f64")
] + [(f"cvt.{mode}.{to}.{source}", to, [source]) for mode in MODES for to, source in CONVERSIONS]


def function(number: int, opcode: str, result: str, sources: list[str]) -> str:
    """Return a function of one instruction."""
    names = [f"%a{index}" for index in range(len(sources))]
    registers = {
        name: f".reg .{kind.replace('s', 'b').replace('u', 'b')} {name};"
        for name, kind in zip([*names, "%r"], [*sources, result], strict=True)
    }
    params = ", ".join(f".param .b{kind[1:]} p{index}" for index, kind in enumerate(sources))
    loads = "".join(f"ld.param.{kind} %a{index}, [p{index}]; " for index, kind in enumerate(sources))
    return (
        f".func (.param .b{result[1:]} r) f{number}({params}) {{ {' '.join(registers.values())} {loads}"
        f"{opcode} %r, {', '.join(names)}; st.param.{result} [r], %r; ret; }}\n"
    )


@pytest.fixture(scope="module")
def program() -> CpuProgram:
    """Return a program with a function for each instruction."""
    return CpuProgram.of(HEAD + "".join(function(number, *case) for number, case in enumerate(CASES)))


def samples(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return numbers of all sizes, among them the smallest and the largest."""
    dtype = np.dtype(TYPES[kind])
    if kind[0] != "f":
        limits = np.iinfo(dtype)
        spread = rng.integers(limits.min, limits.max, COUNT, dtype, endpoint=True)
        return spread >> rng.integers(0, 8 * dtype.itemsize, COUNT).astype(dtype)
    any_bits = rng.bytes(COUNT * dtype.itemsize)
    limits = np.finfo(dtype)
    special = [0.0, -0.0, np.inf, -np.inf, limits.max, limits.tiny, limits.smallest_subnormal, 1, 3]
    chosen = rng.choice(np.array([*special, *(-value for value in special)], dtype), COUNT)
    near = (
        rng.integers(-9, 9, COUNT) * rng.choice(np.array([1, 1 + limits.eps, limits.tiny], dtype), COUNT)
    ).astype(dtype)
    return np.choose(rng.integers(0, 3, COUNT), [np.frombuffer(any_bits, dtype), chosen, near])


def rounded(exact: Fraction, mode: str, dtype: np.dtype, *, root: bool = False) -> float:
    """Return a number that is not zero, or its square root, as a float of a type."""
    limits = np.finfo(dtype)
    size = Fraction(math.isqrt(int(exact * 4**1100))) / 2**1100 if root else abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, int(limits.minexp)) - int(limits.nmant))
    scaled = exact / unit / unit if root else abs(exact) / unit
    below = math.isqrt(math.floor(scaled)) if root else math.floor(scaled)
    grows = mode == ("rp" if exact > 0 else "rm")
    below += grows and (below * below if root else below) != scaled
    largest = Fraction(float(limits.max))
    limited = math.inf if grows else largest
    return math.copysign(below * unit if below * unit <= largest else limited, 1 if exact > 0 else -1)


def special(opcode: str, values: list[float]) -> float:
    """Return a result of infinities or no numbers, or of a division by zero: no rounding takes part."""
    a, b, c = (np.float64(value) for value in [*values, 1, 1][:3])
    with np.errstate(all="ignore"):
        if opcode == "fma":
            return float((a * b if not np.isfinite([a, b]).all() else 0) + c)
        results = {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b, "rcp": 1 / a, "cvt": a}
        return float(results[opcode] if opcode in results else np.sqrt(a))


def zero(opcode: str, mode: str, values: list[float]) -> float:
    """Return a result that is exactly zero."""
    signs = [math.copysign(1, value) for value in values]
    if opcode not in ("add", "sub", "fma"):
        return math.copysign(0.0, math.prod(signs))
    terms = [values[0] * values[1], values[2]] if opcode == "fma" else values
    signs = [math.prod(signs[:-1]), signs[-1] * (-1 if opcode == "sub" else 1)]
    # Two zeros of one sign keep it; otherwise the sum is negative if it is rounded down.
    if not any(terms) and signs[0] == signs[1]:
        return math.copysign(0.0, signs[0])
    return -0.0 if mode == "rm" else 0.0


def expected(opcode: str, mode: str, dtype: np.dtype, values: list[float]) -> float:
    """Return the result of IEEE 754: the exact result, rounded."""
    divisor = {"div": values[-1], "rcp": values[0]}.get(opcode, 1)
    if not np.isfinite(values).all() or divisor == 0 or (opcode == "sqrt" and values[0] < 0):
        return special(opcode, values)
    a, b, c = map(Fraction, [*values, 1, 1][:3])
    results = {"add": a + b, "sub": a - b, "mul": a * b, "fma": a * b + c, "sqrt": a, "cvt": a}
    exact = results[opcode] if opcode in results else (a if opcode == "div" else 1) / Fraction(divisor)
    return rounded(exact, mode, dtype, root=opcode == "sqrt") if exact else zero(opcode, mode, values)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0] for case in CASES])
def test_results_are_exact_results_rounded_in_a_direction(program, number):
    """Sums that cancel, overflow, subnormal results and signed zeros equal the exact result, rounded."""
    opcode, kind, sources = CASES[number]
    rng = np.random.default_rng(number)
    columns = [samples(source, rng) for source in sources]
    if len(columns) > 1:
        with np.errstate(all="ignore"):
            product = columns[0] * columns[1] if len(columns) > 2 else columns[0]
        columns[-1][::5] = -product[::5]
    results = np.zeros(COUNT, TYPES[kind])
    addresses = [(column.ctypes.data, column.itemsize) for column in columns]
    program.call_elementwise(f"f{number}", COUNT, addresses, (results.ctypes.data, results.itemsize), [])
    name, mode, *_ = opcode.split(".")
    exact = [
        expected(name, mode, results.dtype, [value.item() for value in row])
        for row in zip(*columns, strict=True)
    ]
    np.testing.assert_array_equal(results, np.array(exact, results.dtype))
    numbers = ~np.isnan(results)
    assert (np.signbit(np.array(exact, results.dtype)) == np.signbit(results))[numbers].all()
