"""Instructions that the machine of the tests does not know, against NumPy and Python."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
from instructions import HEAD, Sample, bits_of, kernel

from numba_ptxlink._cpu.run import CpuProgram, Region
from numba_ptxlink._tools.launching import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 512
U32 = ("u32", "u32")
I64, MASK = np.int64, 0xFFFFFFFF


def elements(bits: np.ndarray, kind: str) -> np.ndarray:
    """Return the elements of 32-bit registers as integers of 64 bits."""
    return (
        bits.view(np.uint8)
        .view(f"{'i' if kind[0] == 's' else 'u'}{bits_of(kind) // 8}")
        .reshape(COUNT, -1)
        .astype(I64)
    )


def simd(compute: Callable, kinds: tuple[str, ...], *, sat: str = "", add: bool = False) -> Callable:
    """Return a function that computes a SIMD video instruction, from one that computes an element."""

    def whole(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        result = compute(elements(a, kinds[0]), elements(b, kinds[1])).astype(I64)
        if sat:
            limits = np.iinfo(f"{'i' if sat[0] == 's' else 'u'}{bits_of(sat) // 8}")
            result = result.clip(limits.min, limits.max)
        if add:
            return result.sum(axis=1) + c
        return result.astype(f"u{bits_of(kinds[0]) // 8}").view(np.uint32)[:, 0]

    return whole


def find_nth(mask: int, base: int, offset: int) -> int:
    """Return the position of the n-th bit that is set, as a loop of Python finds it."""
    step = -1 if offset < 0 else 1
    positions = range(base, 32 if step > 0 else -1, step)
    if offset == 0:
        return base if mask >> base & 1 else MASK
    set_bits = [position for position in positions if mask >> position & 1]
    return set_bits[abs(offset) - 1] if len(set_bits) >= abs(offset) else MASK


def extend(mode: str, *, is_signed: bool) -> Callable:
    """Return a function that computes `szext`."""

    def one(value: int, length: int) -> int:
        length = min(length, 32) if mode == "clamp" else length % 32
        field = value & ((1 << length) - 1)
        return field - (1 << length) if is_signed and length and field >> (length - 1) else field

    return lambda a, b: np.array(list(map(one, a.tolist(), b.tolist())), I64)


def packed(kind: str) -> Callable:
    """Return a function that computes `cvt.pack` of two integers and the bits before them."""
    bits, is_signed = int(kind[1:]), kind[0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)

    def whole(a: np.ndarray, b: np.ndarray, c: np.ndarray | int = 0) -> np.ndarray:
        one, two = (
            register.view(np.int32).astype(I64).clip(low, high) & ((1 << bits) - 1) for register in (a, b)
        )
        return (np.asarray(c).astype(I64) << 2 * bits) | one << bits | two

    return whole


def permutation(mode: str) -> Callable:
    """Return a function that computes a mode of `prmt`."""

    def one(a: int, b: int, control: int) -> int:
        data, n = struct.pack("<II", a, b), control & 3
        chosen = {
            "f4e": [n, n + 1, n + 2, n + 3],
            "b4e": [n, (n - 1) % 8, (n - 2) % 8, (n - 3) % 8],
            "rc8": [n] * 4,
            "ecl": [max(byte, n) for byte in range(4)],
            "ecr": [min(byte, n) for byte in range(4)],
            "rc16": [2 * (n & 1), 2 * (n & 1) + 1] * 2,
        }[mode]
        return int.from_bytes(bytes(data[byte] for byte in chosen), "little")

    return lambda *registers: np.array(
        [one(*row) for row in zip(*(register.tolist() for register in registers), strict=True)], I64
    )


def float8(dtype: type) -> Callable:
    """Return the pairs of floats of 8 bits that two floats, or a pair of halves, are rounded to."""
    largest = float(ml_dtypes.finfo(dtype).max)

    def encode(values: np.ndarray) -> np.ndarray:
        numbers = np.where(np.isnan(values), values, values.astype(np.float64).clip(-largest, largest))
        bits = numbers.astype(dtype).view(np.uint8)
        return np.where(np.isnan(values), 0x7F, bits).astype(np.uint16)

    def whole(a: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
        if b is None:
            halves = a.view(np.float16).reshape(COUNT, 2)
            return encode(halves[:, 1]) << 8 | encode(halves[:, 0])
        return encode(a.view(np.float32)) << 8 | encode(b.view(np.float32))

    return whole


def from_float8(dtype: type) -> Callable:
    """Return the pairs of halves that pairs of floats of 8 bits are."""

    def whole(a: np.ndarray) -> np.ndarray:
        halves = a.view(np.uint8).view(dtype).astype(np.float16)
        bits = halves.view(np.uint16)
        return np.where(np.isnan(halves), 0x7FFF, bits).astype(np.uint16).view(np.uint32)

    return whole


def high24(a: np.ndarray, b: np.ndarray, *, is_signed: bool) -> np.ndarray:
    """Return bits 16 to 47 of the product of the lowest 24 bits."""
    one, two = (register.astype(np.int32).astype(I64) & 0xFFFFFF for register in (a, b))
    if is_signed:
        one, two = (number - (number >> 23 << 24) for number in (one, two))
    return one * two >> 16


def select_by_sign(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the first where the third is not negative, and the second elsewhere."""
    return np.where(c.view(f"{'f' if c.dtype == np.float32 else 'i'}{c.itemsize}") >= 0, a, b)


def look_up(a: np.ndarray, b: np.ndarray, c: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return the bits of a table that the bits of three registers name."""
    result = np.zeros_like(a)
    for index in range(8):
        is_named = (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        result |= np.where(table >> index & 1, is_named, 0).astype(a.dtype)
    return result


E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


# Opcode: the type of the result, the types of the operands, and a function of their bits.
def to_tf32(bits: np.ndarray) -> np.ndarray:
    """Return floats with 10 bits after the point, rounded to nearest, ties away from zero."""
    exact = bits.view(np.float32).astype(np.float64)
    scale = 2.0 ** (np.maximum(np.frexp(exact)[1], -125) - 11)
    rounded = np.where(np.isfinite(exact), np.trunc(exact / scale + np.copysign(0.5, exact)) * scale, exact)
    # A NaN keeps its sign and the bits that a tf32 has, as on an H200.
    return np.where(np.isnan(exact), bits & 0xFFFFE000, rounded.astype(np.float32).view(np.uint32))


ROWS = {
    "vadd4.u32.s32.u32": ("u32", (*U32, "u32"), simd(np.add, ("s8", "u8"))),
    "vadd2.s32.s32.s32.sat": ("u32", (*U32, "u32"), simd(np.add, ("s16", "s16"), sat="s16")),
    "vsub4.u32.u32.u32.sat": ("u32", (*U32, "u32"), simd(np.subtract, ("u8", "u8"), sat="u8")),
    "vsub2.s32.u32.s32.add": ("u32", (*U32, "u32"), simd(np.subtract, ("u16", "s16"), add=True)),
    "vmin4.s32.s32.s32": ("u32", (*U32, "u32"), simd(np.minimum, ("s8", "s8"))),
    "vmax2.u32.u32.u32": ("u32", (*U32, "u32"), simd(np.maximum, ("u16", "u16"))),
    "vabsdiff4.u32.u32.u32.add": (
        "u32",
        (*U32, "u32"),
        simd(lambda a, b: abs(a - b), ("u8", "u8"), add=True),
    ),
    "vabsdiff2.s32.s32.s32": ("u32", (*U32, "u32"), simd(lambda a, b: abs(a - b), ("s16", "s16"))),
    "vavrg4.s32.s32.s32": (
        "u32",
        (*U32, "u32"),
        simd(lambda a, b: (a + b + (a + b >= 0)) >> 1, ("s8", "s8")),
    ),
    "vset2.s32.s32.lt": ("u32", (*U32, "u32"), simd(np.less, ("s16", "s16"))),
    "vset4.u32.u32.ge.add": ("u32", (*U32, "u32"), simd(np.greater_equal, ("u8", "u8"), add=True)),
    "mul24.hi.u32": ("u32", U32, lambda a, b: high24(a, b, is_signed=False)),
    "mul24.hi.s32": ("s32", U32, lambda a, b: high24(a, b, is_signed=True)),
    "mad24.hi.s32": ("s32", (*U32, "u32"), lambda a, b, c: high24(a, b, is_signed=True) + c),
    "mad24.hi.sat.s32": (
        "s32",
        (*U32, "u32"),
        lambda a, b, c: (high24(a, b, is_signed=True) + c.view(np.int32)).clip(-(2**31), 2**31 - 1),
    ),
    "mad.hi.sat.s32": (
        "s32",
        (*U32, "u32"),
        lambda a, b, c: ((a.view(np.int32).astype(I64) * b.view(np.int32) >> 32) + c.view(np.int32)).clip(
            -(2**31), 2**31 - 1
        ),
    ),
    "szext.clamp.u32": ("u32", U32, extend("clamp", is_signed=False)),
    "szext.wrap.u32": ("u32", U32, extend("wrap", is_signed=False)),
    "szext.clamp.s32": ("u32", U32, extend("clamp", is_signed=True)),
    "szext.wrap.s32": ("u32", U32, extend("wrap", is_signed=True)),
    "slct.u32.s32": ("u32", (*U32, "u32"), select_by_sign),
    "slct.b64.s32": ("b64", ("b64", "b64", "u32"), select_by_sign),
    "slct.f32.f32": ("f32", ("f32", "f32", "f32"), lambda a, b, c: np.where(c.view(np.float32) >= 0, a, b)),
    **{
        f"prmt.b32.{mode}": ("u32", (*U32, "u32"), permutation(mode))
        for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    },
    "lop3.b32": ("u32", (*U32, "u32", "u32"), look_up),
    "fns.b32": (
        "u32",
        (*U32, "u32"),
        lambda a, b, c: np.array(list(map(find_nth, a.tolist(), b.tolist(), c.view(np.int32).tolist())), I64),
    ),
    "cvt.rna.tf32.f32": ("b32", ("f32",), to_tf32),
    "cvt.pack.sat.u16.s32": ("u32", ("s32", "s32"), packed("u16")),
    "cvt.pack.sat.s8.s32.b32": ("u32", ("s32", "s32", "u32"), packed("s8")),
    "cvt.pack.sat.u4.s32.b32": ("u32", ("s32", "s32", "u32"), packed("u4")),
    "cvt.rn.satfinite.e4m3x2.f32": ("b16", ("f32", "f32"), float8(E4M3)),
    "cvt.rn.satfinite.e5m2x2.f32": ("b16", ("f32", "f32"), float8(E5M2)),
    "cvt.rn.satfinite.e4m3x2.f16x2": ("b16", ("b32",), float8(E4M3)),
    "cvt.rn.satfinite.e5m2x2.f16x2": ("b16", ("b32",), float8(E5M2)),
    "cvt.rn.f16x2.e4m3x2": ("b32", ("b16",), from_float8(E4M3)),
    "cvt.rn.f16x2.e5m2x2": ("b32", ("b16",), from_float8(E5M2)),
}


@pytest.fixture(scope="module")
def program() -> CpuProgram:
    """Return a kernel for each row."""
    texts = (kernel(f"k{n}", Sample(opcode, *row[:2])) for n, (opcode, row) in enumerate(ROWS.items()))
    return CpuProgram.of(HEAD + "".join(texts))


def launch(program: CpuProgram, name: str, *arrays: np.ndarray, threads: int = COUNT) -> None:
    """Launch a kernel with the addresses of arrays."""
    regions = [Region(array.ctypes.data, array.nbytes, True, "array") for array in arrays]
    params = [struct.pack("Q", array.ctypes.data) for array in arrays]
    program.launch(name, Configuration((1, 1, 1), (threads, 1, 1)), params, regions)


@pytest.mark.parametrize("opcode", ROWS)
def test_instructions(program, opcode):
    """Special and random operands have the results of NumPy, Python or ml_dtypes."""
    result, sources, compute = ROWS[opcode]
    operands = Sample(opcode, result, sources).operands(COUNT, np.random.default_rng(7))
    if opcode.startswith("fns"):
        operands = [operands[0], operands[1] % 32, (operands[2] % 65 - 32).astype(np.uint32)]
    if opcode.startswith("slct") and opcode.endswith("f32"):
        operands[2][:4] = np.array([-0.0, 0.0, np.nan, -1e-45], np.float32).view(np.uint32)
    written = np.zeros(COUNT, f"u{bits_of(result) // 8}")
    launch(program, f"k{list(ROWS).index(opcode)}", written, *operands)
    with np.errstate(all="ignore"):
        expected = compute(*operands).astype(written.dtype)
    assert expected.tolist() == written.tolist()


WARP = """
.visible .entry elected(.param .u64 out)
{
    .reg .b64 %d; .reg .b32 %i, %leader, %one; .reg .pred %p, %few;
    mov.u32 %i, %tid.x; ld.param.u64 %d, [out]; mad.wide.u32 %d, %i, 4, %d;
    setp.lt.u32 %few, %i, 5;
    @%few ret;
    elect.sync %leader|%p, 0xffffffe0;
    selp.u32 %one, 100, 0, %p;
    add.u32 %leader, %leader, %one;
    st.global.u32 [%d], %leader;
    ret;
}
.visible .entry reduced(.param .u64 out, .param .u64 in)
{
    .reg .b64 %d, %s; .reg .b32 %i; .reg .f32 %v, %r<4>;
    mov.u32 %i, %tid.x; ld.param.u64 %s, [in]; mad.wide.u32 %s, %i, 4, %s;
    ld.param.u64 %d, [out]; mad.wide.u32 %d, %i, 16, %d;
    ld.global.f32 %v, [%s];
    redux.sync.min.f32 %r0, %v, -1;
    redux.sync.max.f32 %r1, %v, -1;
    redux.sync.max.abs.f32 %r2, %v, -1;
    redux.sync.min.NaN.f32 %r3, %v, -1;
    st.global.v4.f32 [%d], {%r0, %r1, %r2, %r3};
    ret;
}
.visible .entry wide(.param .u64 out)
{
    .reg .b64 %d, %a, %b; .reg .b128 %q<4>; .reg .f32 %f<4>; .reg .b64 %policy;
    ld.param.u64 %d, [out];
    mov.b64 %a, 1; mov.b64 %b, 2; mov.b128 %q0, {%a, %b};
    mov.b64 %a, 3; mov.b64 %b, 4; mov.b128 %q1, {%a, %b};
    atom.global.cas.b128 %q2, [%d], %q0, %q1;
    st.global.b128 [%d+16], %q2;
    createpolicy.fractional.L2::evict_last.b64 %policy, 1.0;
    ld.global.L2::cache_hint.v2.f32 {%f0, %f1}, [%d+32], %policy;
    atom.global.add.L2::cache_hint.v2.f32 {%f2, %f3}, [%d+32], {%f1, %f0}, %policy;
    st.global.L2::cache_hint.v2.f32 [%d+40], {%f2, %f3}, %policy;
    red.global.add.v2.f32 [%d+40], {%f0, %f0};
    ret;
}
"""


@pytest.fixture(scope="module")
def warp_program() -> CpuProgram:
    """Return the kernels of `WARP`."""
    return CpuProgram.of(HEAD.replace("sm_90", "sm_100a").replace("8.6", "8.8") + WARP)


def test_one_thread_is_elected(warp_program):
    """All threads of the mask get the number of the lowest lane, whose predicate is true."""
    leaders = np.zeros(32, np.uint32)
    launch(warp_program, "elected", leaders, threads=32)
    assert [0] * 5 + [105] + [5] * 26 == leaders.tolist()


def test_floats_are_reduced(warp_program):
    """A NaN is ignored, or with `.NaN` the result; `.abs` compares magnitudes."""
    values = np.linspace(-40, 20, 32, dtype=np.float32)
    values[3] = np.nan
    results = np.zeros((32, 4), np.float32)
    launch(warp_program, "reduced", results, values, threads=32)
    assert {(-40.0, 20.0, 40.0)} == {tuple(row) for row in results[:, :3].tolist()}
    assert {0x7FFFFFFF} == set(results[:, 3].view(np.uint32).tolist())


def test_wide_and_vector_atomics(warp_program):
    """128 bits are exchanged as one, elements of a vector one by one, and cache hints have no effect."""
    memory = np.zeros(8, np.uint64)
    # Atomics of 128 bits need aligned memory.
    start = -memory.ctypes.data % 16 // 8
    words = memory[start : start + 6]
    words[:2], words[4:5].view(np.float32)[:] = (1, 2), (0.5, 2)
    launch(warp_program, "wide", words, threads=1)
    assert [3, 4, 1, 2] == words[:4].tolist()
    assert [2.5, 2.5, 1.0, 2.5] == words[4:].view(np.float32).tolist()
