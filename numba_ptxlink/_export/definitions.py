"""Find the marked functions of a module, and refuse those that it marks and an export would leave out."""

from __future__ import annotations

import inspect
import weakref
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

from .reached import Marked, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

# By the specification of a module, which is another one where the module is run again: names and sources.
_marked: dict[int, list[tuple[str, str]]] = {}


def record(marked: Marked) -> None:
    """Note that *marked* is defined in the body of its module."""
    function = marked.function
    spec = function.__globals__.get("__spec__")
    # Without a specification it is a script or a notebook, whose cells are meant to run again.
    if spec is None or function.__qualname__ != function.__name__:
        return
    if id(spec) not in _marked:
        _marked[id(spec)] = []
        weakref.finalize(spec, _marked.pop, id(spec), None).atexit = False
    _marked[id(spec)].append((function.__name__, marked.source))


def of_module(module: ModuleType) -> tuple[Any, ...]:
    """Return the marked functions that *module* defines, static methods included, in order of definition."""
    return tuple(
        dict.fromkeys(
            each
            for _, value in _members(module)
            for each in (value.of_its_name if isinstance(value, Marked) else ())
            if each.function.__module__ == module.__name__
        )
    )


def check(module: ModuleType) -> None:
    """
    Refuse what is marked in *module* and not in `of_module`.

    Raises:
        ExportError: A name was given to something else, or a method is not static.
    """
    for name, value in _members(module):
        inner = value.__func__ if isinstance(value, classmethod) else value
        if "." in name and isinstance(inner, Marked):
            raise ExportError(
                f"{name} ({inner.source}) is a method, whose object or class C cannot pass; write "
                "@staticmethod above the mark, and no `self`."
            )
    sources = {each.source for each in of_module(module)}
    for name, source in _marked.get(id(module.__spec__), ()):
        value = vars(module).get(name)
        lost = name in vars(module) and source not in sources
        # A function that is marked elsewhere, and by another name, keeps its own.
        if lost and not (inspect.isfunction(value) and source_of(value) == source):
            has_it = f"{name} ({source_of(value)})" if inspect.isfunction(value) else repr(value)
            raise ExportError(
                f"{name} ({source}) is marked for export, and {has_it} has its name in {module.__name__} in "
                "the end, so that it would be left out. Rename one of the two, or mark both; where it is a "
                f"decorator's, put the mark on top; where the first is not wanted, remove its mark."
            )


def _members(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the values of *module*, and by dotted names those of its classes, static methods unwrapped."""
    pending = list(vars(module).items())
    seen: set[int] = set()
    while pending:
        name, value = pending.pop(0)
        if isinstance(value, type) and value.__module__ == module.__name__ and id(value) not in seen:
            seen.add(id(value))
            pending[:0] = [(f"{name}.{member}", inner) for member, inner in vars(value).items()]
        elif isinstance(value, staticmethod):
            # It has the name that a function outside of a class would have.
            yield name.rpartition(".")[2], value.__func__
        else:
            yield name, value
