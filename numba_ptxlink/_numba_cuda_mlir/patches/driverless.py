"""Compile without a driver, for the architecture that was asked for, and link no cubin that nobody wants."""

from __future__ import annotations

import functools
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir import context
from numba_ptxlink._numba_cuda_mlir.requests import current, entered, requested_cc

from . import calls


def _wrap_get_gpu_compute_capability(original: Any) -> Any:
    @functools.wraps(original)
    def get_gpu_compute_capability(as_type: type = str) -> Any:
        from numba_cuda_mlir.numba_cuda.cudadrv.error import CudaDriverError, CudaSupportError

        program = context.current()
        if program is not None:
            # An export asks no device, not even where there is one.
            return program.cc if as_type is tuple else f"sm_{program.cc[0]}{program.cc[1]}"
        try:
            return original(as_type)
        except (CudaSupportError, CudaDriverError) as error:
            cc = current().cc
            if cc is None:
                from numba_ptxlink._numba_cuda_mlir.link_errors import MlirArchError

                raise MlirArchError(
                    "There is no CUDA device to compile for, and no architecture was asked for; pass one, "
                    'such as cc=(9, 0) to cuda.compile, or chip="sm_90" to cuda.jit.'
                ) from error
        # Not kept for later calls, as the device's is: it is this compilation's.
        return cc if as_type is tuple else f"sm_{cc[0]}{cc[1]}"

    return get_gpu_compute_capability


def _wrap_resolve_gpu_target(original: Any) -> Any:
    @functools.wraps(original)
    def resolve_gpu_target(targetoptions: Any = None) -> Any:
        with entered(cc=requested_cc(targetoptions or {})):
            return original(targetoptions)

    return resolve_gpu_target


def _wrap_compile_mlir(original: Any) -> Any:
    @functools.wraps(original)
    def compile_mlir(pyfunc: Any, return_type: Any, args: Any, targetoptions: Any) -> Any:
        from numba_ptxlink._tools import packages

        # What the function calls is compiled meanwhile, without options of its own.
        with packages.explaining(), entered(cc=requested_cc(targetoptions), lowering=True):
            return original(pyfunc, return_type, args, targetoptions)

    return compile_mlir


def _wrap_call_llvm70_capi(original: Any) -> Any:
    @functools.wraps(original)
    def _call_llvm70_capi(module: Any, target_options: Any, *args: Any, **kwargs: Any) -> Any:
        # It asks for the device's architecture even where another is given.
        with entered(cc=requested_cc(target_options)):
            return calls.in_older_dialect(original, module, target_options, *args, **kwargs)

    return _call_llvm70_capi


def _wrap_compile(original: Any) -> Any:
    @functools.wraps(original)
    def _compile(pyfunc: Any, sig: Any = None, targetoptions: Any = None, optimized: bool = True) -> Any:
        with entered(links=current().links and not _is_for_text(pyfunc, targetoptions or {})):
            return original(pyfunc, sig, targetoptions, optimized)

    return _compile


def _is_for_text(pyfunc: Any, options: dict[str, Any]) -> bool:
    """Return whether PTX or LTO-IR is asked for, and nobody can ask for a cubin later."""
    if (options.get("_compile_output") or options.get("output")) not in ("ptx", "ltoir"):
        return False
    if any(options.get(name) for name in ("dump", "dump_ptx", "dump_cubin")):
        return False
    dispatched = getattr(pyfunc, "targetoptions", None)
    # A dispatcher keeps what was compiled, and may be launched if it is a kernel.
    return dispatched is None or bool(dispatched.get("device"))


TOOLS = "numba_cuda_mlir.tools"
PACKAGE = "numba_cuda_mlir"

SUBSTITUTIONS = (
    Substitution(
        TOOLS,
        "get_gpu_compute_capability",
        _wrap_get_gpu_compute_capability,
        "Where there is no device, the architecture that was asked for counts.",
        bound=PACKAGE,
    ),
    Substitution(
        TOOLS,
        "resolve_gpu_target",
        _wrap_resolve_gpu_target,
        "A compilation for a given architecture needs no device.",
        bound=PACKAGE,
    ),
    Substitution(
        "numba_cuda_mlir.mlir_compiler",
        "compile_mlir",
        _wrap_compile_mlir,
        "What a function calls, such as an `@overload`, is compiled for its architecture.",
    ),
    Substitution(
        "numba_cuda_mlir.mlir_optimization",
        "_call_llvm70_capi",
        _wrap_call_llvm70_capi,
        "NVVM compiles for a given architecture without a device.",
    ),
    Substitution(
        "numba_cuda_mlir.compiler",
        "_compile",
        _wrap_compile,
        "A compilation to PTX or LTO-IR links no cubin.",
    ),
)
