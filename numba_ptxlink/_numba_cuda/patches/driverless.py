"""Compile device code without a driver, and for the requested architecture."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from numba_ptxlink._numba_cuda.context import DispatcherNotes, LibraryNotes, current, entered, notes

from .substitution import Substitution


def current_cc() -> tuple[Any, ...]:
    """Return the compute capability of the device, or numba-cuda's default where there is no device."""
    from numba.cuda import api, compiler
    from numba.cuda.cudadrv.error import CudaDriverError, CudaSupportError

    try:
        cc = tuple(api.get_current_device().compute_capability)
    except (CudaSupportError, CudaDriverError):
        return tuple(compiler._default_cc(None))
    return (cc[0], cc[1], "a" if cc >= (9, 0) else "")


def _wrap_get_current_device(original: Any) -> Any:
    @functools.wraps(original)
    def get_current_device() -> Any:
        cc = current().cc
        return original() if cc is None else SimpleNamespace(compute_capability=cc)

    return get_current_device


def _wrap_compile_device(original: Any) -> Any:
    @functools.wraps(original)
    def compile_device(self: Any, args: Any, return_type: Any = None) -> Any:
        from numba.cuda.core.targetconfig import ConfigStack

        flags = ConfigStack.top_or_none()
        cc = tuple(getattr(flags, "compute_capability", None) or current_cc()[:2])
        # numba-cuda keeps one result for all architectures, but code is right for one only.
        by_cc = notes(self, DispatcherNotes).by_cc
        variant = (cc, current().checked)
        compiled = by_cc.get((args, variant))
        if compiled is not None:
            self.overloads[args] = compiled
            return compiled
        if any(known_args == args for known_args, _ in by_cc):
            self.overloads.pop(args, None)
        with entered(cc=cc):
            compiled = original(self, args, return_type)
        by_cc[args, variant] = compiled
        return compiled

    return compile_device


def _wrap_ensure_cc(original: Any) -> Any:
    @functools.wraps(original)
    def _ensure_cc(self: Any, cc: Any) -> Any:
        return original(self, notes(self, LibraryNotes).cc if cc is None else cc)

    return _ensure_cc


DRIVERLESS = (
    Substitution(
        "numba.cuda.dispatcher",
        "get_current_device",
        _wrap_get_current_device,
        "A device function that calls another is compiled for the requested architecture, without a device.",
    ),
    Substitution(
        "numba.cuda.dispatcher",
        "CUDADispatcher.compile_device",
        _wrap_compile_device,
        "A device function is compiled once for each architecture; stock reuses the first for all.",
    ),
)
"""The rows that let device functions call each other without a driver; an export applies them too."""

SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary._ensure_cc",
        _wrap_ensure_cc,
        "Code is linked for the architecture it was compiled for, not for the device's.",
    ),
)
