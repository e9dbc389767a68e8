"""
Record marked functions, find the names that they use, and choose the front end that compiles them.

`@udf` registers a function while its module is imported, even if its name is bound to another object later.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end import registry
from numba_ptxlink.errors import ExportError, with_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import FrameType

    from numba_ptxlink._front_end.base import FrontEnd

MARKS = "_numba_ptxlink_marks"
"""
The attribute of a module's `__spec__` that lists the functions that the module has marked.

A module that is imported again has a new `__spec__`, and the old list can be freed. A table of modules here
would keep the functions of each import alive.
"""


class Marked:
    """
    A Python function with a C signature: the base class of `marks.Udf`.

    Args:
        function: The Python function.
        signature: The Numba signature.
        signature_scope: The values that the names in the signature had when the function was marked; empty
            if the signature is not text.
        name: The C name.
        earlier_marks: The earlier marks of the same function, with other signatures.
        requested_front_end: The front end that the decorator names; None if it names none.
    """

    function: Any
    signature: Any
    signature_scope: dict[str, Any]
    name: str
    earlier_marks: tuple[Any, ...]
    requested_front_end: str | None

    @property
    def source(self) -> str:
        """The file name and line of the definition, as "file.py:line"."""
        return Path(self.location).name

    @property
    def location(self) -> str:
        """The full path and line of the definition, which messages begin with, as "/home/me/file.py:line"."""
        return location_of(self.function)


def location_of(function: Any) -> str:
    """Return the full path and line of a Python function's definition, as "/home/me/file.py:line"."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def variables_in_scope(function: Any) -> dict[str, Any]:
    """Return the globals and the variables of enclosing functions that a Python function can use, by name."""
    return {**function.__globals__, **inspect.getclosurevars(function).nonlocals}


def values_of_names(signature: Any, function: Any) -> dict[str, Any]:
    """
    Return the current values of the names in *signature*; nothing if the signature is not text.

    The names are looked up in the scope of *function*. A mark stores their values, since the module may bind
    a name to another value later, as in a loop.
    """
    try:
        names = compile(signature.strip(), "signature", "eval").co_names if isinstance(signature, str) else ()
    except (SyntaxError, ValueError):
        # The export reports this error, with an example.
        return {}
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    values = {}
    for name in names:
        # A variable that the enclosing function assigns later has an empty cell.
        with contextlib.suppress(KeyError, ValueError):
            values[name] = cells[name].cell_contents if name in cells else function.__globals__[name]
    return values


def unwrap_marked(function: Any) -> Any:
    """Return the Python function of a marked function; any other object unchanged."""
    return function.function if isinstance(function, Marked) else function


def wrapped_function(value: Any) -> Any:
    """Return the Python function that *value* wraps, if a decorator of Numba or this package made *value*."""
    if inspect.isfunction(value):
        # A plain function may have a `py_func` that is not its own: `functools.wraps` copies attributes.
        return None
    function = value.function if isinstance(value, Marked) else getattr(value, "py_func", None)
    return function if inspect.isfunction(function) else None


def used_names(functions: Iterable[Any]) -> Iterator[tuple[Any, str, Any]]:
    """Yield (function, name, value) for each name that *functions*, or functions that they call, use."""
    visited_functions: set[Any] = set()
    pending_functions = list(functions)
    while pending_functions:
        function = pending_functions.pop(0)
        if function in visited_functions:
            continue
        visited_functions.add(function)
        for name, value in _names_with_values(function):
            yield function, name, value
            callee = wrapped_function(value)
            if callee is not None:
                pending_functions.append(callee)


def _names_with_values(function: Any) -> Iterator[tuple[str, Any]]:
    """
    Yield each name that *function* uses, with its value; the value of an unknown name is None.

    A module is followed by the names that the function may read from it, such as "math.sin": all names in its
    byte code, which does not tell whose attributes they are.
    """
    code = function.__code__
    values = variables_in_scope(function)
    for name in (*code.co_names, *code.co_freevars):
        value = values.get(name)
        yield name, value
        if inspect.ismodule(value):
            # Not getattr, which may run the module's `__getattr__`, or emit a deprecation warning.
            yield from ((f"{name}.{member}", vars(value).get(member)) for member in code.co_names)


def record_mark(marked: Marked) -> None:
    """Add *marked* to the list of the module being imported, even if another module defines the function."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as `warnings` finds its caller
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    names = frame.f_globals if frame else {}
    spec = names.get("__spec__")
    # Marks of a script are not listed: it may mark new functions until it ends, and the list would keep all
    # of them alive.
    if spec is not None and names["__name__"] != "__main__":
        vars(spec).setdefault(MARKS, []).append(marked)


def choose_front_end(function: Marked, requested_front_end: str | None = None) -> FrontEnd:
    """
    Return the front end of *function*.

    The first of these that exists decides; 1 and 2 must not contradict each other:

    1. `front_end=` of the decorator, or *requested_front_end*.
    2. The owner of a type of the signature, or of a function or module that *function* or a callee uses.
    3. The owner of objects in the function's scope, if all have the same owner.
    4. The first installed one.

    Raises:
        ConfigError: The name of the front end is unknown.
        ExportError: *function* uses types or functions of another front end, or of several; or no front end
            is installed.
    """
    uses_by_front_end = _front_ends_used(function)
    requested = function.requested_front_end or requested_front_end
    if requested is not None:
        uses_by_front_end[registry.get(requested).name] = f"front_end={requested!r}"
    if len(uses_by_front_end) > 1:
        uses = " and ".join(f"{use}, which belongs to {name}" for name, use in uses_by_front_end.items())
        raise ExportError(
            with_location(
                function.location,
                f"{function.name} uses {uses}, but a function and its callees need one front end; use "
                "types and functions of one.",
            )
        )
    if uses_by_front_end:
        (name,) = uses_by_front_end
        return registry.get(name)
    values = variables_in_scope(function.function).values()
    owners_in_scope = {owner.name for value in values if (owner := registry.owner(value))}
    return registry.get(owners_in_scope.pop()) if len(owners_in_scope) == 1 else default_front_end()


def common_front_end(functions: Sequence[Marked], requested_front_end: str | None = None) -> FrontEnd:
    """
    Return the front end of all *functions*, with its compiler imported.

    Raises:
        ExportError: The functions have several front ends; or as for `choose_front_end` and
            `registry.require`.
    """
    marked = [mark for function in functions for mark in (*function.earlier_marks, function)]
    # Reversed, so that the message names the first function of each front end.
    functions_by_front_end = {
        choose_front_end(function, requested_front_end).name: function for function in reversed(marked)
    }
    if len(functions_by_front_end) > 1:
        listed = " and ".join(
            f"{function.name} ({function.source}) is compiled by {name}"
            for name, function in sorted(functions_by_front_end.items())
        )
        location = next(iter(functions_by_front_end.values())).location
        raise ExportError(
            with_location(
                location,
                f"{listed}, but the functions of an export need one front end; export them separately, "
                "under two names, or choose one with front_end=.",
            )
        )
    return registry.require(registry.get(next(iter(functions_by_front_end))))


def installed_front_ends() -> list[FrontEnd]:
    """Return the front ends whose compilers are installed, the preferred one first."""
    return [front_end for front_end in registry.front_ends() if registry.is_installed(front_end)]


def default_front_end() -> FrontEnd:
    """
    Return the first installed front end, for functions that use no type or module of any front end.

    Raises:
        ExportError: No front end is installed; the message names the extras to install.
    """
    for front_end in installed_front_ends():
        return front_end
    cures = " or ".join(
        f"`pip install 'numba-ptxlink[{front_end.extra}]'`" for front_end in registry.front_ends()
    )
    raise ExportError(f"No compiler for Python functions is installed; run {cures}.")


def import_compiler(requested_front_end: str | None = None) -> None:
    """
    Import the compiler of functions whose file is imported afterwards.

    Without *requested_front_end*, does nothing if several are installed, since the functions then choose one.

    Raises:
        ExportError: The front end is not installed or cannot be used, or no front end is installed.
    """
    if requested_front_end is not None:
        registry.require(registry.get(requested_front_end))
    elif len(installed_front_ends()) < 2:
        registry.require(default_front_end())


def _front_ends_used(function: Marked) -> dict[str, str]:
    """Return the names of the front ends that *function* and its callees use, each with the first use."""
    types = function.signature if isinstance(function.signature, tuple) else (function.signature,)
    uses = [(f"the type {ty}", registry.owner(ty)) for ty in types]
    for user, name, value in used_names([function.function]):
        owner = registry.owner(value)
        if isinstance(value, Marked):
            # A marked function without `front_end=` belongs to no front end.
            owner = registry.get(value.requested_front_end) if value.requested_front_end else None
        uses.append((f"{name} in {user.__qualname__}", owner))
    # Reversed, so that the first use of each front end remains.
    return {owner.name: use for use, owner in reversed(uses) if owner is not None}
