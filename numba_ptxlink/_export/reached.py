"""Walk the Python functions that a function can call, by the global and enclosing names that it reads."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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
