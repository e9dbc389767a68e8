"""
Locks that a forked child finds free: the only module of the package that makes any.

A fork copies the locks that other threads hold, and not those threads: who asks for such a lock in the child
waits for ever. So every lock is made anew there, at one place that a new lock cannot miss.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """
    A reentrant lock, held by `with lock.held:`, and free in a forked child whoever held it in the parent.

    Args:
        forget: Called in a forked child: drops what the lock guards and only a thread of the parent could
            bring to its end.
    """

    __slots__ = ("__weakref__", "_forget", "held")

    def __init__(self, forget: Callable[[], object] | None = None) -> None:
        self._forget = forget
        # Not a context manager of our own: an interrupt within its __enter__ would leave the lock held.
        self.held = threading.RLock()
        _locks.add(self)

    def renew(self) -> None:
        """Make the lock anew. For a process that has just been forked, and has one thread."""
        # Whoever forked within a `with` block leaves the old one at its end.
        self.held = threading.RLock()
        if self._forget is not None:
            self._forget()


class Latch:
    """What threads wait for, once: closed until somebody opens it."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let everybody go on. Once only."""
        self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait at most *seconds*, and return whether it was opened."""
        if not self._lock.acquire(timeout=seconds):
            return False
        self._lock.release()
        return True


def _renew() -> None:
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_renew)
