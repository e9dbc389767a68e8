"""Query the CUDA driver without initialising it."""

from __future__ import annotations

import ctypes


def version() -> tuple[int, int] | None:
    """Return the newest CUDA version the driver supports, None without a driver. CUDA is not initialised."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    # The one driver function that works without cuInit.
    if library.cuDriverGetVersion(ctypes.byref(number)):
        return None
    return (number.value // 1000, number.value % 1000 // 10)
