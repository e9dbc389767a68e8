"""The supported releases of numba-cuda-mlir, and whether it can be imported."""

from __future__ import annotations

from importlib import metadata

from numba_ptxlink._front_end.compiler import Releases

SUPPORTED = Releases((0, 5, 4), (0, 7))
"""The supported releases."""

DRIVER = "numba_cuda_mlir.numba_cuda.cudadrv.driver"
"""The module whose import decides whether the plugin becomes active."""


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
    from numba_ptxlink._tools import find

    return f"mlir,{find.toolkit()}"
