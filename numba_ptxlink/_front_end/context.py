"""
What travels from outer replaced functions to inner ones, through a compiler that knows nothing of it.

Every import of a front end imports this module.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T", bound=NamedTuple)


class Context(Generic[T]):
    """
    Values of a thread, changed for the length of a `with` block.

    Args:
        name: What debuggers call the variable.
        none: The values outside of any block.
    """

    def __init__(self, name: str, none: T) -> None:
        self._variable: ContextVar[T] = ContextVar(name, default=none)

    def current(self) -> T:
        """Return the values of the blocks that this thread is in."""
        return self._variable.get()

    @contextlib.contextmanager
    def entered(self, **changes: Any) -> Iterator[None]:
        """Change values for the length of a `with` block."""
        token = self._variable.set(self.current()._replace(**changes))
        try:
            yield
        finally:
            self._variable.reset(token)
