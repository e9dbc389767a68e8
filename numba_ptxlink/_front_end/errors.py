"""The base of the front ends' link errors. Importing this module imports cuda.bindings."""

from __future__ import annotations

from cuda.bindings.nvjitlink import nvJitLinkError

from numba_ptxlink.errors import LinkError

# NVJITLINK_ERROR_INTERNAL, which nvJitLink returns for most inputs that it refuses.
_ERROR_INTERNAL = 6


class KernelLinkError(LinkError, nvJitLinkError):  # type: ignore[misc]
    """A `LinkError` that callers of a front end catch as nvJitLink's error, too."""

    status = _ERROR_INTERNAL
