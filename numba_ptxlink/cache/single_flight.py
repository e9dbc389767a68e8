"""Single flight: of all threads and processes that need one key, one computes and the others wait."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from numba_ptxlink._locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

WAIT_SECONDS = 60.0
"""How long to wait for another thread or process before doing the work here, in seconds."""

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05
# File offsets have 63 bits; some file systems accept fewer.
_OFFSETS = 1 << 60


class _Flight(Generic[T]):
    """One computation: its end, and its result, none if it failed."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.results: list[T] = []


class Threads(Generic[T]):
    """The keys that threads of this process are computing."""

    def __init__(self) -> None:
        self._flying: dict[bytes, _Flight[T]] = {}
        # A forked child has the keys of the parent's threads, but not the threads.
        self._lock = Lock(forget=self._flying.clear)

    def join(self, address: bytes, work: Callable[[], T], wait: float = WAIT_SECONDS) -> tuple[T, bool]:
        """
        Run *work*, or wait for the thread that is running it already.

        Exceptions of the other thread are not shared: a faulty input fails here again, and an interrupt was
        meant for that thread alone.

        Args:
            address: The key of the work.
            work: Computes the result.
            wait: The longest wait in seconds; after it, or if the other thread failed, *work* runs here.

        Returns:
            The result, and whether another thread computed it.
        """
        with self._lock.held:
            flight = self._flying.get(address)
            leading = flight is None
            if flight is None:
                flight = self._flying[address] = _Flight()
        if not leading:
            if flight.ended.wait(wait) and flight.results:
                return flight.results[0], True
            return work(), False
        try:
            flight.results.append(work())
            return flight.results[0], False
        finally:
            with self._lock.held:
                if self._flying.get(address) is flight:
                    del self._flying[address]
            flight.ended.set()


class Processes:
    """
    The keys that processes are computing, as record locks on one file: one byte per key, beyond its end.

    The kernel releases the locks of a process that exits or is killed. Network file systems support them too.

    A forked child holds none of its parent's locks, and releases none of them.

    Args:
        open_file: Opens the file for writing and returns its descriptor, which is never closed: closing any
            descriptor of a file drops all locks that the process has on it.
    """

    def __init__(self, open_file: Callable[[], int]) -> None:
        self._open_file = open_file
        self._file: int | None = None
        self._usable = True
        self._lock = Lock()

    @contextlib.contextmanager
    def lead(self, address: bytes, landed: Callable[[], bool], wait: float = WAIT_SECONDS) -> Iterator[bool]:
        """
        Hold the lock of *address* during the `with` block.

        Args:
            address: The key of the work.
            landed: Whether the result is available; called while another process holds the lock.
            wait: The longest wait in seconds.

        Yields:
            Whether another process held the lock first.
        """
        start = int.from_bytes(address[:8], "little") % _OFFSETS
        waited, held = False, False
        deadline = time.monotonic() + wait
        pause = _FIRST_PAUSE
        while True:
            held = self._take(start)
            if held or not self._usable or (waited and landed()) or time.monotonic() > deadline:
                break
            waited = True
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        try:
            yield waited
        finally:
            if held:
                self._release(start)

    def _take(self, start: int) -> bool:
        if not self._usable:
            return False
        try:
            with self._lock.held:
                if self._file is None:
                    self._file = self._open_file()
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start)
        except OSError as error:
            if error.errno is None:
                raise  # a signal handler's, such as of a time-out
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                # The file system supports no locks: no single flight among processes.
                self._usable = False
            return False
        return True

    def _release(self, start: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(self._file or 0, fcntl.LOCK_UN, 1, start)
