"""
Move the shared memory that functions declare to the level of their module.

Two calls of a function mean the same memory, so its body cannot declare that in the place of both. At the
level of the module it is one variable, which both of them name.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

if TYPE_CHECKING:
    from collections.abc import Iterator


def hoisted(module: ptx.Module) -> ptx.Module:
    """
    Return *module* with the shared variables of its device functions before these functions.

    A variable whose name something else in the module has stays where it is.

    Raises:
        LinkError: A function is malformed.
    """
    if ".shared" not in module.text:
        return module
    local = [
        (function, statement)
        for function in module.functions
        if function.kind == "func" and function.defined
        for statement in function.body
        if isinstance(statement, ptx.Declaration)
        and all(variable.space == "shared" for variable in statement.variables)
    ]
    names = Counter(variable.name for _, statement in local for variable in statement.variables)
    names.update(_declared(module))
    edits: dict[ptx.Span, str] = {}
    for function, statement in local:
        if any(names[variable.name] > 1 for variable in statement.variables):
            continue
        place = ptx.Span(function.start, function.start)
        edits[place] = f"{edits.get(place, '')}{module.source(statement)}\n"
        edits[statement.span] = ""
    return ptx.parse(module.replace(edits)) if edits else module


def _declared(module: ptx.Module) -> Iterator[str]:
    for function in module.functions:
        yield function.name
        yield from (parameter.name for parameter in (*function.results, *function.params))
    yield from (variable.name for variable in module.variables)
