"""Wrong values of the front ends that the documentation lists, executed on the CPU."""

from __future__ import annotations

import cmath

import front_ends
import numpy as np
import pytest

import numba_ptxlink as pl

RECORD = np.dtype([("x", "i8")])
VECTOR = np.dtype([(name, "f4") for name in "xyzw"])
NUMBERS = np.arange(300, dtype=np.int32)
NAN = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]
BIG = 2**64 - 1
TILE, PADDED_TILE = 8, 8 + 1
UNSIGNED = str(2**32 - 1)


def mlir_cases(cuda):
    """Return for each fault of numba-cuda-mlir: signature, function, arguments, wrong value, right value."""

    @cuda.jit(device=True)
    def pair():
        return cuda.local.array(2, np.int32)

    def to_pointer(pointer, value):
        pointer[0] = value

    def to_member(records, value):
        records[0].x = value

    def to_slice(array, value):
        array[0:1] = value

    def atomic(array, value):
        cuda.atomic.add(array, 0, value)

    def count(first, limit):
        total = 0
        for _ in range(first, limit):
            total += 1
        return total

    def total(first, limit):
        total = 0
        for index in range(first, limit):
            total += index
        return total

    def through_local_array(value):
        array = pair()
        array[0] = value
        return array[0]

    def through_shared_array(value):
        array = cuda.shared.array(TILE + 1, np.int32)
        array[8] = value
        return array[8]

    halves = (np.float16(1.001), np.float16(1.001))
    return {
        "narrow index": ("int32(int32[::1], uint8)", lambda a, i: a[i], (NUMBERS, 200), "fault", "200"),
        "index behind a pointer": (
            "int32(CPointer(int32), int32)",
            lambda p, i: (p + 5)[i],
            (NUMBERS, -1),
            "fault",
            "4",
        ),
        "moved pointer": (
            "float32(CPointer(float32x4))",
            lambda p: (p + 1)[0].x,
            (np.arange(8, dtype=np.float32).view(VECTOR),),
            "fault",
            "4.0",
        ),
        "through a pointer": ("void(CPointer(int64), int32)", to_pointer, (np.int64, -1), UNSIGNED, "-1"),
        "to a member": ("void(RECORD[::1], int32)", to_member, (RECORD, -1), UNSIGNED, "-1"),
        "to a slice": ("void(int64[::1], int32)", to_slice, (np.int64, -1), UNSIGNED, "-1"),
        "by an atomic": ("void(int64[::1], int32)", atomic, (np.int64, -1), UNSIGNED, "-1"),
        "range of uint8": ("int32(uint8, uint8)", count, (0, 200), "0", "200"),
        "range of int8": ("int32(int8, int8)", total, (-1, 1), "255", "-1"),
        "len": ("int64(float32[:, ::1])", lambda a: len(a), (np.zeros((3, 5), np.float32),), "15", "3"),  # noqa: PLW0108
        "to bfloat16": ("bfloat16(float64)", lambda x: x, (1 + 2**-8 + 2**-40,), "1.0", "1.0078125"),
        "NaN to bfloat16": ("bfloat16(float32)", lambda x: x, (NAN,), "-0.0", "nan"),
        "halves": ("float32(float16, float16)", lambda x, y: x * y, halves, "1.0019541", "1.0019531"),
        "clz": ("int32(uint8)", lambda x: cuda.clz(x), (1,), "31", "7"),  # noqa: PLW0108
        "min": ("uint32(uint32, uint32)", lambda x, y: min(x, y), (int(UNSIGNED), 1), UNSIGNED, "1"),  # noqa: PLW0108
        "max": ("uint64(uint64, uint64)", lambda x, y: max(x, y), (BIG, 1), "1", str(BIG)),  # noqa: PLW0108
        "selp": (
            "int64(boolean, int32, int64)",
            lambda c, x, y: cuda.selp(c, x, y),  # noqa: PLW0108
            (False, 1, 2**40),
            "0",
            str(2**40),
        ),
        "returned array": ("int32(int32)", through_local_array, (7,), "7", ""),
        "length of a shared array": ("int32(int32)", through_shared_array, (7,), "fault", "7"),
    }


def mlir_cures(cuda):
    """Return the functions that known.toml recommends instead."""

    def to_pointer(pointer, value):
        pointer[0] = np.int64(value)

    def to_member(records, value):
        records[0].x = np.int64(value)

    def to_slice(array, value):
        array[0:1] = np.int64(value)

    def atomic(array, value):
        cuda.atomic.add(array, 0, np.int64(value))

    def count(first, limit):
        total = 0
        for _ in range(np.int64(first), np.int64(limit)):
            total += 1
        return total

    def total(first, limit):
        total = 0
        for index in range(np.int64(first), np.int64(limit)):
            total += index
        return total

    def through_shared_array(value):
        array = cuda.shared.array(PADDED_TILE, np.int32)
        array[8] = value
        return array[8]

    return {
        "length of a shared array": through_shared_array,
        "narrow index": lambda a, i: a[np.int64(i)],
        "index behind a pointer": lambda p, i: (p + 5)[np.int64(i)],
        "moved pointer": lambda p: p[1].x,
        "through a pointer": to_pointer,
        "to a member": to_member,
        "to a slice": to_slice,
        "by an atomic": atomic,
        "range of uint8": count,
        "range of int8": total,
        "len": lambda a: a.shape[0],
        "halves": lambda x, y: np.float16(x * y),
        "clz": lambda x: cuda.clz(np.uint32(x)) - 24,
        "min": lambda x, y: x if x < y else y,  # noqa: FURB136 - the cure
        "max": lambda x, y: x if x > y else y,  # noqa: FURB136 - the cure
        "selp": lambda c, x, y: cuda.selp(c, np.int64(x), y),
    }


def numba_cures(_):
    """Return the same for numba-cuda."""
    return {"complex power": lambda x, y: cmath.exp(y * cmath.log(x))}


def numba_cases(_):
    """Return the same for numba-cuda."""
    return {
        "complex power": (
            "complex128(complex128, complex128)",
            lambda x, y: x**y,
            (1j, 1j),
            "0j",
            "(0.20787957635076193+0j)",
        ),
    }


def called(function, arguments):
    """Return the result of *function*, or the number that it writes to its first argument, as text."""
    first, *rest = arguments
    out = np.zeros(1, first) if isinstance(first, (type, np.dtype)) else None
    try:
        result = function(first if out is None else out, *rest)
    except pl.DeviceFaultError:
        return "fault"
    return str(result if out is None else out.view(np.int64)[0])


def computed(rows, functions, front_end):
    """Return the values of *functions*, whose signatures and arguments *rows* have."""
    udfs = [
        pl.udf(rows[name][0], name=f"f{number}", front_end=front_end)(function)
        for number, (name, function) in enumerate(functions.items())
    ]
    library = pl.load(pl.export(udfs, arch="sm_90", emit=["ptx"], name="faults"), device="cpu")
    return {name: called(library[f"f{number}"], rows[name][2]) for number, name in enumerate(functions)}


@front_ends.MLIR_06
@pytest.mark.slow
@pytest.mark.parametrize(
    ("front_end", "cases", "cures"),
    [("numba-cuda-mlir", mlir_cases, mlir_cures), ("numba-cuda", numba_cases, numba_cures)],
)
def test_wrong_values_of_the_page_are_computed(front_end, cases, cures):
    """Each value is the wrong one, and right with the cure; once right, its row of known.toml goes."""
    cuda = front_ends.cuda(front_end)
    rows, functions = cases(cuda), cures(cuda)
    wrong = {name: value for name, (*_, value, _) in rows.items()}
    assert wrong == computed(rows, {name: row[1] for name, row in rows.items()}, front_end)
    assert {name: rows[name][-1] for name in functions} == computed(rows, functions, front_end)


def ptx_of(function, signature, **options):
    """Return the PTX of a function by numba-cuda-mlir."""
    udf = pl.udf(signature, name="f", front_end="numba-cuda-mlir")(function)
    return pl.export([udf], arch="sm_90", emit=["ptx"], name="f", **options).read("ptx").decode()


@front_ends.MLIR_06
def test_a_list_of_constants_takes_memory():
    """`x in (1.0, 2.0)` allocates memory of the device, and does not free it."""
    front_ends.get("numba-cuda-mlir")
    ptx = ptx_of(lambda x: x in (1.0, 2.0), "boolean(float64)")
    assert "malloc" in ptx
    assert "free" not in ptx


@front_ends.MLIR_06
def test_a_power_of_integers_holds_the_path_of_the_source():
    """The assertion in the PTX of `x ** y` depends on the folder."""
    front_ends.get("numba-cuda-mlir")
    path = ", ".join(str(byte) for byte in __file__.encode()[-12:])
    assert path in ptx_of(lambda x, y: x**y, "int32(int32, int32)")


@front_ends.MLIR_06
def test_fastmath_does_not_reach_nvvm_without_options_of_the_c_abi():
    """Divisions stay exact in `cuda.compile` and kernels, and are approximate in exports."""
    cuda = front_ends.cuda("numba-cuda-mlir")
    types = front_ends.get("numba-cuda-mlir").types
    signature = types.float32(types.float32, types.float32)
    plain, _ = cuda.compile(lambda x, y: x / y, signature, fastmath=True, cc=(9, 0))
    assert "div.rn.f32" in plain
    assert "div.rn" not in ptx_of(lambda x, y: x / y, "float32(float32, float32)", fastmath=True)


@front_ends.MLIR_06
def test_atomics_of_a_function_take_addresses_for_global_memory():
    """The array of a caller may be shared memory, for which generic addresses are right."""
    cuda = front_ends.cuda("numba-cuda-mlir")

    def increment(array):
        cuda.atomic.add(array, 0, 1)

    assert "global.add" in ptx_of(increment, "void(int32[::1])")


@front_ends.MLIR_06
def test_a_shuffle_moves_32_bits():
    """A 64-bit value takes two shuffles, and has one."""
    cuda = front_ends.cuda("numba-cuda-mlir")
    ptx = ptx_of(lambda x: cuda.shfl_sync(0xFFFFFFFF, x, 0), "int64(int64)")
    assert 1 == ptx.count("shfl.sync")
