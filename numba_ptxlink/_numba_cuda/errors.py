"""Link errors that callers of numba-cuda catch as its own. Importing this module imports numba-cuda."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuda.core._utils.cuda_utils import NVRTCError
from numba.cuda.cudadrv.driver import LinkerError

from numba_ptxlink._front_end.errors import KernelLinkError
from numba_ptxlink._link.explain import for_kernel
from numba_ptxlink.errors import converted

if TYPE_CHECKING:
    from numba_ptxlink.errors import PtxlinkError

__all__ = ["NumbaFileError", "NumbaLinkError", "NumbaSourceError", "of_numba"]


class NumbaLinkError(KernelLinkError, LinkerError):  # type: ignore[misc]
    """A `LinkError` that callers of numba-cuda catch as its `LinkerError`, or as nvJitLink's error."""


class NumbaSourceError(NumbaLinkError, NVRTCError):  # type: ignore[misc]
    """A `NumbaLinkError` about CUDA C++, which numba-cuda reports as cuda.core's `NVRTCError`."""


class NumbaFileError(NumbaLinkError, FileNotFoundError):
    """A `NumbaLinkError` about a missing file, which numba-cuda reports as such for CUDA C++."""


def of_numba(error: PtxlinkError, *, source: bool = False) -> NumbaLinkError:
    """Convert *error* to one that is numba-cuda's too; *source* means that it is about CUDA C++."""
    missing = isinstance(error.__cause__, FileNotFoundError)
    kind = NumbaFileError if missing else NumbaSourceError if source else NumbaLinkError
    return converted(error, kind, for_kernel(str(error)))
