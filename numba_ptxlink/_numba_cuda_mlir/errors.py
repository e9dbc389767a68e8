"""Errors that programs also catch as errors of numba-cuda-mlir. The module imports numba-cuda-mlir."""

from __future__ import annotations

from cuda.core._utils.cuda_utils import NVRTCError
from numba_cuda_mlir.numba_cuda.cudadrv.driver import LinkerError
from numba_cuda_mlir.numba_cuda.cudadrv.error import CudaSupportError

from numba_ptxlink._front_end.errors import KernelLinkError
from numba_ptxlink.errors import ConfigError

__all__ = ["MlirArchError", "MlirLinkError", "MlirSourceError"]


class MlirLinkError(KernelLinkError, LinkerError):  # type: ignore[misc]
    """A `LinkError` that programs also catch as numba-cuda-mlir's `LinkerError`, or as nvJitLink's error."""


class MlirSourceError(MlirLinkError, NVRTCError):  # type: ignore[misc]
    """An `MlirLinkError` about CUDA C++, for which numba-cuda-mlir itself raises cuda.core's `NVRTCError`."""


class MlirArchError(ConfigError, CudaSupportError):  # type: ignore[misc]
    """
    There is no device to compile for, and no architecture was passed.

    numba-cuda-mlir itself raises `CudaSupportError`.
    """
