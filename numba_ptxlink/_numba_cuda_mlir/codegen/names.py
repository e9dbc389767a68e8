"""
Names that depend on the program alone.

numba-cuda-mlir numbers what it compiles by counters and addresses of the process. What one exported function
keeps to itself is named after its symbol.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_FUNCTION = re.compile(r'^define internal [^@\n]*@("[^"]+"|[\w.$-]+)\(', re.MULTILINE)
_VARIABLE = re.compile(r'^@("[^"]+"|[\w.$-]+) = (?:internal|private) ', re.MULTILINE)
_DYNAMIC = re.compile(r"^@(\S+) = external addrspace\(3\) global \[0 x ", re.MULTILINE)
_SYMBOL = re.compile(r"@([\w.$-]+)")


def stable(text: str, symbol: str) -> str:
    """Return the LLVM IR of the exported function *symbol* with names of its own for what is internal."""
    # All of it begins at the same address.
    names = dict.fromkeys(_DYNAMIC.findall(text), "numba_ptxlink_dynamic_shared")
    # What is private in LLVM IR, LTO-IR of several functions must not share either.
    text = _VARIABLE.sub(r"@\1 = internal ", text)
    for name in _VARIABLE.findall(text):
        names[name] = f"numba_ptxlink_{symbol}_{len(names)}"
    for name in _FUNCTION.findall(text):
        names[name] = f"numba_ptxlink_{symbol}_{len(names)}"
    return _quoted(_renamed(text, names))


def _quoted(text: str) -> str:
    """Return *text* with all symbols in quotes, by which those that read it find them."""
    pieces = text.split('"')
    pieces[::2] = [_SYMBOL.sub(r'@"\1"', piece) for piece in pieces[::2]]
    return '"'.join(pieces)


def _renamed(text: str, names: dict[str, str]) -> str:
    # Also in strings: debug information holds the names of functions.
    return re.sub(_any(names), lambda match: names[match[0]], text) if names else text


def _any(names: Iterable[str]) -> str:
    longest_first = sorted(names, key=len, reverse=True)
    return rf"(?<![\w.$])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.$])"
