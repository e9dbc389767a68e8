"""Find and replace the identifiers in C++ symbols (Itanium C++ ABI, 5.1)."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# Digits are the length of an identifier, save in substitutions, template parameters, bounds of arrays,
# literals, constructors, destructors, thunks, and the number of a local name at the end.
_PIECE = re.compile(
    r"""
    S[0-9A-Z]*_ | S[a-z] | T[0-9]*_ | A[0-9]*_ | Dv[0-9]+_ | L[a-z]n?[0-9a-f]+E | CI?[1-5] | D[0-5]
  | Thn?[0-9]+_ | Tvn?[0-9]+_n?[0-9]+_ | _[0-9]$ | __[0-9]+_$
  | (?P<length>[1-9][0-9]*) | .
    """,
    re.ASCII | re.DOTALL | re.VERBOSE,
)
_LITERAL_OPERATOR = re.compile(r"_Z(?:N[rVKRO]*(?:[1-9]\w*?)?)?li$", re.ASCII)
_ENUMERATOR = re.compile(r"n?[0-9]+E")


class Identifier(NamedTuple):
    """
    An identifier in a symbol.

    Args:
        text: The identifier.
        start: Where its length begins.
        end: The offset after it.
    """

    text: str
    start: int
    end: int


@functools.lru_cache(maxsize=4096)
def identifiers(symbol: str) -> tuple[Identifier, ...]:
    """
    Return the identifiers in *symbol*: of a function its namespaces and classes, its name, then its types.

    An operator, a constructor and a conversion have no identifier of their own. A suffix of a literal
    operator, which is part of a literal's token, is left out. A name that is not mangled is its identifier.
    """
    if not symbol.startswith("_Z"):
        return (Identifier(symbol, 0, len(symbol)),)
    parts: list[Identifier] = []
    at = 2
    while match := _PIECE.match(symbol, at):
        start, at = match.span()
        if not match["length"]:
            continue
        end = at + int(match["length"])
        if end > len(symbol):
            continue
        if not _LITERAL_OPERATOR.match(symbol[:start]):
            parts.append(Identifier(symbol[at:end], start, end))
        at = end
        value = _ENUMERATOR.match(symbol, at)
        if value and symbol[start - 1] == "L":
            at = value.end()
    return tuple(parts)


def renamed(symbol: str, names: Mapping[str, str]) -> str:
    """Return *symbol* as a compiler spells it that reads each identifier as *names* has it."""
    if not symbol.startswith("_Z"):
        return names.get(symbol, symbol)
    pieces: list[str] = []
    at = 0
    for text, start, end in identifiers(symbol):
        if text in names:
            pieces += [symbol[at:start], str(len(names[text])), names[text]]
            at = end
    return "".join([*pieces, symbol[at:]])
