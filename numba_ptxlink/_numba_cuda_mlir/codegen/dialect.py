"""
Mend what numba-cuda-mlir writes and NVVM refuses, or reads in another way than is meant.

It numbers what it compiles by counters and addresses of the process, too. What one exported function keeps to
itself is named after its symbol here, so that names depend on the program alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What a program says, such as the text of `print`, stays: it comes first, and a match in it is none.
_CONSTANT = r'(?<= )c"[^"]*"'
_NO_UNSIGNED_WRAP = re.compile(rf"{_CONSTANT}|( nuw )")
_NO_KIND = re.compile(r"^(!.*\bemissionKind:) ,", re.MULTILINE)
_LAYOUT = re.compile(r'^(target datalayout = ".*-i64:64:64)(-f32)', re.MULTILINE)
_SHARED = re.compile(r"^(@\S+ = \w+ addrspace\(3\) global .*) zeroinitializer\b", re.MULTILINE)
_DYNAMIC = re.compile(
    r"^(@\S+ = )(?:internal|private) (addrspace\(3\) global \[0 x [^\]]+\]) (?:undef|poison|zeroinitializer)",
    re.MULTILINE,
)
_FUNCTION = re.compile(r'^define internal [^@\n]*@("[^"]+"|[\w.$-]+)\(', re.MULTILINE)
_VARIABLE = re.compile(r'^@("[^"]+"|[\w.$-]+) = (?:internal|private) ', re.MULTILINE)
_EXTERNAL = re.compile(r"^@(\S+) = external addrspace\(3\) global \[0 x ", re.MULTILINE)
_SYMBOL = re.compile(r"@([\w.$-]+)")


def mended(text: str) -> str:
    """Return LLVM IR *text*, in either dialect, as NVVM is to read it."""
    # It is said of all index arithmetic, which is wrong where a stride is negative.
    text = _NO_UNSIGNED_WRAP.sub(lambda match: " " if match[1] else match[0], text)
    # LLVM 7 cannot spell the kind that NVVM has for lines alone.
    text = _NO_KIND.sub(r"\1 DebugDirectivesOnly,", text)
    # A linker refuses what nvcc says otherwise.
    text = text.replace('!{i32 2, !"Debug Info Version"', '!{i32 1, !"Debug Info Version"')
    # NVVM's verifier asks for the alignment of i128.
    text = _LAYOUT.sub(r"\1-i128:128:128\2", text, count=1)
    # Shared memory has no value at first, and what has no size comes from the launch.
    return _SHARED.sub(r"\1 undef", _DYNAMIC.sub(r"\1external \2", text))


def stable(text: str, symbol: str) -> str:
    """Return the LLVM IR of the exported function *symbol* with names of its own for what is internal."""
    # All of it begins at the same address.
    names = dict.fromkeys(_EXTERNAL.findall(text), "numba_ptxlink_dynamic_shared")
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
    # Also in the strings of debug information, which hold the names of functions.
    found = rf"{_CONSTANT}|{_any(names)}"
    return re.sub(found, lambda match: names.get(match[0], match[0]), text) if names else text


def _any(names: Iterable[str]) -> str:
    longest_first = sorted(names, key=len, reverse=True)
    return rf"(?<![\w.$])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.$])"
