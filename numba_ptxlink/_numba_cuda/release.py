"""The supported releases of numba-cuda, and the state of its import."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

from numba_ptxlink._front_end.compiler import Releases

SUPPORTED = Releases((0, 30, 4), (0, 31))
"""The supported releases."""

NUMPY_BELOW = (2, 5)
"""The first release of NumPy that the supported releases of numba-cuda do not run with."""

DRIVER = "numba.cuda.cudadrv.driver"
"""The module whose import decides whether the plugin becomes active."""


def unsupported_reason() -> str | None:
    """
    Return why numba.cuda cannot be served, with the cure; None if it can. Does not import numba.

    The installed release counts, and a numba.cuda that is imported already has to be of it.
    """
    if simulated():
        return "the CUDA simulator is in use; unset NUMBA_ENABLE_CUDASIM"
    try:
        from numba_cuda import __file__ as package
        from numba_cuda import __version__ as version
    except (ImportError, OSError):
        return f"numba-cuda is not installed; install it with `pip install 'numba-ptxlink[{extra()}]'`"
    if version not in SUPPORTED:
        return f"numba-cuda {version} is not supported; install numba-cuda{SUPPORTED}"
    driver = getattr(sys.modules.get(DRIVER), "__file__", None)
    if driver and not Path(driver).resolve().is_relative_to(Path(package).resolve().parent):
        return (
            "numba.cuda is Numba's own, because Python has not read the .pth file of numba-cuda; "
            "import _numba_cuda_redirector, which does what that file does, before numba.cuda"
        )
    return _numpy_reason(version)


def _numpy_reason(version: str) -> str | None:
    """Return that numba-cuda *version* does not run with this NumPy, with the cure; None if it does."""
    try:
        numpy = getattr(sys.modules.get("numpy"), "__version__", None) or metadata.version("numpy")
        if tuple(int(part) for part in numpy.split(".")[:2]) < NUMPY_BELOW:
            return None
    except (metadata.PackageNotFoundError, ValueError):
        return None  # The import tells.
    below = ".".join(map(str, NUMPY_BELOW))
    return f"numba-cuda {version} does not run with NumPy {numpy}; run `pip install 'numpy<{below}'`"


def extra() -> str:
    """Return the extra that installs numba-cuda, with the tools of this environment's CUDA."""
    from numba_ptxlink._tools import find

    return "cu12" if find.major() == 12 else "cu13"


def simulated() -> bool:
    """Return whether numba.cuda is the CUDA simulator, or will be once it is imported."""
    driver = sys.modules.get(DRIVER)
    if driver is not None:
        return getattr(driver, "__name__", DRIVER) != DRIVER
    for name in ("numba.cuda.core.config", "numba.core.config"):
        switch = getattr(sys.modules.get(name), "ENABLE_CUDASIM", None)
        if switch is not None:
            return bool(switch)
    switch = os.environ.get("NUMBA_ENABLE_CUDASIM", "").strip()
    return switch.isdecimal() and int(switch) != 0
