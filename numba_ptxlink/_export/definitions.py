"""Find the functions that a module marks, and refuse those of which an export would be misunderstood."""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import AbiError, ExportError

from .reached import Marked, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, ModuleType

_MARKS = "_numba_ptxlink_marks"
"""
The attribute of a module's specification that lists what the module has marked.

A module that is run again has another specification. A table here would keep both alive for ever.
"""

_refusals: ContextVar[list[AbiError] | None] = ContextVar("refusals", default=None)


@contextmanager
def refused_together() -> Iterator[None]:
    """
    Let functions be marked whose names are refused, and refuse all of them at the end of a `with` block.

    Raises:
        AbiError: There are some. Names each, with its line and the cure.
    """
    kept: list[AbiError] = []
    token = _refusals.set(kept)
    try:
        yield
    finally:
        _refusals.reset(token)
    if kept:
        raise AbiError("\n".join(map(str, kept)))


def refuse(error: AbiError, place: str) -> None:
    """
    Refuse a function that is marked at the line *place*, for its name.

    Raises:
        AbiError: It is *error*, outside of `refused_together`.
    """
    kept = _refusals.get()
    if kept is None:
        raise error
    kept.append(AbiError(f"{place}: error: {error}"))


def record(marked: Marked) -> None:
    """Note that *marked* is defined while the body of its module runs."""
    scope = marked.function.__globals__
    spec = scope.get("__spec__")
    # Without a specification it is a script or a notebook, whose cells are meant to run again.
    if spec is not None and _runs(scope):
        vars(spec).setdefault(_MARKS, []).append(marked)


def _runs(scope: dict[str, Any]) -> bool:
    """Return whether the body of the module with the globals *scope* is being run."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as `warnings` finds its caller
    while frame is not None and not (frame.f_globals is scope and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    return frame is not None


def of_module(module: ModuleType) -> tuple[Any, ...]:
    """
    Return the marked functions that *module* defines, in order of definition.

    They are all that its body has marked, whatever has them in the end, such as a list or a class; and what
    got a name in it later.
    """
    added = [
        other
        for each in dict.fromkeys((*_recorded(module), *_named(module)))
        for other in (each, *each.others)
    ]
    # The last signature of a function has the others with it.
    with_another = {id(other) for each in added for other in each.others}
    return tuple(each for each in dict.fromkeys(added) if id(each) not in with_another)


def _recorded(module: ModuleType) -> tuple[Any, ...]:
    return tuple(getattr(module.__spec__, _MARKS, ()))


def _named(module: ModuleType) -> tuple[Any, ...]:
    """Return the marked functions that names in *module* lead to, static methods included."""
    found = (value for _, value in _members(module) if isinstance(value, Marked))
    return tuple(dict.fromkeys(each for each in found if each.function.__module__ == module.__name__))


def check(module: ModuleType) -> None:
    """
    Refuse marked functions of *module* that Python and C would know by different names or ways of a call.

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
    sources = {each.source for each in _named(module)}
    for marked in _recorded(module):
        name, source = marked.function.__name__, marked.source
        value = vars(module).get(name, marked)
        again = isinstance(value, Marked) and value.function.__name__ == name
        # A function that is marked elsewhere, and by another name, keeps its own.
        plain = inspect.isfunction(value) and source_of(value) == source
        lost = marked.function.__qualname__ == name and source not in sources
        if lost and not again and not plain:
            has_it = f"{name} ({source_of(value)})" if inspect.isfunction(value) else repr(value)
            raise ExportError(
                f"{name} ({source}) is marked for export, and {has_it} has its name in {module.__name__} in "
                "the end, so that C and Python would call different functions by it. Rename one of the two, "
                "or mark both; where it is a decorator's, put the mark on top; where the first is not "
                "wanted, remove its mark."
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
