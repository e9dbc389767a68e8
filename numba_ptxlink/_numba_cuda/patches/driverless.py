"""Compile device code with numba-cuda without a driver, for the requested architecture."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from numba_ptxlink._cpu import device as cpu_device
from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda.context import current_context, notes, override

DRIVERLESS = PatchTable("driverless")
"""The patches that the plugin applies, and that an export applies without the plugin, too."""


def current_cc() -> tuple[Any, ...]:
    """
    Return the compute capability of the device, or numba-cuda's default if there is no device.

    The result is (major, minor) or (major, minor, letter), such as (9, 0, "a").
    """
    from numba.cuda import api, compiler
    from numba.cuda.cudadrv.error import CudaDriverError, CudaSupportError

    try:
        cc = tuple(api.get_current_device().compute_capability)
    except (CudaSupportError, CudaDriverError):
        return tuple(compiler._default_cc(None))
    # From 9.0 on, the letter selects features that only this architecture has, such as those of sm_90a.
    return (cc[0], cc[1], "a" if cc >= (9, 0) else "")


def requested_cc() -> tuple[Any, ...]:
    """
    Return the compute capability that the function in compilation is compiled for.

    If no function is being compiled, the result is that of the device as (major, minor), without a letter, as
    numba-cuda's dispatcher passes it to the compiler.
    """
    from numba.cuda.core.targetconfig import ConfigStack

    # The innermost compilation comes last. Numba's own helper functions, which `compile_subroutine` compiles,
    # have flags without a compute capability.
    ccs = (getattr(flags, "compute_capability", None) for flags in reversed(ConfigStack()._stk._stack))
    return next((tuple(cc) for cc in ccs if cc), current_cc()[:2])


@DRIVERLESS.around("numba.cuda.dispatcher", "get_current_device")
def _get_current_device(original: Any) -> Any:
    """
    Return an object with the requested compute capability; the current device if no capability is requested.

    numba-cuda compiles a device function for the current device, also if the caller is for another GPU.
    """
    cc = current_context().cc
    return original() if cc is None else SimpleNamespace(compute_capability=cc)


@DRIVERLESS.around("numba.cuda.dispatcher", "CUDADispatcher.compile_device")
def _compile_device(original: Any, self: Any, args: Any, return_type: Any = None) -> Any:
    """Compile a device function for the requested architecture, again if its code is for another GPU."""
    from numba.cuda.compiler import CUDACompileResult

    # The architecture, and whether to check divisions and indices: `variant` has both for compiled code.
    cc, checked = requested_cc(), current_context().checked
    existing = self.overloads.get(args)
    if isinstance(existing, CUDACompileResult) and notes(existing.library).variant != (cc, checked):
        # Forget the existing code, or numba-cuda would return it. Keep its return type, which type
        # inference of the callers has used.
        del self.overloads[args]
        self.targetctx.remove_user_function(existing.entry_point)
        return_type = existing.signature.return_type
    options = self.targetoptions
    # A fault on the CPU device names the source line, for which the code needs line numbers.
    lineinfo = checked is None and cpu_device.needs_line_numbers(self.py_func, options)
    no_warnings = cpu_device.no_source_warnings() if lineinfo else nullcontext()
    with override(cc=cc):
        try:
            self.targetoptions = {**options, "lineinfo": True} if lineinfo else options
            with no_warnings:
                compiled = original(self, args, return_type)
        except (ZeroDivisionError, IndexError):
            # numba-cuda cannot give the function line numbers, see `_kernel_init` in `first_kernel`.
            if not lineinfo:
                raise
            self.targetoptions = options
            compiled = original(self, args, return_type)
        finally:
            self.targetoptions = options
    notes(compiled.library).variant = cc, checked
    return compiled


@DRIVERLESS.around("numba.cuda.dispatcher", "_DispatcherBase.get_overload")
def _get_overload(original: Any, self: Any, sig: Any) -> Any:
    """Let a call of a device function reach its code for the architecture of the caller."""
    from numba.cuda.compiler import CUDACompileResult
    from numba.cuda.core import sigutils

    args = tuple(sigutils.normalize_signature(sig)[0])
    # Type inference compiled the function earlier. Another compilation may have replaced the code since: if
    # so, `compile_device` compiles it again, and otherwise returns the existing code.
    if isinstance(self.overloads.get(args), CUDACompileResult):
        self.compile_device(args)
    return original(self, sig)
