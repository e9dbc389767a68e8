"""Link errors that derive from numba-cuda-mlir's, so that callers catch them. Imports numba-cuda-mlir."""

from __future__ import annotations

from cuda.core._utils.cuda_utils import NVRTCError
from numba_cuda_mlir.numba_cuda.cudadrv.driver import LinkerError
from numba_cuda_mlir.numba_cuda.cudadrv.error import CudaSupportError

from numba_ptxlink._front_end.errors import KernelLinkError
from numba_ptxlink.errors import ConfigError

__all__ = ["MlirArchError", "MlirLinkError", "MlirSourceError"]


class MlirLinkError(KernelLinkError, LinkerError):  # type: ignore[misc]
    """A `LinkError` that callers of numba-cuda-mlir catch as its `LinkerError`, or as nvJitLink's error."""


class MlirSourceError(MlirLinkError, NVRTCError):  # type: ignore[misc]
    """A `MlirLinkError` about CUDA C++, which numba-cuda-mlir reports as cuda.core's `NVRTCError`."""


class MlirArchError(ConfigError, CudaSupportError):  # type: ignore[misc]
    """Neither a device nor a requested architecture exists; also a `CudaSupportError` of numba-cuda-mlir."""
