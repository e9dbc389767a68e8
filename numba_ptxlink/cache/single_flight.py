"""Single flight: if several threads and processes need one result, one computes it and the others wait."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from numba_ptxlink._locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

WAIT_SECONDS = 60.0
"""The longest wait for another thread or process, in seconds; the result is then computed here as well."""

_OPEN_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
# The pause between two attempts to take a lock begins with the first value, and doubles up to the second.
_FIRST_PAUSE_SECONDS = 0.002
_MAX_PAUSE_SECONDS = 0.05
# The offsets of locks are below this number: some file systems accept fewer than the 63 bits of an offset.
_OFFSET_COUNT = 1 << 60


class _Flight(Generic[T]):
    """
    A computation for which threads wait.

    `ended` is set at its end. `results` then has one item, the result; it is empty if the computation failed.
    """

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.results: list[T] = []


class Threads(Generic[T]):
    """The results that threads of this process are computing, by their addresses in the cache."""

    def __init__(self) -> None:
        self._flights: dict[bytes, _Flight[T]] = {}
        # A forked child inherits the flights of the parent's threads, but not the threads: forget them there.
        self._lock = Lock(forget=self._flights.clear)

    def join(self, address: bytes, work: Callable[[], T]) -> tuple[T, bool]:
        """
        Run *work*, or wait for the thread that is running it already.

        Exceptions of the other thread are not shared: a faulty input fails here again, and an interrupt was
        meant only for that thread.

        Args:
            address: The address of the result, by which threads find the same work.
            work: Computes the result; runs here, too, if the other thread fails or exceeds `WAIT_SECONDS`.

        Returns:
            The result, and whether another thread computed it.
        """
        with self._lock.held:
            flight = self._flights.get(address)
            is_leader = flight is None
            if flight is None:
                flight = self._flights[address] = _Flight()
        if not is_leader:
            if flight.ended.wait(WAIT_SECONDS) and flight.results:
                return flight.results[0], True
            return work(), False
        try:
            flight.results.append(work())
            return flight.results[0], False
        finally:
            with self._lock.held:
                # In a child that was forked during the work, `forget` has removed the flight, and another one
                # may have taken its place.
                if self._flights.get(address) is flight:
                    del self._flights[address]
            flight.ended.set()


class Processes:
    """
    The results that processes are computing: for each, a record lock (fcntl(2)) on one byte of an empty file.

    The kernel releases the locks of a process that exits or is killed. Network file systems support record
    locks, too. A forked child holds none of its parent's locks, and releases none of them. The threads of a
    process share its locks, so that `Threads` has to let only one of them compute a result.

    Args:
        folder: The descriptor of the directory of the file. The file's own descriptor is never closed, since
            closing any descriptor of a file drops all locks that the process has on it.
    """

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._file: int | None = None
        self._locks_work = True
        self._open_lock = Lock()

    @contextlib.contextmanager
    def lead(self, address: bytes, is_available: Callable[[], bool]) -> Iterator[None]:
        """
        Hold the lock of *address* during the `with` block; first wait while another process holds it.

        The wait ends without the lock when the result is available, after `WAIT_SECONDS`, or at once if the
        file system has no locks.

        Args:
            address: The address of the result; its first bytes give the offset of the locked byte. If two
                addresses give one offset, a process waits longer than it needs to.
            is_available: Whether the result is available; called while another process holds the lock.
        """
        offset = int.from_bytes(address[:8], "little") % _OFFSET_COUNT
        deadline = time.monotonic() + WAIT_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        while not (is_held := self._take(offset)):
            if not self._locks_work or is_available() or time.monotonic() > deadline:
                break
            time.sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        try:
            yield
        finally:
            if is_held and self._file is not None:
                with contextlib.suppress(OSError):
                    fcntl.lockf(self._file, fcntl.LOCK_UN, 1, offset)

    def _take(self, offset: int) -> bool:
        """Lock the byte at *offset*; return False if another process has locked it, or locks do not work."""
        if not self._locks_work:
            return False
        try:
            with self._open_lock.held:
                if self._file is None:
                    self._file = os.open("locks", _OPEN_FLAGS, 0o600, dir_fd=self._folder)
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except OSError as error:
            if error.errno is None:
                # System calls set errno: a signal handler raised this one, such as for a time-out.
                raise
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                # The file system does not support locks, so that processes may compute a result twice.
                self._locks_work = False
            return False
        return True
