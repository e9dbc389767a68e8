"""
Marked functions: what they are, which ones a module has marked, and what they read.

A mark is recorded while the body of its module runs, whatever has the function in the end.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType

MARKS = "_numba_ptxlink_marks"
"""
The attribute of a module's specification that lists what the module has marked.

A module that is run again has another specification. A table here would keep both alive for ever.
"""

_refusals: ContextVar[list[AbiError] | None] = ContextVar("refusals", default=None)


class Marked:
    """
    What a decorator of this package makes of a Python function: the base class of `marks.Udf`.

    Args:
        function: The Python function.
        signature: Its Numba signature.
        name: Its C name.
        others: The same function with other signatures.
        asked: The front end that the decorator names, None if it names none.
    """

    function: Any
    signature: Any
    name: str
    others: tuple[Any, ...]
    asked: str | None

    @property
    def source(self) -> str:
        """Where the function is defined, as "file.py:line"."""
        return source_of(self.function)

    @property
    def place(self) -> str:
        """The same with the whole path, as compilers begin their messages: "/home/me/file.py:line"."""
        code = self.function.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"


def source_of(function: Any) -> str:
    """Return where the Python function *function* is defined, as "file.py:line"."""
    code = function.__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def decorated(value: Any) -> Any:
    """Return the Python function that a decorator of Numba or of this package wraps in *value*, else None."""
    function = value.function if isinstance(value, Marked) else getattr(value, "py_func", None)
    return function if inspect.isfunction(function) else None


def names(functions: Iterable[Any]) -> Iterator[tuple[Any, str, Any]]:
    """Yield each name that *functions* and the functions they reach read: function, name and value."""
    reached: set[Any] = set()
    pending = list(functions)
    while pending:
        function = pending.pop(0)
        if function in reached:
            continue
        reached.add(function)
        for name, value in _values(function):
            yield function, name, value
            callee = decorated(value)
            if callee is not None:
                pending.append(callee)


def _values(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names that *function* reads, and attributes of modules, with values."""
    code = function.__code__
    scope = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    for name in (*code.co_names, *code.co_freevars):
        value = scope.get(name)
        yield name, value
        if inspect.ismodule(value):
            # Not getattr: a module may compute an attribute, or warn of it.
            yield from ((f"{name}.{member}", vars(value).get(member)) for member in code.co_names)


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
        vars(spec).setdefault(MARKS, []).append(marked)


def _runs(scope: dict[str, Any]) -> bool:
    """Return whether the body of the module with the globals *scope* is being run."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as `warnings` finds its caller
    while frame is not None and not (frame.f_globals is scope and frame.f_code.co_name == "<module>"):
        frame = frame.f_back
    return frame is not None
