"""Global NumPy arrays, which become constants: refuse more bytes than constant memory has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

from . import reached

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numba_ptxlink._formats.ptx import Module

SIZE = 0x10000
"""Bytes of constant memory that one linked program may define (CUDA C++ Programming Guide)."""

_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_SHOWN = 5


def check(ptx: Module, functions: Iterable[Any]) -> None:
    """
    Check that the constants of *ptx* fit into constant memory.

    Args:
        ptx: The program.
        functions: Its Python functions.

    Raises:
        ExportError: They do not. Names the arrays with their functions and sizes.
    """
    import numpy as np

    size = sum(map(_size, (variable for variable in ptx.variables if variable.space == "const")))
    if size <= SIZE:
        return
    places: dict[tuple[int, str], list[str]] = {}
    for function, name, value in reached.names(functions):
        if isinstance(value, np.ndarray):
            about = f"{name}, {value.dtype} of shape {value.shape}"
            file = function.__code__.co_filename.replace("\\", "/").rpartition("/")[2]
            place = f"{function.__qualname__} ({file}:{function.__code__.co_firstlineno})"
            places.setdefault((value.nbytes, about), []).append(place)
    largest = sorted(places, reverse=True)[:_SHOWN]
    listed = "; ".join(
        f"{about} ({number:,} bytes), in {' and '.join(places[number, about])}" for number, about in largest
    )
    raise ExportError(
        f"Global arrays become constants, and these take {size:,} bytes where constant memory has {SIZE:,}: "
        f"{listed or 'they are defined in a link file'}. Pass a large array to the function as an argument."
    )


def _size(variable: Any) -> int:
    size = _BYTES.get(variable.type[1:], 8)
    for extent in variable.extents:
        size *= extent or 0
    return size
