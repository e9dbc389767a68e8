"""Compile Python functions to LLVM IR with numba-cuda-mlir, and add wrappers with the C ABI."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._export import externs, link_files
from numba_ptxlink._formats.llvm_ir import NvvmDialect
from numba_ptxlink._front_end.codegen.wrapper import wrap
from numba_ptxlink._front_end.lowered import LoweredFunction
from numba_ptxlink._front_end.patch import applied
from numba_ptxlink.errors import ExportError

from .codegen import errors, functions, repairs
from .codegen.convention import MemrefConvention, check_types, misread_type_reason
from .context import ExportedFunction, exporting
from .patches.c_abi import C_ABI
from .patches.driverless import DRIVERLESS
from .patches.first_kernel import CODE_CACHE

__all__ = ["lower"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.options import AbiOptions
    from numba_ptxlink._front_end.lowered import Declare
    from numba_ptxlink._tools.options import Options

# The symbol of the compiled function with numba-cuda-mlir's calling convention, which the wrapper calls.
_INNER_SYMBOL = "numba_ptxlink_inner"
_NO_OPTIONAL = (
    "numba-cuda-mlir has no Optional of a tuple, a complex number or an array; pass a flag beside it"
)
_NO_TRANSPOSE = (
    'numba-cuda-mlir has no transposed arrays; write a[j, i] for a.T[i, j], or choose front_end="numba-cuda"'
)
# The keys occur in numba-cuda-mlir's exceptions; the values say which feature it lacks, with the cure.
_MISSING_FEATURES = {
    "get_literal()": _NO_OPTIONAL,
    "'llvm.extractvalue' op result #0 must be LLVM dialect-compatible": _NO_OPTIONAL,
    "'llvm.insertvalue' op operand #1 must be primitive LLVM type": _NO_OPTIONAL,
    "getattr(OptionalType(": _NO_OPTIONAL,
    "'func.call' op operand type mismatch": (
        "numba-cuda-mlir compiles a recursive call only with the argument types of the function; write a "
        "loop, or convert the arguments: int32(n - 1)"
    ),
    "DynamicRaise": (
        "numba-cuda-mlir has no exception whose arguments are computed; write it with constant ones"
    ),
    "<built-in function divmod>": "numba-cuda-mlir has no `divmod`; write x // y and x % y",
    "const(ellipsis": "numba-cuda-mlir has no `...` in an index; write `:` for each axis",
    "attr='T'": _NO_TRANSPOSE,
    "BoundFunction(array.transpose": _NO_TRANSPOSE,
    "Unsupported numpy dtype: {'names'": (
        "numba-cuda-mlir has no arrays of records as globals or variables of enclosing functions; take an "
        'array for each member, pass the records as a parameter, or choose front_end="numba-cuda"'
    ),
    "Cannot unify Function(<numba_cuda_mlir.compiler.ExternFunction": (
        "numba-cuda-mlir cannot call a function of `cuda.declare_device` as `module.name`; import it by its "
        "name, or bind it to a global of the function's module: `name = module.name`"
    ),
}


def lower(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    result: Any,
    *,
    arch: Arch,
    options: Options,
    abi: AbiOptions,
    declare: Declare,
    inline: bool = True,
    launch_bounds: Any = None,
) -> LoweredFunction:
    """
    Compile *function* to LLVM IR that returns or traps at errors, and add a wrapper; see `FrontEnd.lower`.

    Raises:
        ExportError: numba-cuda-mlir lacks a feature that the function uses, or that *abi* requires.
    """
    if abi.checked:
        raise ExportError("checked=True is not available with numba-cuda-mlir; use front_end='numba-cuda'")
    nvvm_dialect = NvvmDialect.of(arch)
    # Patched functions add to this object each link file, declared function and `raise` statement that they
    # meet.
    export = ExportedFunction(arch.sm, arch.cc)
    numba_signature, llvm_ir = _compile_to_llvm_ir(function, args, result, options, nvvm_dialect, export)
    module = functions.parse_module(llvm_ir)
    has_errors = errors.end_at_errors(
        module, _INNER_SYMBOL, trap=abi.on_error == "trap", byte_pointer=nvvm_dialect.pointer("i8")
    )
    code = function.__code__
    definition = (code.co_filename, code.co_firstlineno)
    # If only numba-cuda-mlir's own functions raise errors, no statement is known: name the definition's line.
    raises = _raise_sites(function, export.raises or [definition]) if has_errors else ()
    declaration = declare(tuple(numba_signature.args), numba_signature.return_type, raises=bool(raises))
    wrapper_name = declaration.signature.name
    check_types(declaration.signature, numba_signature.args, numba_signature.return_type)
    wrapped = wrap(
        module.text(),
        _INNER_SYMBOL,
        declaration.signature,
        numba_signature,
        convention=MemrefConvention,
        dialect=nvvm_dialect,
        abi=abi,
        inline=inline,
        launch_bounds=launch_bounds,
    )
    renamed = repairs.rename_internal_symbols(wrapped, wrapper_name)
    modules = tuple(nvvm_dialect.adapt_byval([renamed]))
    return LoweredFunction(
        declaration,
        abi,
        modules,
        tuple(map(link_files.read, dict.fromkeys(export.links))),
        externs.find_calls(
            (
                (function_type.name, tuple(function_type.sig.args), function_type.sig.return_type)
                for function_type in export.declared
            ),
            modules,
            wrapper_name,
        ),
        raises,
    )


def _compile_to_llvm_ir(  # noqa: PLR0917 - with one caller
    function: Callable[..., Any],
    args: tuple[Any, ...],
    result: Any,
    options: Options,
    nvvm_dialect: NvvmDialect,
    export: ExportedFunction,
) -> tuple[Any, str]:
    """
    Compile *function* with numba-cuda-mlir; return its Numba signature and its LLVM IR.

    Raises:
        ExportError: numba-cuda-mlir lacks a feature that the function uses.
    """
    from numba_cuda_mlir import cuda, mlir_compiler
    from numba_cuda_mlir.descriptor import mlir_target
    from numba_cuda_mlir.lowering_utilities import context
    from numba_cuda_mlir.numba_cuda.core.compiler_lock import global_compiler_lock

    jit = cuda.jit(
        device=True,
        chip=export.chip,
        abi_info={"abi_name": _INNER_SYMBOL},
        debug=False,
        fastmath=bool(options.fast_math),
        lineinfo=options.lineinfo,
        opt_level=options.opt_level,
        # The signature is that of @udf; annotations may be documentation.
        annotations_as_signatures=False,
    )
    target_options = jit(function).targetoptions
    # CODE_CACHE keeps numba-cuda-mlir from compiling each callee to PTX, which an export does not use.
    patches = (*DRIVERLESS, *C_ABI, *CODE_CACHE)
    with global_compiler_lock, applied(patches), exporting(export):
        mlir_target.ensure_initialized()
        try:
            compiled = mlir_compiler.compile_mlir(function, result, args, targetoptions=target_options)
        except Exception as error:
            # The cause may also be a parameter whose type numba-cuda-mlir misreads. `co_varnames` has the
            # local variables after the parameters, so that zip() is not strict.
            labels = [f"parameter {name!r}" for name in function.__code__.co_varnames]
            reason = _missing_feature(function, error) or misread_type_reason(zip(labels, args))  # noqa: B905
            if reason:
                raise ExportError(reason) from error
            raise
        with context.get_context():
            return compiled.signature, _llvm_ir(
                compiled.metadata["mlir_module"], target_options, nvvm_dialect
            )


def _missing_feature(function: Callable[..., Any], error: Exception) -> str | None:
    """Return which feature numba-cuda-mlir lacks if that caused *error*, with the cure; else None."""
    if isinstance(error, RecursionError):
        return (
            "the function calls functions that call each other, which numba-cuda-mlir does not compile; "
            "merge them into one function"
        )
    # From Python 3.11 on, a function with `try` or `with` has an exception table. Its errors have many texts.
    if getattr(function.__code__, "co_exceptiontable", b""):
        return "numba-cuda-mlir has neither `try` nor `with`; test for the error before it occurs"
    return next((reason for symptom, reason in _MISSING_FEATURES.items() if symptom in str(error)), None)


def _llvm_ir(module: Any, target_options: dict[str, Any], nvvm_dialect: NvvmDialect) -> str:
    """Return the LLVM IR of an MLIR *module* in *nvvm_dialect*, repaired. The passes change *module*."""
    from numba_cuda_mlir import mlir_optimization
    from numba_cuda_mlir._mlir.passmanager import PassManager

    PassManager.parse(mlir_optimization.get_base_pipeline()).run(module.operation)
    mlir_optimization.run_pre_codegen_patterns(module)
    if nvvm_dialect.is_opaque:
        has_lines = target_options["lineinfo"]
        llvm_ir = mlir_optimization._prepare_llvm_ir(module, preserve_debug_info=has_lines)
    else:
        llvm_ir = mlir_optimization._call_llvm70_capi(module, target_options, gen_llvmir=True)
    return repairs.repair(llvm_ir.decode())


def _raise_sites(function: Callable[..., Any], sites: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Return *sites*, pairs of file and line, as "file.py:line"; those in *function* come first."""
    code = function.__code__
    last_line = max((line for *_, line in code.co_lines() if line), default=code.co_firstlineno)

    def is_in_callee(site: tuple[str, int]) -> bool:
        return site[0] != code.co_filename or not code.co_firstlineno <= site[1] <= last_line

    ordered_sites = sorted(sites, key=lambda site: (is_in_callee(site), site))
    return tuple(dict.fromkeys(f"{Path(file).name}:{line}" for file, line in ordered_sites))
