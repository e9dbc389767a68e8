"""
Rename symbols of CUDA C++ without a change of what the code means: by macros, or by a namespace around it.

A macro also replaces what it should not: `#ifdef`, a string that is made of a name, a member of a toolkit's
class. So the PTX that is compiled with macros is compared with the PTX that is compiled without, in which the
symbols are renamed. A name that makes a difference is left alone. Those, operators and suffixes of literals
can be put in an inline namespace, which changes no name that the code spells. It hides what has the same name
outside, so that PTX is compared as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import mangling
from numba_ptxlink._formats.demangle import demangled
from numba_ptxlink._formats.ptx import Function, parse, tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
_DIRECTIVE = re.compile(r"\s*#\s*(if|endif|include\s*[<\"])")


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


def enclosed(text: str, namespace: str) -> Iterator[str]:
    """
    Yield *text* with an inline *namespace* around what follows the includes of a toolkit's headers.

    Its own headers, which may define something as well, are inside at first, then outside.
    """
    lines = text.splitlines(keepends=True)
    depth, starts, seen = 0, [0, 0], [False, False]
    for number, line in enumerate(lines, start=1):
        directive = _DIRECTIVE.match(line)
        if directive:
            depth += {"if": 1, "endif": -1}.get(directive[1], 0)
            seen = [seen[0] or directive[1].endswith("<"), seen[1] or directive[1].startswith("include")]
        if directive and not depth:
            # Behind a conditional that holds an include, not within it.
            starts = [number if new else start for start, new in zip(starts, seen, strict=True)]
            seen = [False, False]
    for start in dict.fromkeys(starts):
        head, rest = "".join(lines[:start]), "".join(lines[start:])
        yield f"{head}inline namespace {namespace} {{\n#line {start + 1}\n{rest}\n}}\n"


def same_code(plain: str, changed: str, private: Mapping[str, str]) -> bool:
    """Return whether the PTX *changed* is *plain* but for the symbols that *private* renames."""
    return _words(plain, _renaming(plain, private)) == _words(changed, str)


def moved(plain: str, changed: str, private: Mapping[str, str], namespace: str) -> dict[str, str] | None:
    """
    Return the symbols in the PTX *plain* that are in *namespace* in *changed*, with their names there.

    None if there is another difference than these, the symbols that *private* renames, and the order.
    """
    before, after = _items(plain, _renaming(plain, private)), _items(changed, str)
    olds = {demangled(name) or name: name for item in before for name in map(_symbol, item)}
    names: dict[str, str] = {}
    spoken = {name for item in after for name in map(_symbol, item)}
    for new in spoken:
        inside = demangled(new)
        outside = inside.replace(f"{namespace}::", "")
        if inside != outside:
            if outside not in olds:
                return None
            names[new] = olds[outside]
    # A name that stays where others like it move, as in assembly code, refers to something else.
    if len({*names.values()}) < len(names) or not spoken.isdisjoint(names.values()):
        return None

    def old(word: str) -> str:
        name = _symbol(word)
        return names.get(name, name) + word[len(name) :]

    if sorted(before) != sorted([old(word) for word in item] for item in after):
        return None
    return {name: new for new, name in names.items()}


def _items(ptx: str, renamed: Callable[[str], str]) -> list[list[str]]:
    module = parse(ptx)
    defined = {function.name for function in module.functions if function.defined}
    return [
        _words(module.source(item), renamed)
        for item in module.items
        # Whether a function is declared before its definition depends on the order.
        if not isinstance(item, Function) or item.defined or item.name not in defined
    ]


def _symbol(word: str) -> str:
    """Return *word* without the suffix of a parameter."""
    return _PARAMETER.sub(r"\1", word)


def _renaming(plain: str, private: Mapping[str, str]) -> Callable[[str], str]:
    module = parse(plain)
    declared = {function.name for function in module.functions}
    declared |= {variable.name for variable in module.variables}

    def renamed(word: str) -> str:
        if word.startswith("_Z") or word in declared:
            return mangling.renamed(word, private)
        parameter = _PARAMETER.fullmatch(word)
        return renamed(parameter[1]) + parameter[2] if parameter else word

    return renamed


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
