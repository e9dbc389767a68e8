"""Link errors that programs catch as the errors of numba-cuda's linker. The module imports numba-cuda."""

from __future__ import annotations

from cuda.core._utils.cuda_utils import NVRTCError
from numba.cuda.cudadrv.driver import LinkerError

from numba_ptxlink._front_end.errors import KernelLinkError

__all__ = ["NumbaFileError", "NumbaLinkError", "NumbaSourceError"]


class NumbaLinkError(KernelLinkError, LinkerError):  # type: ignore[misc]
    """A `LinkError` that programs also catch as numba-cuda's `LinkerError`, or as nvJitLink's error."""


class NumbaSourceError(NumbaLinkError, NVRTCError):  # type: ignore[misc]
    """A `NumbaLinkError` about CUDA C++, for which numba-cuda itself raises cuda.core's `NVRTCError`."""


class NumbaFileError(NumbaLinkError, FileNotFoundError):
    """A `NumbaLinkError` about a missing file: numba-cuda raises `FileNotFoundError` for missing CUDA C++."""
