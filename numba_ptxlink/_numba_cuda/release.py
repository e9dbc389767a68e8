"""The supported releases of numba-cuda, and the state of its import."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SUPPORTED = ((0, 30, 4), (0, 31))
"""The supported releases: from the first, inclusive, to the second, exclusive."""

DRIVER = "numba.cuda.cudadrv.driver"
"""The module whose import decides whether the plugin becomes active."""


def unsupported_reason() -> str | None:
    """Return why the installed numba-cuda is not supported, None if it is. Does not import numba."""
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
        specifier = ",".join(
            f"{sign}{'.'.join(map(str, bound))}" for sign, bound in ((">=", low), ("<", high))
        )
        return f"numba-cuda {version} is not supported; install numba-cuda{specifier}"
    driver = sys.modules.get(DRIVER)
    if driver is not None and getattr(driver, "__name__", DRIVER) != DRIVER:
        return "the CUDA simulator is in use (NUMBA_ENABLE_CUDASIM)"
    return None


def is_imported(name: str) -> bool:
    """Return whether the module *name* is imported, and no thread is still importing it."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return spec is not None and not getattr(spec, "_initializing", False)


@contextlib.contextmanager
def compilation_stopped() -> Iterator[None]:
    """Wait for other threads' compilations, and block new ones during a `with` block."""
    lock: Any = getattr(sys.modules.get("numba.cuda.core.compiler_lock"), "global_compiler_lock", None)
    with contextlib.nullcontext() if lock is None else lock:
        yield
