"""
Choose the identifiers of CUDA C++ that can be renamed by macros without a change of what the code means.

A macro also replaces what it should not: `#ifdef`, a string that is made of a name, a member of a toolkit's
class. So the PTX that is compiled with macros is compared with the PTX that is compiled without, in which the
symbols are renamed. A name that makes a difference is left alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import mangling
from numba_ptxlink._formats.ptx import parse, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Namespaces and classes of NVIDIA's headers.
_TOOLKIT = re.compile(
    r"std|cuda|cub|thrust|cooperative_groups|nvcuda|nv|dim3|curand\w*|cuda[A-Z]\w*"
    r"|u?(?:char|short|int|long|longlong)[1-4](?:_\d+a)?|(?:float|double)[1-4](?:_\d+a)?"
    r"|__half\w*|__nv_\w*",
    re.ASCII,
)
_PARAMETER = re.compile(r"(.+)(_param_[0-9]+)", re.ASCII | re.DOTALL)
# Of a static function and of an unnamed namespace. What follows is made of a name that the file defines.
_FILE_SCOPES = ("_INTERNAL_", "_GLOBAL__N_")


def candidates(symbol: str) -> tuple[str, ...]:
    """Return the identifiers of which one, if it is renamed, makes *symbol* private; the best first."""
    texts: dict[str, None] = {}
    end, foreign, nested, own = -1, False, False, True
    for part in mangling.identifiers(symbol):
        if part.start == end and not nested:
            own = False
        elif part.start != end:
            before = symbol[: part.start].rstrip("rVKRO")
            own = end < 0 and not before[2:].strip("GVZN")
            nested = before.endswith("N")
            foreign = False
        # The name of a function or variable that the file itself defines is the file's, as is what it adds to
        # a namespace of the toolkit.
        known = bool(_TOOLKIT.fullmatch(part.text)) and (nested or not own)
        foreign = known or (foreign and nested and not own)
        end = part.end
        if not foreign:
            texts[part.text] = None
    return tuple(texts)


def choose(
    symbols: Iterable[str], outside: Iterable[str], usable: Callable[[frozenset[str]], bool]
) -> frozenset[str]:
    """
    Return the identifiers to rename so that as many of *symbols* as possible are private.

    Args:
        symbols: The symbols that the sources define.
        outside: Symbols that must stay as they are.
        usable: Whether a set of identifiers can be renamed together.
    """
    refused = {part.text for symbol in outside for part in mangling.identifiers(symbol)}
    chosen: frozenset[str] = frozenset()
    open_ = {symbol: candidates(symbol) for symbol in symbols}
    while True:
        open_ = {symbol: names for symbol, names in open_.items() if chosen.isdisjoint(names)}
        firsts = (next((name for name in names if name not in refused), "") for names in open_.values())
        new = sorted({*firsts} - {""})
        if not new:
            return chosen
        chosen |= _largest(new, chosen, usable)
        refused |= {*new} - chosen


def _largest(
    names: Sequence[str], base: frozenset[str], usable: Callable[[frozenset[str]], bool]
) -> frozenset[str]:
    """Return those of *names* that can be renamed beside *base*, found by halves."""
    if usable(base | {*names}):
        return frozenset(names)
    if len(names) == 1:
        return frozenset()
    middle = len(names) // 2
    left = _largest(names[:middle], base, usable)
    return left | _largest(names[middle:], base | left, usable)


def same_code(plain: str, changed: str, private: Mapping[str, str]) -> bool:
    """Return whether the PTX *changed* is *plain* but for the symbols that *private* renames."""
    module = parse(plain)
    declared = {function.name for function in module.functions}
    declared |= {variable.name for variable in module.variables}

    def renamed(word: str) -> str:
        if word.startswith("_Z") or word in declared:
            return mangling.renamed(word, private)
        parameter = _PARAMETER.fullmatch(word)
        return renamed(parameter[1]) + parameter[2] if parameter else word

    return _words(plain, renamed) == _words(changed, str)


def _words(ptx: str, renamed: Callable[[str], str]) -> list[str]:
    return [
        _without_scope(renamed(token.text)) if token.kind == "word" else token.text for token in tokens(ptx)
    ]


def _without_scope(word: str) -> str:
    if not word.startswith("_Z"):
        return word
    texts = [part.text for part in mangling.identifiers(word)]
    return mangling.renamed(
        word, {text: scope for text in texts for scope in _FILE_SCOPES if text.startswith(scope)}
    )
