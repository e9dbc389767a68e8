"""What is an error in an exported function, what an error does, and what the header says about it."""

from __future__ import annotations

import struct

import errors_module as errors
import host_jit
import numpy as np
import pytest
from error_lines import line_of, modes, sites, trapping
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

import numba_ptxlink as pl
from numba_ptxlink import abi
from numba_ptxlink._arch import Arch
from numba_ptxlink._front_end.protocol import CompileOptions
from numba_ptxlink._numba_cuda.codegen import wrapper
from numba_ptxlink._numba_cuda.compile import compile_function, lower
from numba_ptxlink._numba_cuda.modules import all_libraries, module_of

ARCH = Arch.of("sm_90")
INTS = (types.int32, types.int32)
FLOATS = (types.float32, types.float32)
VIEW = (types.int32[::1], types.int32)


def host(function, args, *, checked=False, result=None):
    """Return what calls *function* on this machine with Python numbers."""
    compiled = compile_function(function, args, result, ARCH, checked=checked)
    signature = abi.c_signature("f", compiled.signature.return_type, zip("ab", args, strict=True))
    outer = wrapper.emit(compiled, signature, abi.AbiOptions(), inline=True)
    host_jit.add_caller(outer)
    others = [module_of(each) for each in all_libraries([compiled.library]) if each is not compiled.library]
    call = host_jit.load(outer.module, *others)
    formats = {"int32_t": "<i", "float": "<f", "int64_t": "<q"}

    def run(*values):
        packed = [
            struct.pack("<qqq", value.ctypes.data, 4, value.itemsize)
            if isinstance(value, np.ndarray)
            else struct.pack(formats[ctype.name], value)
            for value, (_, ctype) in zip(values, signature.params, strict=True)
        ]
        code = formats[signature.result.name]
        return struct.unpack(code, call("f", struct.calcsize(code), *packed))[0]

    return run


@pytest.mark.parametrize(
    ("function", "args", "values", "unchecked", "good"),
    [
        (errors.quotient, INTS, (7, 0), 1, ((7, 2), 4)),
        (errors.remainder, INTS, (7, 0), 1, ((7, 4), 4)),
        (errors.both, INTS, (7, 0), 1, ((7, 2), 5)),
        (errors.ratio, FLOATS, (7, 0), float("inf"), ((7, 2), 3.5)),
        (errors.inverse, FLOATS, (0, 0), float("inf"), ((4, 0), 0.25)),
        (errors.calls_device, INTS, (7, 0), 1, ((7, 2), 4)),
        (errors.calls_cpu, INTS, (7, 0), 1, ((7, 2), 4)),
        (errors.calls_udf, INTS, (7, 0), 1, ((7, 2), 4)),
        (errors.calls_closure, INTS, (7, 0), 1, ((7, 2), 4)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_division_by_zero_is_an_error_where_it_is_checked(function, args, values, unchecked, good):
    """Checked, it returns zero; unchecked, what NumPy returns: 0 for integers, an infinity for floats."""
    lax, strict = (host(function, args, checked=checked) for checked in (False, True))
    assert (unchecked, 0) == (lax(*values), strict(*values))
    assert (good[1], good[1]) == (lax(*good[0]), strict(*good[0]))


@pytest.mark.parametrize(
    ("index", "unchecked", "checked"), [(3, 13, 13), (-1, 13, 13), (-4, 10, 10), (4, 14, 0), (-5, 9, 0)]
)
def test_an_index_out_of_range_is_an_error_where_it_is_checked(index, unchecked, checked):
    """Checked, it returns zero and touches nothing; unchecked, it reads and writes what is there."""
    memory = np.array([9, 10, 11, 12, 13, 14], np.int32)
    assert unchecked == host(errors.item, VIEW)(memory[1:], index)
    assert checked == host(errors.item, VIEW, checked=True)(memory[1:], index)
    before = memory.copy()
    host(errors.last_but, VIEW, checked=True)(memory[1:], index)
    assert (before == memory).all() == (not -4 <= index < 4)


@pytest.mark.parametrize("checked", [False, True])
@pytest.mark.parametrize(
    ("function", "bad", "good"),
    [
        (errors.element, (5, 2), ((5, 1), 1)),
        (errors.asserted, (5, 0), ((5, 1), 5)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_some_errors_need_no_check(function, bad, good, checked):
    """`assert`, and an index out of a tuple are always errors."""
    call = host(function, INTS, checked=checked)
    assert (0, good[1]) == (call(*bad), call(*good[0]))


@pytest.mark.parametrize(("arch", "fastmath"), [("sm_90", False), ("sm_100", True)])
@pytest.mark.parametrize("function", [errors.quotient, errors.ratio, errors.item])
def test_an_error_traps_where_it_is_to(function, arch, fastmath, tmp_path):
    """The PTX traps with on_error="trap" and checks, and not without either of them."""
    signature = {errors.quotient: "int32(int32, int32)", errors.ratio: "float32(float32, float32)"}.get(
        function, "int32(int32[::1], int32)"
    )
    traps = trapping(signature, function, tmp_path, arch, fastmath=fastmath)
    assert traps == {
        ("zero", False): False,
        ("zero", True): False,
        ("trap", False): False,
        ("trap", True): True,
    }


RECORD = from_dtype(np.dtype([("items", "i4", 4), ("weight", "f4")], align=True))
TABLE = np.arange(5)


def in_shared(_array, index):
    """Index shared memory."""
    shared = cuda.shared.array((2, 2), types.int32)
    shared[index, index] = 1
    return shared[0, 0]


def added_to(array, index):
    """Write in place."""
    array[index] += 1


@pytest.mark.parametrize(
    ("function", "first"),
    [
        (lambda array, index: array[index, 1], types.int32[:, :]),
        (lambda array, index: array[index][1], types.int32[:, ::1]),
        (lambda record, index: record.items[index], RECORD),
        (lambda records, index: records[index].weight, types.Array(RECORD, 1, "C")),
        (lambda _, index: TABLE[index], types.int32),
        (lambda _, index: cuda.const.array_like(TABLE)[index], types.int32),
        (in_shared, types.int32),
        (added_to, types.int32[:]),
    ],
)
def test_every_kind_of_array_is_checked(function, first):
    """Views, arrays in records, constants, shared memory and updates in place are checked alike."""
    lax, strict = (
        lower(function, (first, types.int32), None, ARCH, CompileOptions(), checked=checked)
        for checked in (False, True)
    )
    assert (False, True) == (bool(lax.raises), bool(strict.raises))


def test_one_export_holds_both_modes(tmp_path):
    """A helper of a checked and of an unchecked function has a variant for each."""
    assert [False, True, False] == modes(errors.calls_device, tmp_path, "numba-cuda")


def test_the_lines_that_raise_are_listed(tmp_path):
    """The manifest lists the lines that may raise, of the function and of what it calls."""
    signature = "int64(int32[::1], int32)"
    own, callee = line_of(errors.summed, "assert"), line_of(errors.positive, "raise")
    lines, said = sites(pl.udf(signature)(errors.summed), tmp_path, "numba-cuda")
    assert {own, callee} <= {*lines}
    assert said == " * Where it raises, it returns zero. Division by zero and indices are not checked."
    lines, said = sites(
        pl.udf(signature, checked=True, on_error="trap")(errors.summed), tmp_path, "numba-cuda"
    )
    checks = [line_of(errors.summed, "array[i]"), own, line_of(errors.summed, "positive(x)"), callee]
    assert {*checks} <= {*lines}
    assert said == " * Where it raises, it stops the kernel. Division by zero and indices are checked."


def test_compile_takes_the_option():
    """`numba.cuda.compile` checks with `abi_info`, and not without."""
    pl.enable()
    for checked in (False, True):
        info = {"abi_name": "f", "on_error": "trap", "checked": checked}
        ptx, _ = cuda.compile(errors.item, types.int32(*VIEW), cc=(9, 0), abi_info=info)
        assert checked is ("trap;" in ptx)
    with pytest.raises(pl.AbiError, match=r"abi_info\['checked'\] is 1; the choices are True, False"):
        cuda.compile(errors.item, types.int32(*VIEW), cc=(9, 0), abi_info={"checked": 1})


def test_numbas_own_kernels_keep_their_errors():
    """A device function of an export is compiled anew for numba-cuda's own ways."""
    compile_function(errors.calls_device, INTS, None, ARCH, checked=True)
    pl.enable()
    ptx, _ = cuda.compile(errors.calls_device, types.int32(*INTS), cc=(9, 0), abi_info={"on_error": "trap"})
    assert "trap;" not in ptx
