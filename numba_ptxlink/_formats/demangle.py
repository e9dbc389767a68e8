"""Demangle C++ names, which Numba's are too, by the C++ library's own function (Itanium C++ ABI, 3.4)."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1")


@functools.lru_cache(maxsize=4096)
def demangled(name: str) -> str:
    """Return *name* as C++ spells it, "" for a name that is not mangled or where no C++ library is found."""
    function = _function() if name.startswith("_Z") else None
    if function is None:
        return ""
    status = ctypes.c_int()
    text = function(name.encode(), None, None, ctypes.byref(status))
    try:
        spelled = ctypes.cast(text, ctypes.c_char_p).value if text and not status.value else b""
        return (spelled or b"").decode(errors="replace")
    finally:
        # The C library's free, which __cxa_demangle allocates for.
        _libc().free(ctypes.c_void_p(text))


@functools.cache
def _function() -> Any:
    for name in _LIBRARIES:
        try:
            function = getattr(ctypes.CDLL(name), "__cxa_demangle")
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        return function
    return None


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None)
