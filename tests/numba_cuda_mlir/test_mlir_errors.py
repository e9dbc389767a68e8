"""What is an error in a function that numba-cuda-mlir compiled, what it does, and where it is listed."""

from __future__ import annotations

import struct

import errors_module as errors
import front_ends
import numpy as np
import pytest
from error_lines import line_of, modes, sites, trapping
from mlir_host import copied, host, lowered

import numba_ptxlink as pl
from numba_ptxlink._arch import Arch
from numba_ptxlink._front_end.protocol import CompileOptions

cuda, types = front_ends.cuda("numba-cuda-mlir"), front_ends.get("numba-cuda-mlir").types

INTS = types.int32(types.int32, types.int32)
LONGS = types.int64(types.int32, types.int32)
FLOATS = types.float32(types.float32, types.float32)


@cuda.jit(device=True)
def device_quotient(x, y):
    """Divide, for other functions."""
    return x // y


@cuda.jit(device=True)
def positive(x):
    """Refuse negative numbers."""
    if x < 0:
        raise ValueError
    return x


@cuda.jit(device=True, inline="never")
def apart(x):
    """Refuse negative numbers, in a function of its own."""
    if x < 0:
        raise ValueError("negative", x)
    return 2 * x


@pl.udf("int32(int32, int32)", on_error="trap", checked=True, front_end="numba-cuda-mlir")
def udf_quotient(x, y):
    """Divide, for C++ too."""
    return x // y


@cuda.jit(device=True)
def factorial(n):
    """Call itself."""
    if n < 0:
        raise ValueError
    if n < 2:
        return 1
    return n * factorial(n - 1)


CALLS_DEVICE = copied(errors.calls_device, device_quotient=device_quotient)
CALLS_UDF = copied(errors.calls_udf, udf_quotient=udf_quotient)


@pytest.mark.parametrize(
    ("function", "signature", "values", "good"),
    [
        (errors.quotient, INTS, (7, 0), ((7, 2), 4)),
        (errors.remainder, INTS, (7, 0), ((7, 4), 4)),
        (errors.ratio, FLOATS, (7, 0), ((7, 2), 3.5)),
        (CALLS_DEVICE, INTS, (7, 0), ((7, 2), 4)),
        (CALLS_UDF, INTS, (7, 0), ((7, 2), 4)),
        (errors.calls_closure, INTS, (7, 0), ((7, 2), 4)),
    ],
    ids=["quotient", "remainder", "ratio", "calls_device", "calls_udf", "calls_closure"],
)
def test_a_division_by_zero_is_an_error_where_it_is_checked(function, signature, values, good):
    """Checked, it returns zero; a division by another number is what it is without a check."""
    checked = host(pl.udf(signature, name="f", checked=True)(function))
    assert (0, good[1]) == (checked(*values), checked(*good[0]))
    assert good[1] == host(pl.udf(signature, name="f")(function))(*good[0])


@pytest.mark.parametrize(("index", "item"), [(3, 13), (-1, 13), (-4, 10), (4, 0), (-5, 0)])
def test_an_index_out_of_range_is_an_error_where_it_is_checked(index, item):
    """Checked, it returns zero and touches nothing."""
    memory = np.array([9, 10, 11, 12, 13, 14], np.int32)
    view = struct.pack("<qqq", memory[1:].ctypes.data, 4, memory.itemsize)
    signature = types.int32(types.int32[::1], types.int32)
    assert item == host(pl.udf(signature, checked=True)(errors.item))(view, index)
    before = memory.copy()
    host(pl.udf(signature, checked=True)(errors.last_but))(view, index)
    assert (before == memory).all() == (not -4 <= index < 4)


@pytest.mark.parametrize(
    ("function", "bad", "good"),
    [
        (errors.element, (5, 2), ((5, 1), 1)),
        (errors.asserted, (5, 0), ((5, 1), 5)),
        (errors.told, (5, 0), ((5, 1), 5)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_some_errors_need_no_check(function, bad, good):
    """`raise`, with computed arguments too, `assert`, and an index out of a tuple are always errors."""
    call = host(pl.udf(INTS)(function))
    assert (0, good[1]) == (call(*bad), call(*good[0]))


def test_an_error_of_a_callee_ends_the_function():
    """Whether a callee is inlined or not, what follows its error does not happen."""
    seen = np.zeros(3, np.int32)
    view = struct.pack("<qqq", seen.ctypes.data, 3, 4)

    for callee in (positive, apart):

        def calling(out, x):
            out[0] = 1
            value = callee(x)  # noqa: B023 - compiled at once
            out[1] = value
            for _ in range(3):
                out[2] += callee(x)  # noqa: B023
            return value + 5

        call = host(pl.udf(types.int64(types.int32[::1], types.int32))(calling))
        seen[:] = 0
        assert (0, [1, 0, 0]) == (call(view, -4), seen.tolist())
        value = 4 if callee is positive else 8
        assert (value + 5, [1, value, 3 * value]) == (call(view, 4), seen.tolist())


def test_an_error_leaves_a_recursion():
    """The innermost call of a function by itself may fail, and all of them end."""

    def of(n):
        return factorial(n) + 7

    call = host(pl.udf("int64(int64)")(of))
    assert (127, 0) == (call(5), call(-1))


def test_a_struct_is_zero_after_an_error():
    """Tuples, and records that are returned by address, are zero."""
    record = front_ends.get("numba-cuda-mlir").from_dtype(np.dtype([("a", "i4"), ("b", "f8")], align=True))

    def pair(value, x):
        if x < 0:
            raise ValueError
        return value, x

    ty = types.Tuple((record, types.int32))
    call = host(pl.udf(ty(record, types.int32))(pair))
    given = struct.pack("<ixxxxd", 3, 2.5)
    assert bytes(24) == call(given, -1)
    assert struct.pack("<ixxxxdi", 3, 2.5, 8) == call(given, 8)[:20]


def test_none_has_no_value():
    """Optional of a record, which is passed by address, comes back with its flag; None as zero."""
    record = types.Optional(RECORD)
    call = host(pl.udf((record,), name="same", front_end="numba-cuda-mlir")(lambda value: value))
    value = struct.pack("<4if", 1, 2, 3, 4, 0.5)
    assert value + b"\x01" == call(value + b"\x01\0\0\0")[:21]
    assert bytes(21) == call(value + bytes(4))[:21]


@pytest.mark.parametrize("arch", [pytest.param("sm_90", marks=pytest.mark.slow), "sm_100"])
@pytest.mark.parametrize("function", [errors.quotient, errors.ratio, errors.item, errors.asserted])
def test_an_error_traps_where_it_is_to(function, arch, tmp_path):
    """The PTX traps with on_error="trap" where there is an error, and not without either."""
    own = {errors.ratio: FLOATS, errors.item: types.int32(types.int32[::1], types.int32)}
    signature = own.get(function, INTS)
    traps = trapping(signature, function, tmp_path, arch, front_end="numba-cuda-mlir")
    always = function is errors.asserted
    assert traps == {
        ("zero", False): False,
        ("zero", True): False,
        ("trap", False): always,
        ("trap", True): True,
    }


RECORD = front_ends.get("numba-cuda-mlir").from_dtype(
    np.dtype([("items", "i4", 4), ("weight", "f4")], align=True)
)
TABLE = np.arange(5)


def in_shared(_array, index):
    """Index shared memory."""
    shared = cuda.shared.array((2, 2), types.int32)
    shared[index, index] = 1
    return shared[0, 0]


def added_to(array, index):
    """Write in place."""
    array[index] += 1


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
@pytest.mark.parametrize(
    ("function", "first"),
    [
        (lambda array, index: array[index, 1], types.int32[:, :]),
        (lambda array, index: array[index][1], types.int32[:, ::1]),
        (lambda record, index: record.items[index], RECORD),
        (lambda records, index: records[index].weight, types.Array(RECORD, 1, "C")),
        (lambda _, index: TABLE[index], types.int32),
        (in_shared, types.int32),
        (added_to, types.int32[:]),
    ],
)
def test_every_kind_of_array_is_checked(function, first, arch):
    """Views, arrays in records, constants, shared memory and updates in place are checked alike."""
    counts = []
    for checked in (False, True):
        udf = pl.udf((first, types.int32), name="f", checked=checked, front_end="numba-cuda-mlir")(function)
        compiled = lowered(udf, arch=Arch.of(arch))
        counts.append(len(compiled.raises[0]))
        modules = [*compiled.lowered[0].modules]
        assert compiled.front_end.compile_ir(modules, compiled.arch, CompileOptions(), lto=False)
    assert [0, 1] == counts


def test_one_export_holds_both_modes(tmp_path):
    """A helper of a checked and of an unchecked function has a variant for each."""
    assert [False, True, False] == modes(CALLS_DEVICE, tmp_path, "numba-cuda-mlir")


def test_the_lines_that_raise_are_listed(tmp_path):
    """The manifest lists the lines left in the code, of the function and its callees; the header has none."""
    signature = "int64(int32[::1], int32)"
    summed = copied(errors.summed, positive=positive, never=positive)
    own, callee = line_of(errors.summed, "assert"), line_of(positive, "raise")
    lines, said = sites(pl.udf(signature)(summed), tmp_path, "numba-cuda-mlir")
    assert [own, callee] == lines
    assert said == " * Where it raises, it returns zero. Division by zero and indices are not checked."
    lines, said = sites(pl.udf(signature, checked=True, on_error="trap")(summed), tmp_path, "numba-cuda-mlir")
    checks = [line_of(errors.summed, "array[i]"), own, line_of(errors.summed, "positive(x)"), callee]
    assert checks == lines
    assert said == " * Where it raises, it stops the kernel. Division by zero and indices are checked."


def test_a_function_without_errors_makes_no_promise(tmp_path):
    """A function that only divides says nothing unchecked, and a constant divisor is no error."""
    assert sites(pl.udf("int32(int32, int32)")(errors.quotient), tmp_path, "numba-cuda-mlir") == ([], "")
    halved = pl.udf("int32(int32)", name="halved", checked=True)(lambda x: x // 2)
    assert sites(halved, tmp_path, "numba-cuda-mlir") == ([], "")


def test_its_own_launches_keep_their_errors():
    """What an export compiled of a device function is not used by others, nor the other way round."""
    overloads = dict(device_quotient.overloads)
    lowered(pl.udf(INTS, checked=True)(CALLS_DEVICE))
    assert overloads == dict(device_quotient.overloads)
    assert "chip" not in device_quotient.targetoptions or not device_quotient.targetoptions["chip"]
