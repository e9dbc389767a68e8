"""The supported releases of numba-cuda-mlir, and whether it can be imported."""

from __future__ import annotations

from importlib import metadata

from numba_ptxlink._front_end.releases import Releases
from numba_ptxlink.errors import ExportError

SUPPORTED = Releases((0, 5, 4), (0, 7))
"""The supported releases."""

DRIVER = "numba_cuda_mlir.numba_cuda.cudadrv.driver"
"""The module whose import decides whether the plugin becomes active."""

LOCK = "numba_cuda_mlir.numba_cuda.core.compiler_lock"
"""The module of the compiler's lock."""


def unsupported_reason() -> str | None:
    """Return why it cannot be served, with the cure; None if it can. Does not import it, which takes long."""
    try:
        version = metadata.version("numba-cuda-mlir")
    except metadata.PackageNotFoundError:
        return f"numba-cuda-mlir is not installed; install it with `pip install 'numba-ptxlink[{extra()}]'`"
    if version not in SUPPORTED:
        return f"numba-cuda-mlir {version} is not supported; install numba-cuda-mlir{SUPPORTED}"
    return None


def extra() -> str:
    """Return the extras that install numba-cuda-mlir, with the tools of this environment's CUDA."""
    from numba_ptxlink._tools import packages

    return f"mlir,{packages.toolkit()}"


def require_compiler() -> None:
    """
    Import it, so that Python functions can be compiled.

    Raises:
        ExportError: It cannot be imported, or its release is not supported.
    """
    from numba_ptxlink._tools import packages

    reason = unsupported_reason()
    if reason is not None:
        raise ExportError(f"{reason}, as `pip install 'numba-ptxlink[{extra()}]'` does.")
    try:
        import numba_cuda_mlir.cuda  # noqa: F401 - the package whose import is tried
    except Exception as error:
        toolkit = packages.explained(error)
        if toolkit is not None:
            raise ExportError(f"numba-cuda-mlir could not be imported: {toolkit}") from error
        raise ExportError(
            f"numba-cuda-mlir could not be imported: {type(error).__name__}: {error}. "
            f"Install it again with `pip install 'numba-ptxlink[{extra()}]'`."
        ) from error
