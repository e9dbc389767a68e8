"""
Locks that a forked child finds free: the only module of the package that makes any.

A fork copies the locks that other threads hold, and not those threads: who asks for such a lock in the child
waits for ever. So every lock is made anew there, at one place that a new lock cannot miss. Locks within
NVIDIA's libraries cannot be made anew; a fork waits until no thread is in one of them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST_WAIT = 60.0
"""How long a fork waits for other threads' calls into NVIDIA's libraries, in seconds."""

_PAUSE = 0.001
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


_in_tools: set[int] = set()
_door = threading.Lock()


@contextlib.contextmanager
def in_tool() -> Iterator[None]:
    """Call a library of NVIDIA's within a `with` block: no fork happens meanwhile, but one of this thread."""
    thread = threading.get_ident()
    if thread in _in_tools:
        yield
        return
    with _door:
        _in_tools.add(thread)
    try:
        yield
    finally:
        _in_tools.discard(thread)


def _before_fork() -> None:
    _door.acquire()
    deadline = time.monotonic() + LONGEST_WAIT
    # Threads that ended by an interrupt at the wrong moment are not waited for.
    while _others_in_tools() and time.monotonic() < deadline:
        time.sleep(_PAUSE)


def _others_in_tools() -> set[int]:
    return (_in_tools & sys._current_frames().keys()) - {threading.get_ident()}  # noqa: SLF001 - documented


def _after_fork() -> None:
    _door.release()


def _renew() -> None:
    global _door  # noqa: PLW0603 - a process that has just been forked has one thread
    _door = threading.Lock()
    _in_tools.intersection_update({threading.get_ident()})
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_renew)
