"""
Provide locks that are free in a forked child; the only module of the package that creates locks.

A fork copies locks that other threads hold, but not those threads: acquiring such a lock in the child would
deadlock. Therefore every lock is registered here and replaced in the child. Locks of NVIDIA's libraries and
of Python's imports cannot be replaced: a fork during another thread's compilation or import is not handled.
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
    A reentrant lock, acquired by `with lock.held:`, that is free in a forked child.

    Args:
        forget: Called in a forked child, to drop state that only a thread of the parent could complete.
    """

    __slots__ = ("__weakref__", "_forget", "held")

    def __init__(self, forget: Callable[[], object] | None = None) -> None:
        self._forget = forget
        # `Lock` has no methods for `with`: Ctrl-C in an `__enter__` written in Python would leave the lock
        # held. The `__enter__` of an RLock is written in C, where no signal is handled.
        self.held = threading.RLock()
        _locks.add(self)

    def renew(self) -> None:
        """Replace the lock, in a process that has just been forked and has one thread."""
        # If the process was forked inside a `with` block, the end of the block releases the old lock.
        self.held = threading.RLock()
        if self._forget is not None:
            self._forget()


def _renew_all() -> None:
    """Replace all locks, in a forked child."""
    for lock in list(_locks):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
