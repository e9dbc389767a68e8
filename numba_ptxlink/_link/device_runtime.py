"""The device runtime, which kernels call that synchronise their whole grid: who lacks it, and where it is."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.kinds import ARCHIVE
from numba_ptxlink._tools.find import package, pathfinder

from .read import Input

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numba_ptxlink.errors import PtxlinkError

log = logging.getLogger(__name__)

_NAME = "cudadevrt"
_GRID = "cudaCG"
# Grid-wide cooperative groups and launches from the device call these functions.
_CALL = re.compile(rf"'(?:{_GRID}[A-Z]|__cudaCDP2)\w+'")


def is_missing(error: PtxlinkError, inputs: Iterable[Input]) -> bool:
    """Return whether a link failed because it lacks the device runtime, which nvcc adds by default."""
    return bool(_CALL.search(error.log)) and not any(map(is_runtime, inputs))


def is_runtime(source: Input) -> bool:
    """Return whether *source* is the device runtime, a library of which a link takes what it needs."""
    return source.kind == ARCHIVE and _NAME in source.name


def is_runtime_call(name: str) -> bool:
    """Return whether the function *name* is one of the device runtime that code calls."""
    return _CALL.fullmatch(f"'{name}'") is not None


def is_grid_call(name: str) -> bool:
    """Return whether the function *name* of the device runtime synchronises a grid."""
    return name.startswith(_GRID)


def find() -> Input | None:
    """Return the device runtime; None, with a warning that says what to install, where it is not found."""
    finder = pathfinder()
    try:
        path = Path(finder.find_static_lib(_NAME))
    except (AttributeError, RuntimeError) as missing:
        log.warning(
            "the device runtime is called, and lib%s.a is not found (%s); %s, or give its path as another "
            "input",
            _NAME,
            missing,
            cure(),
        )
        return None
    return Input(ARCHIVE, path.name, path.read_bytes())


def cure() -> str:
    """Return how to install it."""
    return f"install {package('nvidia-cuda-runtime')}"


def cooperative(text: str, kernels: Collection[str]) -> frozenset[str]:
    """
    Return those of *kernels* that synchronise their grid, which wants all of its blocks to run at once.

    Args:
        text: The PTX of the kernels.
        kernels: Their names.

    Raises:
        LinkError: The body of a function is malformed.
    """
    if _GRID not in text:
        return frozenset()
    module = ptx.parse(text)
    calls = {
        function.name: {
            ptx.called(statement).callee
            for statement in function.body
            if isinstance(statement, ptx.Instruction) and statement.opcode == "call"
        }
        for function in module.functions
        if function.defined
    }
    return frozenset(name for name in kernels if any(map(is_grid_call, _reached(name, calls))))


def _reached(name: str, calls: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    pending = [name]
    while pending:
        new = calls.get(pending.pop(), set()) - reached
        reached |= new
        pending += new
    return reached
