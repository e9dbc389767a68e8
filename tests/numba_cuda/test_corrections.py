"""Corrections of numba-cuda that have no better place."""

from __future__ import annotations

import fakedevice
import numpy as np
import pytest

import numba_ptxlink as pl
from numba_ptxlink._export import stable_names
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._front_end import substitution
from numba_ptxlink._numba_cuda.patches import corrections

cuda = pytest.importorskip("numba.cuda")

INNER = np.dtype([("x", np.int8), ("y", np.float64)], align=True)
PADDED = np.dtype([("a", np.int8), ("b", np.float64), ("n", INNER, (2,)), ("c", np.int16)], align=True)


def records(filling: int) -> np.ndarray:
    """Return six records with the same fields, and *filling* in all bytes between them."""
    made = np.full(PADDED.itemsize * 6, filling, np.uint8).view(PADDED).reshape(2, 3)
    for name, value in (("a", 1), ("b", 2.5), ("c", 3)):
        made[name] = value
    made["n"]["x"] = [4, 5]
    made["n"]["y"] = 6
    return made


@pytest.mark.parametrize(
    "view", [lambda a: a, np.asfortranarray, lambda a: a[::-1], lambda a: a[:, 1], lambda a: a[0, 0]]
)
def test_what_lies_between_fields_is_blank(view):
    """Constant arrays of equal records are equal bytes, whatever lies between the fields."""
    one, other = (view(records(filling)) for filling in (0xAA, 0x55))
    blank = [corrections._with_blank_padding(np.asarray(each)) for each in (one, other)]
    assert blank[0].tobytes("A") == blank[1].tobytes("A")
    assert records(0xAA).tobytes() != records(0x55).tobytes()
    assert (one == blank[0]).all()
    fortran = [
        each.flags.f_contiguous and not each.flags.c_contiguous for each in (np.asarray(one), blank[0])
    ]
    assert fortran[0] == fortran[1]


def reading(table):
    """Return a kernel that holds *table* as a constant."""

    def kernel(out):
        out[0] = table[0, cuda.threadIdx.x].b

    return kernel


def test_constants_of_equal_records_are_equal_code(monkeypatch):
    """What lies between the fields of a constant array is not what was in memory there."""
    fakedevice.install(monkeypatch.setattr)
    texts = set()
    for filling in (0xAA, 0x55):
        library, _ = fakedevice.compile_kernel(reading(records(filling)), (cuda.float64[::1],))
        texts.add("".join(library.llvm_strs))
    assert len(texts) == 1


@cuda.jit(device=True, inline="always")
def doubled(x):
    """Return twice the value, by way of a variable."""
    double = x + x
    return double  # noqa: RET504 - the variable is what counts


@cuda.jit(device=True, inline="always")
def chosen(x):
    """Call another inlined function, on one of two ways."""
    if x > 0:
        return doubled(x)
    return -doubled(x - 1)


@pytest.mark.parametrize("options", [{}, {"lineinfo": True}, {"debug": True, "opt": False}])
def test_inlined_functions_are_the_same_whatever_was_compiled_before(monkeypatch, options):
    """Nested inlined functions compile, and mean the same under other counters, for the debugger too."""
    fakedevice.install(monkeypatch.setattr)

    def kernel(lines):
        lines[0] = chosen(lines[0]) + chosen(lines[1]) + doubled(lines[2])

    def other(lines):
        lines[0] = doubled(lines[0])

    meanings = []
    for _ in range(2):
        library, _ = fakedevice.compile_kernel(kernel, (cuda.float32[::1],), **options)
        meanings.append([stable_names.Module(text).meaning({}) for text in library.llvm_strs])
        fakedevice.compile_kernel(other, (cuda.float32[::1],), **options)
    assert meanings[0] == meanings[1]


def test_modules_whose_names_are_not_decoded():
    """A function of a module whose name is not in the locale's encoding compiles as by numba-cuda."""

    def same(x):
        return x

    text = {}
    for module in ("plain", "\udcc3\udcbc"):
        same.__module__ = module
        text[module], _ = cuda.compile(same, cuda.float32(cuda.float32), device=True, cc=(9, 0))
    assert text["plain"] == text["\udcc3\udcbc"]


def test_a_void_function_of_c_is_numba_cudas_own_beside_an_export():
    """Without the plugin, while an export runs, numba-cuda defines void functions of C as ever."""

    def store(out, x):
        out[0] = x

    signature = cuda.void(cuda.types.CPointer(cuda.float32), cuda.float32)
    pl.disable()
    try:
        with substitution.applied(corrections.CODE):
            ptx, _ = cuda.compile(store, signature, device=True, abi="c", cc=(9, 0))
    finally:
        pl.enable()
    (function,) = parse(ptx).functions
    assert "store" == function.prototype.name
    assert "st.f32" in ptx
