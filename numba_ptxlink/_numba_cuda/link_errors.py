"""Link errors that callers of numba-cuda catch as its own. Importing this module imports numba-cuda."""

from __future__ import annotations

from cuda.core._utils.cuda_utils import NVRTCError
from numba.cuda.cudadrv.driver import LinkerError

from numba_ptxlink.errors import LinkError, PtxlinkError

__all__ = ["NumbaLinkError", "NumbaSourceError", "of_numba"]


class NumbaLinkError(LinkError, LinkerError):  # type: ignore[misc]
    """A `LinkError` that callers of numba-cuda catch as its `LinkerError`."""


class NumbaSourceError(NumbaLinkError, NVRTCError):  # type: ignore[misc]
    """A `NumbaLinkError` about CUDA C++, which numba-cuda reports as cuda.core's `NVRTCError`."""


def of_numba(error: PtxlinkError, *, source: bool = False) -> NumbaLinkError:
    """Convert *error* to one that is numba-cuda's too; *source* means that it is about CUDA C++."""
    # Deferred: an error is rare.
    from numba_ptxlink._link.explain import for_kernel

    kind = NumbaSourceError if source else NumbaLinkError
    return kind(for_kernel(str(error)), flags=error.flags, inputs=error.inputs, log=error.log)
