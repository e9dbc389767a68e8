"""Compile functions of an export: without a driver, for their architecture, with their own errors."""

from __future__ import annotations

import functools
import sys
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import NotLoweredError, current


def _wrap_init(original: Any) -> Any:
    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if current() is not None:
            from numba_ptxlink._numba_cuda_mlir import lower

            stock: Any = type(self)
            self.__class__ = lower.for_export(stock)
        original(self, *args, **kwargs)

    return init


def _wrap_resolve_function_type(original: Any) -> Any:
    @functools.wraps(original)
    def resolve_function_type(self: Any, func: Any, args: Any, kws: Any) -> Any:
        if current() is not None:
            from numba_ptxlink._numba_cuda_mlir import numbers

            args = numbers.operand_types(func, args)
        return original(self, func, args, kws)

    return resolve_function_type


def _wrap_compile_as_device_callee(original: Any) -> Any:
    @functools.wraps(original)
    def _compile_as_device_callee(self: Any, *args: Any, **kwargs: Any) -> Any:
        program = current()
        if program is not None:
            program.borrow(self)
        return original(self, *args, **kwargs)

    return _compile_as_device_callee


def _wrap_compile(original: Any) -> Any:
    @functools.wraps(original)
    def compile(self: Any, sig: Any, abi_info: Any = None, output: Any = None) -> Any:  # noqa: A001
        if current() is None:
            return original(self, sig, abi_info=abi_info, output=output)
        # The caller takes the MLIR of what it calls; nothing asks for more of it.
        return self._compile_as_device_callee(sig, abi_name=(abi_info or {}).get("abi_name"))

    return compile


def _wrap_handle_lowering_error(original: Any) -> Any:
    @functools.wraps(original)
    def handle_lowering_error(lower: Any, func_ir: Any) -> Any:
        program = current()
        if program is None:
            return original(lower, func_ir)
        error: Any = sys.exc_info()[1]
        # The callers of a function handle its error again.
        if program.refused is None or program.refused.cause is not error:
            report = functools.partial(original, lower, func_ir)
            program.refused = NotLoweredError(error, lower.place, report)
        raise error

    return handle_lowering_error


LOWERING = (
    Substitution(
        "numba_cuda_mlir.mlir_lowering",
        "MLIRLower.__init__",
        _wrap_init,
        "An error in a function of an export ends it, and its code is not linked for the device at hand.",
    ),
    Substitution(
        "numba_cuda_mlir.numba_cuda.typing.context",
        "BaseContext.resolve_function_type",
        _wrap_resolve_function_type,
        "In an export, functions of `math` are of floats; `&` of a signed and an unsigned integer is int64.",
    ),
    Substitution(
        "numba_cuda_mlir.descriptor",
        "MLIRDispatcher._compile_as_device_callee",
        _wrap_compile_as_device_callee,
        "What a function of an export calls is compiled with it; stock reuses the first result for all.",
    ),
    Substitution(
        "numba_cuda_mlir.descriptor",
        "MLIRDispatcher.compile",
        _wrap_compile,
        "An `@overload` that a function of an export calls is compiled with it, not linked for a device.",
    ),
    Substitution(
        "numba_cuda_mlir.mlir_compiler",
        "handle_lowering_error",
        _wrap_handle_lowering_error,
        "An export tells why a function was refused, in place of a file that holds the reason.",
    ),
)
"""The rows that an export applies."""
