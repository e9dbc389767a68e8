"""The tools that link, by their names."""

from __future__ import annotations

import importlib
from typing import Any

from numba_ptxlink._tools import find
from numba_ptxlink.errors import LinkError

# Imported when they are asked: one PTX needs none of them.
_LINKERS = ("nvjitlink", "pynvjitlink")
LOSES_STRUCTS = (13, 0)
"""The release that passes structs of 184 bytes and more wrongly where it links PTX; 13.1 to 13.5 do not."""


def linker(name: str) -> Any:
    """Return the module of the backend *name*, which has `link`, `key`, `version` and `package`."""
    return importlib.import_module(f"numba_ptxlink._tools.{name}")


def installed() -> tuple[str, tuple[int, int]] | None:
    """Return name and version of the backend that links in this environment, None where none does."""
    for name in _LINKERS:
        try:
            return name, linker(name).version()
        except LinkError:
            continue
    return None


def is_served(release: tuple[int, int]) -> bool:
    """Return whether the drivers for this environment's toolkit load what nvPTXCompiler *release* makes."""
    return find.major() >= release[0]
