"""Compile without a driver, for the requested architecture."""

from __future__ import annotations

import functools
import os
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import current, entered, requested_cc


def _wrap_get_gpu_compute_capability(original: Any) -> Any:
    @functools.wraps(original)
    def get_gpu_compute_capability(as_type: type = str) -> Any:
        from numba_cuda_mlir.numba_cuda.cudadrv.error import CudaDriverError, CudaSupportError

        cc = current().cc
        try:
            # An export asks no device, not even where there is one.
            if cc is None or current().export is None:
                return original(as_type)
        except (CudaSupportError, CudaDriverError) as error:
            if cc is None:
                from numba_ptxlink._numba_cuda_mlir.errors import MlirArchError

                raise MlirArchError(
                    "There is no CUDA device to compile for, and no architecture was given; pass one, "
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
        from numba_ptxlink._tools import find

        # What the function calls is compiled meanwhile, without options of its own.
        with find.explaining(), entered(cc=requested_cc(targetoptions), lowering=True):
            return original(pyfunc, return_type, args, targetoptions)

    return compile_mlir


def _wrap_call_llvm70_capi(original: Any) -> Any:
    @functools.wraps(original)
    def _call_llvm70_capi(module: Any, target_options: Any, *args: Any, **kwargs: Any) -> Any:
        # Unless LTO-IR or LLVM IR is asked for.
        is_ptx = not any((*args, *kwargs.values()))
        unoptimised = is_ptx and not int(target_options.get("opt_level", 2))
        # It asks for the device's architecture even where another is given.
        with entered(cc=requested_cc(target_options), unoptimised=unoptimised):
            return original(module, target_options, *args, **kwargs)

    return _call_llvm70_capi


def _wrap_get_libnvvm_path(original: Any) -> Any:
    @functools.wraps(original)
    def _get_libnvvm_path() -> Any:
        path = original()
        if not current().unoptimised:
            return path
        from numba_ptxlink._tools import isolated

        return os.fsencode(isolated.copy_of(os.fsdecode(path)))

    return _get_libnvvm_path


TOOLS = "numba_cuda_mlir.tools"
PACKAGE = "numba_cuda_mlir"

SUBSTITUTIONS = (
    Substitution(
        TOOLS,
        "get_gpu_compute_capability",
        _wrap_get_gpu_compute_capability,
        "Without a device, the requested architecture is used.",
        bound=PACKAGE,
        purpose="driverless",
    ),
    Substitution(
        TOOLS,
        "resolve_gpu_target",
        _wrap_resolve_gpu_target,
        "A compilation for a given architecture needs no device.",
        bound=PACKAGE,
        purpose="driverless",
    ),
    Substitution(
        "numba_cuda_mlir.mlir_compiler",
        "compile_mlir",
        _wrap_compile_mlir,
        "What a function calls, such as an `@overload`, is compiled for its architecture.",
        purpose="driverless",
    ),
    Substitution(
        "numba_cuda_mlir.mlir_optimization",
        "_call_llvm70_capi",
        _wrap_call_llvm70_capi,
        "NVVM compiles for a given architecture without a device.",
        purpose="driverless",
    ),
    Substitution(
        "numba_cuda_mlir.mlir_optimization",
        "_get_libnvvm_path",
        _wrap_get_libnvvm_path,
        "A private copy of NVVM makes unoptimised code, after which NVVM compiles other code.",
        purpose="driverless",
    ),
)
