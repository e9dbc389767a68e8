"""Compile device code with numba-cuda-mlir without a driver, for the requested architecture."""

from __future__ import annotations

import os
from typing import Any

from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda_mlir.context import current_context, override, requested_cc

DRIVERLESS = PatchTable("driverless")
"""The patches that the plugin applies, and that an export applies without the plugin, too."""

_TOOLS = "numba_cuda_mlir.tools"
_PACKAGE = "numba_cuda_mlir"
_OPTIMIZATION = "numba_cuda_mlir.mlir_optimization"


@DRIVERLESS.around(_TOOLS, "get_gpu_compute_capability", importers=_PACKAGE)
def _get_gpu_compute_capability(original: Any, as_type: type = str) -> Any:
    """Return the requested architecture in an export, or if there is no device."""
    from numba_cuda_mlir.numba_cuda.cudadrv.error import CudaDriverError, CudaSupportError

    cc = current_context().cc
    try:
        # An export does not query a device, even if there is one.
        if cc is None or current_context().export is None:
            return original(as_type)
    except (CudaSupportError, CudaDriverError) as error:
        if cc is None:
            from numba_ptxlink._numba_cuda_mlir.errors import MlirArchError

            raise MlirArchError(
                "There is no CUDA device to compile for, and no architecture was passed; pass one, "
                'such as cc=(9, 0) to cuda.compile, or chip="sm_90" to cuda.jit.'
            ) from error
    # Do not give the requested architecture to the original, which keeps its first result for later calls.
    return cc if as_type is tuple else f"sm_{cc[0]}{cc[1]}"


@DRIVERLESS.around(_TOOLS, "resolve_gpu_target", importers=_PACKAGE)
def _resolve_gpu_target(original: Any, targetoptions: Any = None) -> Any:
    """Compile for a requested architecture without a device."""
    with override(cc=requested_cc(targetoptions or {})):
        return original(targetoptions)


@DRIVERLESS.around("numba_cuda_mlir.mlir_compiler", "compile_mlir")
def _compile_mlir(original: Any, pyfunc: Any, return_type: Any, args: Any, targetoptions: Any) -> Any:
    """Compile the callees of a function, such as an `@overload`, for its architecture."""
    from numba_ptxlink._cpu import device
    from numba_ptxlink._tools import find

    # Errors of kernels on the CPU name the source line. "_compile_output" is set if PTX or LTO-IR is the
    # result, which does not run in this process. If the source is missing, numba-cuda-mlir gives all
    # instructions the first line of the function, which would be wrong.
    is_launched = not targetoptions.get("_compile_output")
    if is_launched and device.needs_line_numbers(pyfunc, targetoptions) and _has_source(pyfunc):
        targetoptions["lineinfo"] = True
    # The callees are compiled in this block, without options of their own: they take `cc` from the context.
    with find.naming_missing_packages(), override(cc=requested_cc(targetoptions), is_lowering=True):
        return original(pyfunc, return_type, args, targetoptions)


def _has_source(function: Any) -> bool:
    """Return whether the source of a Python function is available."""
    import inspect

    try:
        inspect.getsource(function)
    except (OSError, TypeError):
        return False
    return True


@DRIVERLESS.around(_OPTIMIZATION, "_call_llvm70_capi")
def _call_llvm70_capi(original: Any, module: Any, target_options: Any, *args: Any, **kwargs: Any) -> Any:
    """Compile by NVVM for a requested architecture without a device."""
    # The other arguments of the original are flags, which request LTO-IR or LLVM IR instead of PTX.
    is_ptx = not any((*args, *kwargs.values()))
    unoptimised = is_ptx and not int(target_options.get("opt_level", 2))
    # The original queries the device's architecture even if another one is requested.
    with override(cc=requested_cc(target_options), unoptimised=unoptimised):
        return original(module, target_options, *args, **kwargs)


@DRIVERLESS.around(_OPTIMIZATION, "_get_libnvvm_path")
def _get_libnvvm_path(original: Any) -> Any:
    """Compile unoptimised code with a private copy of NVVM, since such a compilation alters later ones."""
    path = original()
    if not current_context().unoptimised:
        return path
    from numba_ptxlink._tools.private_copy import copy_of

    return os.fsencode(copy_of(os.fsdecode(path)))
