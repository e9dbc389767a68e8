"""Calls of what `cuda.declare_device(abi="c")` declares, by the prototypes that C++ has for it."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import current
from numba_ptxlink.errors import AbiError

CALLED = "numba_ptxlink_called"
"""The key in a function's metadata of the C functions that it calls, with the names of their C types."""


def _note(metadata: dict[str, Any], name: str, args: tuple[Any, ...], result: Any) -> None:
    from numba_ptxlink._numba_cuda_mlir.codegen.externs import Extern

    # What has no C type is not compared.
    with contextlib.suppress(AbiError):
        signature = Extern(name, args, result).signature
        types = (signature.result, *(ctype for _, ctype in signature.params))
        metadata.setdefault(CALLED, {})[name] = tuple(ctype.name for ctype in types)


def _wrap_call_external_function(original: Any) -> Any:
    @functools.wraps(original)
    def lower_call_external_function(self: Any, target: Any, fn_value: Any, args: Any, kws: Any) -> None:
        export, sig = current().export, fn_value.sig
        if export is None or fn_value.abi != "c":
            if export is not None:
                export.declared[fn_value] = None
            elif fn_value.abi == "c":
                _note(self.metadata, fn_value.name, tuple(sig.args), sig.return_type)
            original(self, target, fn_value, args, kws)
            return
        from numba_cuda_mlir._mlir import ir
        from numba_cuda_mlir._mlir.dialects import func
        from numba_cuda_mlir.lowering_utilities import get_or_insert_function

        from numba_ptxlink._numba_cuda_mlir.codegen import externs

        export.declared[fn_value] = None
        self._link_external_function(fn_value)
        types = [ty for each in sig.args for ty in self._flatten_type(each)]
        results = [self.get_return_type(ty) for ty in self._flatten_type(sig.return_type)]
        kind = ir.FunctionType.get([self.get_argument_type(ty) for ty in types], results)
        extern = externs.Extern(fn_value.name, tuple(sig.args), sig.return_type)
        callee = get_or_insert_function(externs.symbol(extern, export.externs), kind, self.mlir_gpu_module)
        operands = self._call_operands_from_vars(args, expected_types=sig.args)
        raw = func.call(result=results, callee=callee.name.value, operands_=operands)
        if results:
            # An array in MLIR can be indexed without an end.
            values = (raw,) if isinstance(raw, ir.Value) else tuple(raw)
            value = self._unflatten_abi_value(sig.return_type, iter(values))
            self.store_var(target, self.from_return(sig.return_type, value))

    return lower_call_external_function


EXTERNS = (
    Substitution(
        "numba_cuda_mlir.mlir_lowering",
        "MLIRLower.lower_call_external_function",
        _wrap_call_external_function,
        'In an export, `cuda.declare_device(abi="c")` calls by the prototype that C++ declares, tuples and '
        "halves too; the types that a kernel declares are compared with those of the export that it links.",
        purpose="C ABI",
    ),
)
"""The rows that exports apply, too."""
