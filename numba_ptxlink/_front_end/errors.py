"""The base class of the front ends' link errors. The import of this module imports cuda.bindings."""

from __future__ import annotations

from cuda.bindings.nvjitlink import nvJitLinkError

from numba_ptxlink.errors import LinkError

# NVJITLINK_ERROR_INTERNAL in nvJitLink.h: the status that nvJitLink returns for most inputs that it refuses.
_ERROR_INTERNAL = 6


class KernelLinkError(LinkError, nvJitLinkError):  # type: ignore[misc]
    """A `LinkError` that is nvJitLink's error, too, which callers of a front end may catch."""

    status = _ERROR_INTERNAL
