"""The symbols of PTX: what other code can see of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats.symbol import Symbol

if TYPE_CHECKING:
    from .read import Input

_WEAK = ("weak", "common")


class Table(NamedTuple):
    """
    The symbols of one input.

    Args:
        name: The input's name.
        symbols: Its symbols, a definition in the place of its declarations.
        hidden: The functions and variables that it keeps to itself.
    """

    name: str
    symbols: tuple[Symbol, ...]
    hidden: frozenset[str] = frozenset()


def table(source: Input) -> Table:
    """Return the symbols of PTX; with lines, unless it was compiled and nobody has its text."""
    module = source.module
    functions = [
        Symbol(
            name=function.name,
            kind=function.kind,
            defined=function.defined,
            weak=function.linkage in _WEAK,
            prototype=function.prototype if function.kind == "func" else None,
            line=0 if source.compiled else function.line,
        )
        for function in module.functions
        if function.linkage or function.kind == "entry"
    ]
    # A function is declared, as what its alias stands for, before the alias, which defines it.
    aliases = {alias.name for alias in module.aliases}
    aliased = [
        Symbol(each.name, "func", True, prototype=each.prototype, line=0 if source.compiled else each.line)
        for each in module.functions
        if each.name in aliases
    ]
    variables = [
        Symbol(
            name=variable.name,
            kind="variable",
            defined=variable.defined,
            weak=variable.linkage in _WEAK,
            line=0 if source.compiled else variable.line,
            size=variable.size,
            common=variable.linkage == "common",
            space=variable.memory,
        )
        for variable in module.variables
        if variable.linkage
    ]
    found: dict[tuple[str, str], Symbol] = {}
    for symbol in (*aliased, *functions, *variables):
        known = found.get((symbol.name, symbol.kind))
        if known is None or (symbol.defined and not known.defined):
            found[symbol.name, symbol.kind] = symbol
    hidden = {each.name for each in module.functions if each.defined and not each.linkage}
    hidden |= {each.name for each in module.variables if each.defined and not each.linkage}
    return Table(source.name, tuple(found.values()), frozenset(hidden))
