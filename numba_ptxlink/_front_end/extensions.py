"""What a front end has been taught, by `@overload` for one: the functions and classes, and whose they are."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def of_contexts(typing: Any, target: Any, others: Iterable[Any] = ()) -> dict[str, list[list[Any]]]:
    """
    Return what the contexts of a front end know, its own included: templates, models of types, and lowering.

    Args:
        typing: The typing context of Numba, or of what is derived from it.
        target: The target context beside it.
        others: Functions and classes that it knows elsewhere.

    Returns:
        By the name of a module, functions and classes that are its own, or are made around functions of it:
        a list for each time that the module was run.
    """
    typing.refresh()
    target.refresh()
    found: dict[str, dict[int, list[Any]]] = {}
    for known in {id(known): known for known in (*_typed(typing), *_lowered(target), *others)}.values():
        for module, run in {*_origins(known, set())}:
            found.setdefault(module, {}).setdefault(run, []).append(known)
    return {module: [*runs.values()] for module, runs in found.items()}


def _typed(context: Any) -> Iterator[Any]:
    """Yield the templates of *context*, which are classes."""
    tables = (context._functions, context._attributes, context._globals)  # noqa: SLF001 - nothing lists them
    for table in tables:
        for value in list(table.values()):
            for entry in value if isinstance(value, (list, tuple)) else (value,):
                for template in getattr(entry, "templates", None) or (entry,):
                    yield template if isinstance(template, type) else type(template)


def _lowered(context: Any) -> Iterator[Any]:
    """Yield the functions of *context* that write code, and the classes that tell how values lie."""
    tables = (context._defns, context._getattrs, context._setattrs)  # noqa: SLF001 - nothing lists them
    single = (context._casts, context._get_constants)  # noqa: SLF001
    for overloads in (*(each for table in tables for each in list(table.values())), *single):
        for _, function in list(overloads.versions):
            yield function
    yield from list(context.data_model_manager._handlers.values())  # noqa: SLF001


def _origins(known: Any, seen: set[int]) -> Iterator[tuple[str, int]]:
    """Yield where a function or a class, and what it is made around, come from: a module, and a run of it."""
    if id(known) in seen:
        return
    seen.add(id(known))
    if isinstance(known, type):
        module = known.__module__
        if getattr(sys.modules.get(module), known.__name__, None) is known:
            # No function of another module was given to the statement that made it.
            yield module, 0
            return
        # Templates of overloads and intrinsics are classes that Numba makes around a function. Their `key` is
        # what is called, which reaches the code by its name, as that of `register_jitable` does.
        seen.add(id(vars(known).get("key")))
        within = [getattr(member, "__func__", member) for member in vars(known).values()]
        if not any(getattr(inner, "__module__", None) == module for inner in within):
            yield module, 0
    else:
        scope = getattr(known, "__globals__", {})
        yield str(scope.get("__name__", type(known).__module__)), id(scope)
        within = [*_enclosed(known)]
    for inner in within:
        if isinstance(inner, (FunctionType, type)):
            yield from _origins(inner, seen)


def _enclosed(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:
            # It has no value yet.
            continue
