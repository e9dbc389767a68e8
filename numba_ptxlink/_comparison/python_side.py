"""Call a Python function and its helpers without their compiler, up to a limit of executed lines."""

from __future__ import annotations

import functools
import sys
from types import CellType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from numba_ptxlink._export import choice
from numba_ptxlink._front_end import registry

from .values import Integer, SkippedCallError

if TYPE_CHECKING:
    from collections.abc import Callable

# A call and a return count as a line each.
_MAX_LINES = 100_000
# Python raises the first four in functions that only a compiler can run, and the last two at limits that
# compiled code does not have.
_SKIPPED_EXCEPTIONS = (AttributeError, NameError, NotImplementedError, TypeError, MemoryError, RecursionError)


def without_compiler(function: FunctionType) -> Callable[..., Any]:
    """
    Return a callable that runs *function* in Python, with Python functions in place of dispatchers.

    Dispatchers that those functions call are replaced as well, in any module. The call raises what *function*
    raises.

    Raises:
        SkippedCallError: The call raises it if Python cannot run the function, or needs more than 100,000
            lines.
    """
    copies = _Copies(function)
    return functools.partial(_call, copies.of(function), copies)


class _Copies:
    """
    Copies of functions that call Python functions in place of a compiler's dispatchers.

    Args:
        function: The function to compare, which calls the other functions directly or not.
    """

    def __init__(self, function: FunctionType) -> None:
        # The names by which functions call dispatchers, such as "f" or "helpers.f".
        callees = {name for _, name, value in choice.used_names([function]) if choice.wrapped_function(value)}
        # Names of modules that are copied, such as "helpers" if a function calls `helpers.f`.
        self._module_names = {name.partition(".")[0] for name in callees if "." in name}
        # The copied globals of each module, by the id of the original dictionary.
        self._scopes: dict[int, dict[str, Any]] = {}

    def of(self, function: FunctionType) -> FunctionType:
        """Return the copy of *function*."""
        cells = None if function.__closure__ is None else tuple(map(self._copy_cell, function.__closure__))
        scope = self._copy_scope(function.__globals__)
        copy = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells)
        copy.__kwdefaults__ = function.__kwdefaults__
        return copy

    def has_frame(self, frame: FrameType | None) -> bool:
        """Return whether *frame* executes a copy."""
        return frame is not None and any(frame.f_globals is scope for scope in self._scopes.values())

    def _copy_cell(self, cell: CellType) -> CellType:
        """Return the copy of a variable of an enclosing function."""
        try:
            return CellType(self._replace(cell.cell_contents))
        except ValueError:  # The cell is empty.
            return cell

    def _copy_scope(self, names: dict[str, Any]) -> dict[str, Any]:
        """Return the copy of *names*, the globals of a module, in which `int` is `Integer`."""
        if id(names) not in self._scopes:
            # Stored before it is complete, since functions in it refer to it. A global `int` of the module
            # itself is not replaced.
            self._scopes[id(names)] = scope = {"int": Integer, **names}
            scope.update((name, self._replace(value, name)) for name, value in names.items())
        return self._scopes[id(names)]

    def _replace(self, value: Any, name: str = "") -> Any:
        """Return a copy of the function in a dispatcher, or of the module *name*; other values unchanged."""
        if name in self._module_names and isinstance(value, ModuleType):
            module = ModuleType(value.__name__)
            vars(module).update(self._copy_scope(vars(value)))
            return module
        function = choice.wrapped_function(value)
        return value if function is None else self.of(function)


def _call(function: Callable[..., Any], copies: _Copies, *arguments: Any) -> Any:
    """Call *function*, one of *copies*; raise SkippedCallError in place of `_SKIPPED_EXCEPTIONS`."""
    try:
        return _call_limited(function, copies, arguments)
    except _SKIPPED_EXCEPTIONS as error:
        raise SkippedCallError(f"Python raises {type(error).__name__}: {error}") from error


def _call_limited(function: Callable[..., Any], copies: _Copies, arguments: tuple[Any, ...]) -> Any:
    """Call *function*, and raise SkippedCallError after too many lines."""
    line_count = 0

    def trace(frame: FrameType, event: str, value: Any) -> Any:
        nonlocal line_count
        line_count += 1
        if line_count > _MAX_LINES:
            raise SkippedCallError(f"it takes Python more than {_MAX_LINES:,} lines")
        # A copy called a function in a front end's package, and the function returns None: a placeholder for
        # device code, such as `libdevice.expf`.
        if event == "return" and value is None and copies.has_frame(frame.f_back) and _is_compiler(frame):
            raise NotImplementedError(
                f"{frame.f_globals['__name__']}.{frame.f_code.co_name} only runs on a GPU"
            )
        return trace

    previous_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        with np.errstate(all="ignore"):
            return function(*arguments)
    finally:
        sys.settrace(previous_trace)


def _is_compiler(frame: FrameType) -> bool:
    """Return whether *frame* executes a function of a front end's compiler."""
    return registry.of_module(frame.f_globals.get("__name__", "")) is not None
