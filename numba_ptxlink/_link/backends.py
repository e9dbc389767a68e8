"""The tools that link, by their names, and the device runtime, which they link where kernels call it."""

from __future__ import annotations

import importlib
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.kinds import ARCHIVE
from numba_ptxlink._tools import find
from numba_ptxlink.errors import LinkError

from .read import Input

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numba_ptxlink.errors import PtxlinkError

log = logging.getLogger(__name__)

# Imported when they are asked: one PTX needs none of them.
_LINKERS = ("nvjitlink", "pynvjitlink")
_NAME = "cudadevrt"
# Grid-wide cooperative groups and launches from the device call these functions.
_CALL = re.compile(r"'(?:cudaCG[A-Z]|__cudaCDP2)\w+'")
RUNTIME_CURE = f"install {find.package('nvidia-cuda-runtime')}"
"""How to install the device runtime."""
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


def lacks_runtime(error: PtxlinkError, inputs: Iterable[Input]) -> bool:
    """Return whether a link failed because it lacks the device runtime, which nvcc adds by default."""
    return bool(_CALL.search(error.log)) and not any(map(is_runtime, inputs))


def is_runtime(source: Input) -> bool:
    """Return whether *source* is the device runtime, a library of which a link takes what it needs."""
    return source.kind == ARCHIVE and _NAME in source.name


def device_runtime() -> Input | None:
    """Return the device runtime; None, with a warning that says what to install, where it is not found."""
    try:
        path = Path(find.pathfinder().find_static_lib(_NAME))
    except (AttributeError, RuntimeError) as missing:
        log.warning(
            "the device runtime is called, and lib%s.a is not found (%s); %s, or give its path as another "
            "input",
            _NAME,
            missing,
            RUNTIME_CURE,
        )
        return None
    return Input(ARCHIVE, path.name, path.read_bytes())
