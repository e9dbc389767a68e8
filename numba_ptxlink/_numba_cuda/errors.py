"""Link errors that derive from numba-cuda's, so that callers catch them. Imports numba-cuda."""

from __future__ import annotations

from cuda.core._utils.cuda_utils import NVRTCError
from numba.cuda.cudadrv.driver import LinkerError

from numba_ptxlink._front_end.errors import KernelLinkError

__all__ = ["NumbaFileError", "NumbaLinkError", "NumbaSourceError"]


class NumbaLinkError(KernelLinkError, LinkerError):  # type: ignore[misc]
    """A `LinkError` that callers of numba-cuda catch as its `LinkerError`, or as nvJitLink's error."""


class NumbaSourceError(NumbaLinkError, NVRTCError):  # type: ignore[misc]
    """A `NumbaLinkError` about CUDA C++, which numba-cuda reports as cuda.core's `NVRTCError`."""


class NumbaFileError(NumbaLinkError, FileNotFoundError):
    """A `NumbaLinkError` about a missing file, which numba-cuda reports as such for CUDA C++."""
