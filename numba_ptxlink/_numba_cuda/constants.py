"""
Global NumPy arrays, which Numba writes into constant memory: merge equal ones, and refuse too many bytes.

Numba defines an array anew wherever a function names it, and constant memory holds 64 KiB.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.ptx import parse
from numba_ptxlink.errors import ExportError

from . import reached, stable_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SIZE = 0x10000
"""Bytes of constant memory that one linked program may define (CUDA C++ Programming Guide)."""

_NAME = "_cudapy_cmem"
_CONSTANT = re.compile(
    rf'^@"(?P<name>{re.escape(_NAME)}[.\d]*)" = internal (?P<value>addrspace\(4\) constant .*), '
    r"align (?P<align>\d+)$\n?",
    re.MULTILINE,
)
_BYTES = {"8": 1, "16": 2, "32": 4, "64": 8}
_DIGITS = 16
_SHOWN = 5


def merged(modules: Sequence[str]) -> list[str]:
    """
    Return the LLVM IR *modules* of one program with one definition of each constant array.

    Arrays are equal if their bytes are. They are linkonce and named by their content, so that a linker keeps
    one for all programs that have it.
    """
    alignments: dict[str, int] = {}
    for text in modules:
        for match in _CONSTANT.finditer(text):
            alignments[match["value"]] = max(int(match["align"]), alignments.get(match["value"], 1))
    return [_merged(text, alignments) for text in modules] if alignments else list(modules)


def _merged(text: str, alignments: dict[str, int]) -> str:
    names: dict[str, str] = {}
    defined: set[str] = set()

    def define(match: re.Match[str]) -> str:
        definition = f"{match['value']}, align {alignments[match['value']]}"
        digest = hashlib.sha256(definition.encode()).hexdigest()
        name = names[match["name"]] = f"{_NAME}_{digest[:_DIGITS]}"
        if name in defined:
            return ""
        defined.add(name)
        return f'@"{match["name"]}" = linkonce_odr {definition}\n'

    blank = _CONSTANT.sub(define, text)
    return stable_names.Module(blank).renamed(names)


def check(ptx: str, functions: Iterable[Any]) -> None:
    """
    Check that the constants of *ptx* fit into constant memory.

    Args:
        ptx: The program.
        functions: Its Python functions.

    Raises:
        ExportError: They do not. Names the arrays with their functions and sizes.
    """
    import numpy as np

    size = sum(map(_size, (variable for variable in parse(ptx).variables if variable.space == "const")))
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
