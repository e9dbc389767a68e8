"""What becomes of inlined functions, and of functions without a result beside an export."""

from __future__ import annotations

import fakedevice
import pytest

from numba_ptxlink._export import stable_names

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
