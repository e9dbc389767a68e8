"""Apply and undo the patches of numba-cuda-mlir, and define functions to compile."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from numba_ptxlink._front_end import patch
from numba_ptxlink._numba_cuda_mlir.patches import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

CC = (9, 0)
CHIP = "sm_90"


@pytest.fixture
def replaced() -> Iterator[None]:
    """Apply the patches during a test; skip the test without numba-cuda-mlir."""
    pytest.importorskip("numba_cuda_mlir.cuda", reason="numba-cuda-mlir is not installed")
    with patch.applied(TABLE):
        yield


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let numba-cuda-mlir find no driver, whether or not there is one."""
    from numba_cuda_mlir import tools
    from numba_cuda_mlir.numba_cuda.cudadrv import devices
    from numba_cuda_mlir.numba_cuda.cudadrv.error import CudaSupportError

    def get_context(devnum: object = None) -> None:
        del devnum
        raise CudaSupportError("no driver")

    monkeypatch.setattr(devices, "get_context", get_context)
    monkeypatch.setattr(tools, "_cached_cc", None)


@contextlib.contextmanager
def stock() -> Iterator[None]:
    """Undo the patches for a `with` block inside `replaced`, with an architecture for no device."""
    from numba_cuda_mlir import tools

    cached_cc, tools._cached_cc = tools._cached_cc, CC
    undone = []
    for row in reversed(TABLE):
        # The plugin may have applied the patch, too.
        while (row.module, row.path) in patch._applied:
            patch.undo(row)
            undone.append(row)
    try:
        yield
    finally:
        tools._cached_cc = cached_cc
        for row in reversed(undone):
            patch.apply(row)


def signature() -> tuple[object, ...]:
    """Return the types of a kernel's two arrays and their length."""
    from numba_cuda_mlir import types

    return (types.float32[::1], types.float32[::1], types.int32)


def cubin_of(kernel: object) -> bytes:
    """Return the cubin of the only signature that *kernel* was compiled for."""
    (compiled,) = kernel.overloads.values()
    return compiled.metadata["cubin"]
