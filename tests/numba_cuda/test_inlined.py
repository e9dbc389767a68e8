"""What becomes of inlined functions, and of functions without a result beside an export."""

from __future__ import annotations

import fakedevice
import pytest

import numba_ptxlink as pl
from numba_ptxlink._export import stable_names
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._front_end import substitution
from numba_ptxlink._numba_cuda.patches import c_abi

cuda = pytest.importorskip("numba.cuda")


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


@pytest.mark.parametrize("options", [{}, {"lineinfo": True}])
def test_inlined_functions_are_the_same_whatever_was_compiled_before(monkeypatch, options):
    """Nested inlined functions compile, and mean the same under other counters."""
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


def test_a_void_function_of_c_is_numba_cudas_own_beside_an_export():
    """Without the plugin, while an export runs, numba-cuda defines void functions of C as ever."""

    def store(out, x):
        out[0] = x

    signature = cuda.void(cuda.types.CPointer(cuda.float32), cuda.float32)
    pl.disable()
    try:
        with substitution.applied(c_abi.C_ABI):
            ptx, _ = cuda.compile(store, signature, device=True, abi="c", cc=(9, 0))
    finally:
        pl.enable()
    (function,) = parse(ptx).functions
    assert "store" == function.prototype.name
    assert "st.f32" in ptx
