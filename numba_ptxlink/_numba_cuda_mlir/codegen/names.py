"""
Names that depend on the program alone.

numba-cuda-mlir numbers what it compiles by counters and addresses of the process. What one exported function
keeps to itself is named after its symbol, and a constant after its content.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_FUNCTION = re.compile(r'^define internal [^@\n]*@("[^"]+"|[\w.$-]+)\(', re.MULTILINE)
_VARIABLE = re.compile(r'^@("[^"]+"|[\w.$-]+) = (?:internal|private) (?P<value>.*)$', re.MULTILINE)
_DYNAMIC = re.compile(r"^@(\S+) = external addrspace\(3\) global \[0 x ", re.MULTILINE)
_CONSTANT = re.compile(r"(?:unnamed_addr )?addrspace\(4\) (?:global|constant) ")
_SYMBOL = re.compile(r"@([\w.$-]+)")
_DIGITS = 16


def stable(text: str, symbol: str) -> str:
    """Return the LLVM IR of the exported function *symbol* with names of its own for what is internal."""
    # All of it begins at the same address.
    names = dict.fromkeys(_DYNAMIC.findall(text), "numba_ptxlink_dynamic_shared")
    defined: set[str] = set()

    def define(match: re.Match[str]) -> str:
        value = match["value"]
        if not _CONSTANT.match(value):
            names[match[1]] = f"numba_ptxlink_{symbol}_{len(names)}"
            return f"@{match[1]} = internal {value}"
        # Equal constants of all programs that are linked become one.
        name = f"numba_ptxlink_constant_{hashlib.sha256(value.encode()).hexdigest()[:_DIGITS]}"
        names[match[1]] = name
        if name in defined:
            return ""
        defined.add(name)
        return f"@{match[1]} = linkonce_odr {value}"

    text = _VARIABLE.sub(define, text)
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
