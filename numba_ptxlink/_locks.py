"""
Provide locks that are free in a forked child; the only module of the package that creates locks.

A fork copies locks that other threads hold, but not those threads: acquiring such a lock in the child would
deadlock. Therefore every lock is registered here and replaced in the child; those of modules that are being
imported are freed. Locks inside NVIDIA's libraries cannot be replaced; a fork waits until no thread is inside
one of them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

LONGEST_WAIT = 60.0
"""How long a fork waits for other threads' calls into NVIDIA's libraries, in seconds."""

_PAUSE = 0.001
_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """
    A reentrant lock, acquired by `with lock.held:`, that is free in a forked child.

    Args:
        forget: Called in a forked child: drops guarded state that only a thread of the parent could complete.
    """

    __slots__ = ("__weakref__", "_forget", "held")

    def __init__(self, forget: Callable[[], object] | None = None) -> None:
        self._forget = forget
        # Not a context manager in Python: an interrupt within its __enter__ would leave the lock held.
        self.held = threading.RLock()
        _locks.add(self)

    def renew(self) -> None:
        """Replace the lock, in a process that has just been forked and has one thread."""
        # If the fork was inside a `with` block, its end releases the old lock.
        self.held = threading.RLock()
        if self._forget is not None:
            self._forget()


class Latch:
    """A one-shot event that threads wait for."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Release all waiting threads. Call it once."""
        self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Wait at most *seconds* and return whether the latch is open."""
        if not self._lock.acquire(timeout=seconds):
            return False
        self._lock.release()
        return True


_in_tools: set[int] = set()
_door = threading.Lock()


@contextlib.contextmanager
def in_tool() -> Iterator[None]:
    """Delay forks by other threads during a `with` block that calls one of NVIDIA's libraries."""
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


class Guarded:
    """
    A library of NVIDIA's, or its binding, each call of which delays forks.

    Args:
        library: Its functions, exceptions and constants as attributes.
    """

    __slots__ = ("_library",)

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._library, name)
        return value if isinstance(value, type) or not callable(value) else guarded(value)


def guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function*, which is one of NVIDIA's, such that each call delays forks."""

    def call(*arguments: Any, **options: Any) -> Any:
        with in_tool():
            return function(*arguments, **options)

    return call


def _before_fork() -> None:
    _door.acquire()
    deadline = time.monotonic() + LONGEST_WAIT
    # Threads that ended without leaving the set, by an interrupt at the wrong moment, are not waited for.
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
    _free_imports()


def _free_imports() -> None:
    """
    Let a process that has just been forked import what threads of its parent had begun to import.

    Python frees the lock of its import system in the child, but not those of single modules: the child would
    wait for threads that it has not got. A module that is half there is imported anew.
    """
    # Nothing public tells of these locks, which have been the same since Python 3.3.
    locks = getattr(importlib._bootstrap, "_module_locks", {})  # noqa: SLF001
    for name, reference in list(locks.items()):
        if getattr(reference(), "owner", None) in (None, threading.get_ident()):
            continue
        del locks[name]
        if getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False):
            del sys.modules[name]


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_renew)
