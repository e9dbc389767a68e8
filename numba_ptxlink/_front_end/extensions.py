"""What a front end has been taught, by `@overload` for one: whose functions and classes it has."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# What the front ends have of their own, some ten thousand objects that stay: by identity, each with itself.
_own: dict[int, Any] = {}


def of_contexts(typing: Any, target: Any, others: Iterable[Any] = ()) -> set[str]:
    """
    Return the modules that have taught the contexts of a front end templates, models of types, or lowering.

    Functions and classes are a module's own, or are made around functions of it. Those of the front end are
    passed over once they are known.

    Args:
        typing: The typing context of Numba, or of what is derived from it.
        target: The target context beside it.
        others: Functions and classes that it knows elsewhere.
    """
    typing.refresh()
    target.refresh()
    own = {type(typing).__module__.partition(".")[0], *sys.stdlib_module_names}
    found: set[str] = set()
    for known in (*_typed(typing), *_lowered(target), *others):
        if id(known) not in _own:
            origins = {*_origins(known, set())}
            if all(module.partition(".")[0] in own for module in origins):
                _own[id(known)] = known
            found |= origins
    return found


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


def _origins(known: Any, seen: set[int]) -> Iterator[str]:
    """Yield the modules that a function or a class, and what it is made around, come from."""
    if id(known) in seen:
        return
    seen.add(id(known))
    if isinstance(known, type):
        module = known.__module__
        if getattr(sys.modules.get(module), known.__name__, None) is known:
            # No function of another module was given to the statement that made it.
            yield module
            return
        # Templates of overloads and intrinsics are classes that Numba makes around a function. Their `key` is
        # what is called, which reaches the code by its name, as that of `register_jitable` does.
        seen.add(id(vars(known).get("key")))
        within = [getattr(member, "__func__", member) for member in vars(known).values()]
        if not any(getattr(inner, "__module__", None) == module for inner in within):
            yield module
    else:
        scope = getattr(known, "__globals__", {})
        yield str(scope.get("__name__", type(known).__module__))
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
