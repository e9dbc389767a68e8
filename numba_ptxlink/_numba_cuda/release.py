"""Which numba-cuda is served."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SUPPORTED = ((0, 30, 4), (0, 31))
"""The releases that this package was written against: from the first, to before the second."""

DRIVER = "numba.cuda.cudadrv.driver"
"""The module whose import decides whether the plugin becomes active."""


def unsupported_reason() -> str | None:
    """Return why the numba-cuda that is installed cannot be served, None where it can. Imports no numba."""
    try:
        from numba_cuda import __version__ as version
    except ImportError:
        return "numba-cuda is not installed"
    low, high = SUPPORTED
    try:
        release = tuple(int(part) for part in version.split(".")[:3])
    except ValueError:
        release = (0, 0)
    if not low <= release < high:
        wanted = ",".join(f"{sign}{'.'.join(map(str, bound))}" for sign, bound in ((">=", low), ("<", high)))
        return f"numba-cuda {version} is not supported; install numba-cuda{wanted}"
    driver = sys.modules.get(DRIVER)
    if driver is not None and getattr(driver, "__name__", DRIVER) != DRIVER:
        return "the CUDA simulator is in use (NUMBA_ENABLE_CUDASIM)"
    return None


def is_imported(name: str) -> bool:
    """Return whether the module *name* is there, and no thread is importing it still."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


@contextlib.contextmanager
def compilation_stopped() -> Iterator[None]:
    """Wait for other threads' compilations, and hold back new ones for the length of a `with` block."""
    lock: Any = getattr(sys.modules.get("numba.cuda.core.compiler_lock"), "global_compiler_lock", None)
    with contextlib.nullcontext() if lock is None else lock:
        yield
