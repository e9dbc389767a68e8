"""Find the source names of mangled symbols of C++ and Numba (Itanium C++ ABI, "Name mangling")."""

from __future__ import annotations

import re

# A mangled name has the length of each identifier before it, such as "5saxpy".
_LENGTH = re.compile(r"\d+")
# Numba writes "<lambda>" as "_3clambda_3e".
_ESCAPED = re.compile(r"_3c(\w+)_3e")


def written_name(symbol: str) -> str:
    """
    Return the name of a function as its author wrote it, without namespaces and types.

    For example: "saxpy" for "_ZN8__main__5saxpyB2v1Ef5ArrayIfLi1E1C7mutable7alignedE" and for "_Z5saxpyfPf".
    A symbol that is not mangled is returned unchanged.
    """
    if not symbol.startswith("_Z"):
        return symbol
    is_nested = symbol.startswith("_ZN")
    position = 3 if is_nested else 2
    name = ""
    # In a nested name, "_ZN" precedes the namespaces and the name itself, which is the last identifier.
    while match := _LENGTH.match(symbol, position):
        position = match.end() + int(match[0])
        name = symbol[match.end() : position]
        if not is_nested:
            break
    return _ESCAPED.sub(r"<\1>", name) or symbol
