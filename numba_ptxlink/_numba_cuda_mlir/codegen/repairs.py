"""
Repair LLVM IR of numba-cuda-mlir that NVVM refuses or misreads, and give its symbols reproducible names.

numba-cuda-mlir names internal functions and variables by counters and addresses of the process. Here, they
are named after the exported function, and numbered.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# A string constant, such as the text of `print`: ` c"total: %d"`. Patterns that begin with it match it as a
# whole, so that nothing within it is replaced.
_CONSTANT = r'(?<= )c"[^"]*"'
# The flag "no unsigned wrap" of an instruction: `add nuw i64`.
_NO_UNSIGNED_WRAP = re.compile(rf"{_CONSTANT}|( nuw )")
# A compile unit whose emission kind has no name: `!0 = distinct !DICompileUnit(..., emissionKind: , ...)`.
_UNNAMED_EMISSION_KIND = re.compile(r"^(!.*\bemissionKind:) ,", re.MULTILINE)
# The data layout; the alignment of i128 is missing between the two groups.
_LAYOUT = re.compile(r'^(target datalayout = ".*-i64:64:64)(-f32)', re.MULTILINE)
# Shared memory with an initial value: `@shared_0 = internal addrspace(3) global [8 x i8] zeroinitializer`.
_INITIALISED_SHARED = re.compile(r"^(@\S+ = \w+ addrspace\(3\) global .*) zeroinitializer\b", re.MULTILINE)
# Dynamic shared memory, an array without a size: `@shared_1 = internal addrspace(3) global [0 x i8] undef`.
_DYNAMIC_SHARED = re.compile(
    r"^(@\S+ = )(?:internal|private) (addrspace\(3\) global \[0 x [^\]]+\]) (?:undef|poison|zeroinitializer)",
    re.MULTILINE,
)
# Definitions of internal functions and of internal variables, and declarations of dynamic shared memory.
_FUNCTION = re.compile(r'^define internal [^@\n]*@("[^"]+"|[\w.$-]+)\(', re.MULTILINE)
_VARIABLE = re.compile(r'^@("[^"]+"|[\w.$-]+) = (?:internal|private) ', re.MULTILINE)
_EXTERNAL_SHARED = re.compile(r"^@(\S+) = external addrspace\(3\) global \[0 x ", re.MULTILINE)
_SYMBOL = re.compile(r"@([\w.$-]+)")


def repair(text: str) -> str:
    """Return LLVM IR *text*, in either dialect, repaired for NVVM."""
    # numba-cuda-mlir marks all index arithmetic `nuw`, but negative strides wrap: remove the mark.
    text = _NO_UNSIGNED_WRAP.sub(lambda match: " " if match[1] else match[0], text)
    # For the emission kind "line numbers only", LLVM 7 writes no name, which NVVM rejects: write NVVM's name.
    text = _UNNAMED_EMISSION_KIND.sub(r"\1 DebugDirectivesOnly,", text)
    # The first number of a module flag is its behaviour if values differ. nvcc writes 1, an error, and LTO
    # refuses modules whose flags differ in behaviour.
    text = text.replace('!{i32 2, !"Debug Info Version"', '!{i32 1, !"Debug Info Version"')
    # NVVM's verifier requires the alignment of i128.
    text = _LAYOUT.sub(r"\1-i128:128:128\2", text, count=1)
    # Shared memory has no initial value, and an array without a size gets its memory from the launch.
    return _INITIALISED_SHARED.sub(r"\1 undef", _DYNAMIC_SHARED.sub(r"\1external \2", text))


def rename_internal_symbols(text: str, symbol: str) -> str:
    """Return the LLVM IR of the exported function *symbol* with internal symbols named after it."""
    # Dynamic shared memory, which is external, begins at one address in all functions: its name is the same
    # in each export.
    names = dict.fromkeys(_EXTERNAL_SHARED.findall(text), "numba_ptxlink_dynamic_shared")
    # Give private variables unique names, too, and make them internal: functions that are linked as LTO-IR
    # would share private variables of one name.
    text = _VARIABLE.sub(r"@\1 = internal ", text)
    for name in _VARIABLE.findall(text):
        names[name] = f"numba_ptxlink_{symbol}_{len(names)}"
    for name in _FUNCTION.findall(text):
        names[name] = f"numba_ptxlink_{symbol}_{len(names)}"
    return _quote_symbols(_rename_symbols(text, names))


def _quote_symbols(text: str) -> str:
    """Return *text* with all symbols in quotes, for which other code of this package looks."""
    # The pieces with even indices are outside of quotes.
    pieces = text.split('"')
    pieces[::2] = [_SYMBOL.sub(r'@"\1"', piece) for piece in pieces[::2]]
    return '"'.join(pieces)


def _rename_symbols(text: str, names: dict[str, str]) -> str:
    """Return *text* with the new *names* of symbols, by the old ones."""
    # Rename in the strings of debug information, too, which contain the names of functions, but not in
    # constants.
    pattern = rf"{_CONSTANT}|{_names_pattern(names)}"
    return re.sub(pattern, lambda match: names.get(match[0], match[0]), text) if names else text


def _names_pattern(names: Iterable[str]) -> str:
    """Return a pattern that matches each of *names*, but not as a part of another name."""
    longest_first = sorted(names, key=len, reverse=True)
    return rf"(?<![\w.$])(?:{'|'.join(map(re.escape, longest_first))})(?![\w.$])"
