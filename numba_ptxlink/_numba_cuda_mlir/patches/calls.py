"""Calls of what `cuda.declare_device(abi="c")` declares, and of functions that return arrays."""

from __future__ import annotations

import functools
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import current


def _wrap_call_c(_original: Any) -> Any:
    def _lower_call_external_c_abi(self: Any, target: Any, fn_value: Any, args: Any) -> None:
        from numba_cuda_mlir._mlir import ir
        from numba_cuda_mlir._mlir.dialects import func
        from numba_cuda_mlir.lowering_utilities import get_or_insert_function

        from numba_ptxlink._numba_cuda_mlir.codegen import externs

        sig = fn_value.sig
        types = [ty for each in sig.args for ty in self._flatten_type(each)]
        results = [self.get_return_type(ty) for ty in self._flatten_type(sig.return_type)]
        kind = ir.FunctionType.get([self.get_argument_type(ty) for ty in types], results)
        symbol = externs.symbol(fn_value.name, tuple(sig.args), sig.return_type)
        callee = get_or_insert_function(symbol, kind, self.mlir_gpu_module)
        operands = self._call_operands_from_vars(args, expected_types=sig.args)
        raw = func.call(result=results, callee=callee.name.value, operands_=operands)
        if results:
            values = self._unflatten_abi_value(sig.return_type, iter(self._call_results_tuple(raw)))
            self.store_var(target, self.from_return(sig.return_type, values))

    return _lower_call_external_c_abi


def _wrap_call_results_tuple(original: Any) -> Any:
    @functools.wraps(original)
    def _call_results_tuple(self: Any, results: Any) -> Any:
        from numba_cuda_mlir._mlir import ir

        # An array in MLIR can be indexed without an end.
        return (results,) if isinstance(results, ir.Value) else original(self, results)

    return _call_results_tuple


def _wrap_prepare_llvm_ir(original: Any) -> Any:
    @functools.wraps(original)
    def _prepare_llvm_ir(*args: Any, **kwargs: Any) -> bytes:
        code: bytes = original(*args, **kwargs)
        from numba_ptxlink._numba_cuda_mlir.codegen import externs

        text = code.decode() if externs.used() and current() is None else ""
        return externs.defined(text, modern=True).encode() if externs.called_in(text) else code

    return _prepare_llvm_ir


def in_older_dialect(original: Any, module: Any, target_options: Any, *args: Any, **kwargs: Any) -> bytes:
    """Return what `_call_llvm70_capi`, which is *original*, returns, with calls by C++'s prototypes."""
    from numba_ptxlink._numba_cuda_mlir.codegen import externs

    given = dict(zip(("gen_lto", "gen_llvmir"), args, strict=False)) | kwargs
    if given.get("gen_llvmir") or not externs.used() or not externs.called_in(str(module)):
        code: bytes = original(module, target_options, **given)
        return code
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions
    from numba_ptxlink._numba_cuda_mlir import nvvm
    from numba_ptxlink._numba_cuda_mlir.codegen import dialect

    text = dialect.mended(original(module, target_options, gen_llvmir=True).decode())
    text = externs.defined(text, modern=False)
    level, fastmath = target_options.get("opt_level", 3), target_options.get("fastmath", False)
    options = CompileOptions(bool(level), bool(fastmath))
    arch = Arch.of(target_options["chip"])
    return nvvm.compile_ir([text], arch, options, lto=bool(given.get("gen_lto")))


EXTERNS = (
    Substitution(
        "numba_cuda_mlir.mlir_lowering",
        "MLIRLower._lower_call_external_c_abi",
        _wrap_call_c,
        '`cuda.declare_device(abi="c")` calls by the prototype that C++ declares, tuples and halves too.',
    ),
    Substitution(
        "numba_cuda_mlir.mlir_optimization",
        "_prepare_llvm_ir",
        _wrap_prepare_llvm_ir,
        "The code that calls such a function converts its arguments and its result.",
    ),
    Substitution(
        "numba_cuda_mlir.mlir_lowering",
        "MLIRLower._call_results_tuple",
        _wrap_call_results_tuple,
        "The call of a device function that returns an array is compiled, where numba-cuda-mlir has no end.",
    ),
)
"""The rows that exports apply, too."""
