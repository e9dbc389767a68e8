"""Link errors that callers of numba-cuda-mlir catch as its own. Importing this module imports it."""

from __future__ import annotations

from typing import Any

from cuda.bindings.nvjitlink import nvJitLinkError
from cuda.core._utils.cuda_utils import NVRTCError
from numba_cuda_mlir.numba_cuda.cudadrv.driver import LinkerError
from numba_cuda_mlir.numba_cuda.cudadrv.error import CudaSupportError

from numba_ptxlink.errors import ConfigError, LinkError, PtxlinkError

# ERROR_INTERNAL, which nvJitLink returns for most of what it refuses.
_FAILED = 6

__all__ = ["MlirArchError", "MlirLinkError", "MlirSourceError", "of_mlir"]


class MlirLinkError(LinkError, LinkerError, nvJitLinkError):  # type: ignore[misc]
    """A `LinkError` that callers of numba-cuda-mlir catch as its `LinkerError`, or as nvJitLink's error."""

    status = _FAILED

    def __reduce__(self) -> tuple[Any, ...]:
        # nvJitLink's error would be created again from its status.
        return type(self), self.args, vars(self)


class MlirSourceError(MlirLinkError, NVRTCError):  # type: ignore[misc]
    """A `MlirLinkError` about CUDA C++, which numba-cuda-mlir reports as cuda.core's `NVRTCError`."""


class MlirArchError(ConfigError, CudaSupportError):  # type: ignore[misc]
    """There is neither a device nor an architecture that was asked for; its `CudaSupportError`, too."""


def of_mlir(error: PtxlinkError, *, source: bool = False) -> MlirLinkError:
    """Convert *error* to one that is numba-cuda-mlir's too; *source* means that it is about CUDA C++."""
    # Deferred: an error is rare.
    from numba_ptxlink._link.explain import for_kernel

    kind = MlirSourceError if source else MlirLinkError
    return kind(
        for_kernel(str(error), "ptxas_options"), flags=error.flags, inputs=error.inputs, log=error.log
    )
