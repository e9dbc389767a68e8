"""The nvPTXCompiler library, linked statically into a cffi extension module, and what loading that needs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

EXTENSION = f"{__name__}._nvptxcompiler"
"""The extension module."""

_CFFI = "_cffi_backend"


def location() -> str | None:
    """Return the path of the extension module, None where it is missing. Loads nothing."""
    spec = importlib.util.find_spec(EXTENSION)
    return None if spec is None else spec.origin


def hindrance() -> str | None:
    """Return why the extension module cannot be loaded though it is whole, with the cure; None if it can."""
    folder = Path(__file__).parent
    archive = next((path for path in folder.parents if path.is_file()), None)
    if archive is not None:
        return (
            f"numba-ptxlink is in {archive}, and Python loads no compiled modules out of an archive; install "
            "it with pip beside that, or unpack the archive"
        )
    try:
        if importlib.util.find_spec(_CFFI) is not None:
            return None
    except (ImportError, ValueError):
        pass  # Another finder refuses it, or something else stands there.
    return "numba-ptxlink needs cffi, which is not installed; install it: python -m pip install cffi"
