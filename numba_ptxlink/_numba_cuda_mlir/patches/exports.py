"""Compile the functions of an export: for their architecture, with an end where they raise, and unlinked."""

from __future__ import annotations

import functools
import traceback
from pathlib import Path
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import current
from numba_ptxlink.errors import ExportError


def _wrap_compile_as_device_callee(original: Any) -> Any:
    @functools.wraps(original)
    def _compile_as_device_callee(self: Any, *args: Any, **kwargs: Any) -> Any:
        export = current().export
        if export is None:
            return original(self, *args, **kwargs)
        export.borrow(self)
        compiled = original(self, *args, **kwargs)
        from numba_cuda_mlir.numba_cuda import types

        if isinstance(compiled.signature.return_type, types.Array):
            # numba-cuda-mlir finds no end of the results of its call.
            raise ExportError(
                f"{self.py_func.__qualname__} returns an array, and numba-cuda-mlir compiles no call of such "
                "a function; pass it an array to write to"
            )
        return compiled

    return _compile_as_device_callee


def _wrap_lower_to_mlir(original: Any) -> Any:
    @functools.wraps(original)
    def lower_to_mlir(self: Any) -> None:
        if current().export is None:
            original(self)
            return
        try:
            original(self)
            # numba-cuda-mlir prints what it finds invalid.
            self.mlir_module.operation.verify()
        except ExportError:
            raise
        except Exception as error:
            loc = _place(error) or self.func_ir.loc
            kind = "" if isinstance(error, NotImplementedError) else f"{type(error).__name__}: "
            raise ExportError(
                f"{Path(loc.filename).name}:{loc.line}: numba-cuda-mlir has no code for it: {kind}{error}"
            ) from error

    return lower_to_mlir


def _place(error: BaseException) -> Any:
    """Return where the statement is whose lowering raised *error*; None where no statement's did."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lowering = [frame for frame in frames if frame.f_code.co_name == "lower_inst"]
    return lowering[-1].f_locals["inst"].loc if lowering else None


def _wrap_lower_static_raise(original: Any) -> Any:
    @functools.wraps(original)
    def lower_static_raise(self: Any, inst: Any) -> None:
        export = current().export
        if export is None:
            original(self, inst)
            return
        from numba_cuda_mlir._mlir import ir
        from numba_cuda_mlir._mlir.dialects import cf

        export.raises[inst.loc.filename, inst.loc.line] = None
        self.set_error_code(1)
        # numba-cuda-mlir goes on at the last return, whose value need not be known here. LLVM's word for no
        # end has no counterpart in NVVM's older dialect.
        never = self.mlir_funcOp.body.blocks.append()
        cf.br([], never)
        with ir.InsertionPoint(never):
            cf.br([], never)

    return lower_static_raise


def _wrap_link_external_item(original: Any) -> Any:
    @functools.wraps(original)
    def link_external_item(self: Any, link_item: Any) -> None:
        export = current().export
        if export is None:
            original(self, link_item)
        else:
            export.links[link_item] = None

    return link_external_item


_LOWERING = "numba_cuda_mlir.mlir_lowering"

EXPORTS = (
    Substitution(
        "numba_cuda_mlir.descriptor",
        "MLIRDispatcher._compile_as_device_callee",
        _wrap_compile_as_device_callee,
        "Callees of an exported function are compiled with it; numba-cuda-mlir reuses the first result.",
        purpose="C ABI",
    ),
    Substitution(
        _LOWERING,
        "MLIRLower.lower_to_mlir",
        _wrap_lower_to_mlir,
        "The error of an export names the line and the cause, instead of a file that contains them.",
        purpose="C ABI",
    ),
    Substitution(
        _LOWERING,
        "MLIRLower.lower_static_raise",
        _wrap_lower_static_raise,
        "A `raise` ends an exported function, where numba-cuda-mlir goes on.",
        purpose="C ABI",
    ),
    Substitution(
        _LOWERING,
        "MLIRLower.link_external_item",
        _wrap_link_external_item,
        "An export links the files of its functions itself.",
        purpose="C ABI",
    ),
)
"""The rows that an export applies."""
