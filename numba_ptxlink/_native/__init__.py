"""The nvPTXCompiler library, linked statically into a cffi extension module, and what loading that needs."""

from __future__ import annotations

import importlib.util

EXTENSION = f"{__name__}._nvptxcompiler"
"""The extension module."""

_CFFI = "_cffi_backend"


def location() -> str | None:
    """Return the path of the extension module, None where it is missing. Loads nothing."""
    spec = importlib.util.find_spec(EXTENSION)
    return None if spec is None else spec.origin


def lacks_cffi() -> str | None:
    """Return what is wrong, with the cure, where the extension module cannot be loaded for want of cffi."""
    try:
        if importlib.util.find_spec(_CFFI) is not None:
            return None
    except (ImportError, ValueError):
        pass  # Another finder refuses it, or something else stands there.
    return "numba-ptxlink needs cffi, which is not installed; install it: python -m pip install cffi"
