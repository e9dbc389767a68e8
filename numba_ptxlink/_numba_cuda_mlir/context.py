"""The function that is being compiled for an export, for the replaced functions of numba-cuda-mlir."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DISPATCHER_STATE = ("overloads", "targetoptions", "_device_dispatcher")


class NotLoweredError(ExportError):
    """
    numba-cuda-mlir has no code for a statement.

    Args:
        cause: Its error.
        place: The file and line of the statement.
        report: Raises what numba-cuda-mlir raises on its own.
    """

    def __init__(self, cause: BaseException, place: str, report: Callable[[], None]) -> None:
        super().__init__(f"{place}: {cause}")
        self.cause = cause
        self.report = report


@dataclass(eq=False, repr=False)
class Program:
    """
    One exported function with all that it calls, filled in as its compilation proceeds.

    Args:
        chip: The architecture, such as "sm_90a".
        cc: Its compute capability.
        checked: Whether divisions by zero and indices out of range are errors.
        returns: The declared type of its result; None for one that is inferred.
        links: The link files that it asks for, in order.
        declared: The functions of `cuda.declare_device` that it calls.
        sites: The file and line of each place that meets errors, by its number.
        packed: The types of records and arrays that lie in packed records.
        unaligned: The addresses of packed records, and of what lies in them.
        refused: The last statement that it has no code for.
    """

    chip: str
    cc: tuple[int, int]
    checked: bool
    returns: Any = None
    links: dict[Any, None] = field(default_factory=dict)
    declared: dict[Any, None] = field(default_factory=dict)
    sites: list[tuple[str, int]] = field(default_factory=list)
    packed: set[Any] = field(default_factory=set)
    unaligned: set[Any] = field(default_factory=set)
    refused: NotLoweredError | None = None
    _borrowed: dict[int, tuple[Any, dict[str, Any]]] = field(default_factory=dict)

    def site(self, file: str, line: int) -> int:
        """Return the number of a place that meets errors."""
        if (file, line) not in self.sites:
            self.sites.append((file, line))
        return self.sites.index((file, line))

    def borrow(self, dispatcher: Any) -> None:
        """
        Let *dispatcher* forget what it compiled for others, until the end of this program.

        It keeps one result for all architectures, for all that its callers want of errors, and for kernels
        that numba-cuda-mlir launches, which have another way with errors.
        """
        if id(dispatcher) in self._borrowed:
            return
        there = vars(dispatcher)
        kept = {name: there[name] for name in _DISPATCHER_STATE if name in there}
        self._borrowed[id(dispatcher)] = (dispatcher, kept)
        there.pop("_device_dispatcher", None)
        dispatcher.overloads = type(dispatcher.overloads)()
        dispatcher.targetoptions = {**dispatcher.targetoptions, "chip": self.chip}

    def give_back(self) -> None:
        """Restore every borrowed dispatcher."""
        for dispatcher, kept in self._borrowed.values():
            vars(dispatcher).pop("_device_dispatcher", None)
            vars(dispatcher).update(kept)
        self._borrowed.clear()


_current: ContextVar[Program | None] = ContextVar("numba_ptxlink_mlir_program", default=None)


def current() -> Program | None:
    """Return the program that this thread compiles, None for any other compilation."""
    return _current.get()


def compiled_now() -> Program:
    """Return the program that this thread compiles, where there is one."""
    program = current()
    if program is None:
        raise RuntimeError
    return program


@contextlib.contextmanager
def compiling(program: Program) -> Iterator[None]:
    """Make *program* the current one for the length of a `with` block."""
    token = _current.set(program)
    try:
        yield
    finally:
        program.give_back()
        _current.reset(token)
