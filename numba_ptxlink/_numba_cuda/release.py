"""The supported releases of numba-cuda, and the state of its import."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Iterator

SUPPORTED = ((0, 30, 4), (0, 31))
"""The supported releases: from the first, inclusive, to the second, exclusive."""

NUMPY_BELOW = (2, 5)
"""The first release of NumPy that the supported releases of numba-cuda do not run with."""

DRIVER = "numba.cuda.cudadrv.driver"
"""The module whose import decides whether the plugin becomes active."""


# Final, post and local versions (PEP 440); before a final version, what the plugin replaces may still change.
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:\.post\d+)?(?:\+[\w.]+)?")


def specifier() -> str:
    """Return the supported releases as a version specifier."""
    low, high = (".".join(map(str, bound)) for bound in SUPPORTED)
    return f">={low},<{high}"


def unsupported_reason() -> str | None:
    """
    Return why numba.cuda cannot be served, with the cure; None if it can. Does not import numba.

    The installed release counts, and a numba.cuda that is imported already has to be of it.
    """
    if simulated():
        return "the CUDA simulator is in use (NUMBA_ENABLE_CUDASIM)"
    try:
        from numba_cuda import __file__ as package
        from numba_cuda import __version__ as version
    except (ImportError, OSError):
        return f"numba-cuda is not installed; install numba-cuda{specifier()}"
    match = _VERSION.fullmatch(version)
    low, high = SUPPORTED
    if match is None or not low <= tuple(int(part or 0) for part in match.groups()) < high:
        return f"numba-cuda {version} is not supported; install numba-cuda{specifier()}"
    driver = getattr(sys.modules.get(DRIVER), "__file__", None)
    if driver and not Path(driver).resolve().is_relative_to(Path(package).resolve().parent):
        return (
            "numba.cuda is Numba's own, because Python has not read the .pth file of numba-cuda; "
            "import numba_ptxlink before numba.cuda"
        )
    return None


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


def require_compiler() -> None:
    """
    Import numba.cuda, so that Python functions can be compiled.

    Raises:
        ExportError: It cannot be imported, is the simulator, or does not run with the installed NumPy.
    """
    try:
        numpy = metadata.version("numpy")
        if tuple(int(part) for part in numpy.split(".")[:2]) >= NUMPY_BELOW:
            below = ".".join(map(str, NUMPY_BELOW))
            raise ExportError(
                f"numba-cuda {metadata.version('numba-cuda')} does not run with NumPy {numpy}; "
                f"run `pip install 'numpy<{below}'`."
            )
    except (metadata.PackageNotFoundError, ValueError):
        pass  # The import tells.
    try:
        import numba.cuda  # noqa: F401 - the package whose import is tried
        from numba.cuda.core import config

        simulator = config.ENABLE_CUDASIM
    except Exception as error:
        where = getattr(sys.modules.get("numba"), "__file__", None)
        raise ExportError(
            f"numba.cuda could not be imported{f', of {where}' if where else ''}: "
            f"{type(error).__name__}: {error}. Install it with `pip install 'numba-ptxlink[cu13]'`, and "
            "rename any numba.py of your own."
        ) from error
    if simulator:
        raise ExportError("The CUDA simulator is in use, which compiles nothing; unset NUMBA_ENABLE_CUDASIM.")


def is_imported(name: str) -> bool:
    """Return whether the module *name* is imported, and no thread is still importing it."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


@contextlib.contextmanager
def compilation_stopped() -> Iterator[None]:
    """Wait for other threads' compilations, and block new ones during a `with` block."""
    lock = _compiler_lock()
    with contextlib.nullcontext() if lock is None else lock:
        yield


def free_compiler_lock() -> None:
    """Release Numba's compiler lock in a forked child, if it was held by a thread that the child lacks."""
    lock = _compiler_lock()
    # numba-cuda's lock is a pair with Numba's, or one where there is no Numba.
    for part in (getattr(lock, "_numba_lock", None), getattr(lock, "_cuda_lock", lock)):
        inner = getattr(part, "_lock", None)
        if inner is not None and not inner._is_owned():
            inner._at_fork_reinit()


def _compiler_lock() -> Any:
    return getattr(sys.modules.get("numba.cuda.core.compiler_lock"), "global_compiler_lock", None)
