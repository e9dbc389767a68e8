"""
Global NumPy arrays, which Numba writes into constant memory: merge equal ones.

Numba defines an array anew wherever a function names it.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from numba_ptxlink._export import stable_names

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME = "_cudapy_cmem"
_CONSTANT = re.compile(
    rf'^@"(?P<name>{re.escape(_NAME)}[.\d]*)" = internal (?P<value>addrspace\(4\) constant .*), '
    r"align (?P<align>\d+)$\n?",
    re.MULTILINE,
)
_DIGITS = 16


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
