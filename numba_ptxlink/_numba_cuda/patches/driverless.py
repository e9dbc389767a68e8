"""Compile device code without a driver, and for the requested architecture."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import DispatcherNotes, LibraryNotes, Nested, current, entered, notes


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
        outer = current().nested
        nested = Nested() if outer is None else outer
        with entered(cc=cc, nested=nested):
            compiled = original(self, args, return_type)
        by_cc[args, variant] = compiled
        if outer is not None:
            nested.calls.append((self, args, variant))
        elif nested.cyclic:
            _forget(nested)
        return compiled

    return compile_device


def _forget(nested: Nested) -> None:
    """Let functions that call a caller of theirs be compiled again: alone, they lack its library."""
    for dispatcher, args, variant in nested.calls:
        dispatcher.overloads.pop(args, None)
        notes(dispatcher, DispatcherNotes).by_cc.pop((args, variant), None)


def _wrap_lower_recursive_call(original: Any) -> Any:
    @functools.wraps(original)
    def _lower_call_RecursiveCall(self: Any, fnty: Any, expr: Any, signature: Any) -> Any:  # noqa: N802
        dispatcher = fnty.dispatcher_type.dispatcher
        if signature.args in dispatcher.overloads:
            # Another signature of a function that is being compiled: a call like any other.
            return self._lower_call_normal(fnty.dispatcher_type, expr, signature)
        called, function = fnty.get_overloads(signature.args), dispatcher.py_func
        if function.__module__ is not None:
            # A module that is not in sys.modules has no name for typing, but one for the function's symbol.
            fnty.add_overloads(signature.args, f"{function.__module__}.{function.__qualname__}", called.uid)
        return original(self, fnty, expr, signature)

    return _lower_call_RecursiveCall


def _wrap_call_unresolved(original: Any) -> Any:
    @functools.wraps(original)
    def call_unresolved(self: Any, builder: Any, name: str, sig: Any, args: Any) -> Any:
        from numba.cuda import cgutils
        from numba.cuda.core import imputils
        from numba.cuda.core.callconv import CUDACallConv

        nested = current().nested
        if nested is not None:
            nested.cyclic = True
        # The function's module is part of every program in which this call can be reached.
        convention = CUDACallConv(self)
        kind = convention.get_function_type(sig.return_type, sig.args)
        function = cgutils.get_or_insert_function(builder.module, kind, name)
        status, result = convention.call_function(builder, function, sig.return_type, sig.args, args)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return imputils.fix_returning_optional(self, builder, sig, status, result)

    return call_unresolved


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
    Substitution(
        "numba.cuda.lowering",
        "Lower._lower_call_RecursiveCall",
        _wrap_lower_recursive_call,
        "A device function may call itself with other argument types, where numba-cuda fails.",
    ),
    Substitution(
        "numba.cuda.core.base",
        "BaseContext.call_unresolved",
        _wrap_call_unresolved,
        "Device functions may call each other in a circle, where numba-cuda fails.",
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
