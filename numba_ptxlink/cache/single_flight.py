"""Single flight: of all processes and threads that want one key at a time, one works and the others wait."""

from __future__ import annotations

import contextlib
import errno
import time
from typing import TYPE_CHECKING, Generic, TypeVar

from numba_ptxlink._locks import Latch, Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

try:
    import fcntl
except ImportError:  # another platform: threads still wait for each other, processes do not
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

WAIT_SECONDS = 60.0
"""How long anyone waits for another's work, before doing it again."""

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05
# An offset has 63 bits, and some file systems take fewer.
_OFFSETS = 1 << 60


class _Flight(Generic[T]):
    """One piece of work: its results, of which there is one in the end, and what opens when it has ended."""

    def __init__(self) -> None:
        self.ended = Latch()
        self.results: list[T] = []


class Threads(Generic[T]):
    """The keys that threads of this process work on."""

    def __init__(self) -> None:
        self._flying: dict[bytes, _Flight[T]] = {}
        # A fork leaves the child with the keys of the parent's threads, and without the threads.
        self._lock = Lock(forget=self._flying.clear)

    def join(self, address: bytes, work: Callable[[], T], wait: float = WAIT_SECONDS) -> tuple[T, bool]:
        """
        Do *work*, or wait for the thread that does it already.

        What the other thread's work raises stays there: a faulty input is met again here, and an interrupt
        was meant for that thread alone.

        Args:
            address: What the work is for.
            work: Does it.
            wait: The longest wait in seconds; after it, or if the other thread failed, *work* is done here.

        Returns:
            The result, and whether it is another thread's.
        """
        with self._lock.held:
            flight = self._flying.get(address)
            mine = flight is None
            if flight is None:
                flight = self._flying[address] = _Flight()
        if not mine:
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
            flight.ended.open()


class Processes:
    """
    The keys that processes work on, as record locks on one file: a key has its own byte, far beyond the end.

    The kernel drops a process's locks when it dies, however it dies. Network file systems carry them too.

    A forked child has none of its parent's locks, and drops none of them.

    Args:
        open_file: Opens the file for writing and returns its descriptor, which is never closed: closing any
            descriptor of a file drops all locks that the process has on it.
    """

    def __init__(self, open_file: Callable[[], int]) -> None:
        self._open_file = open_file
        self._file: int | None = None
        self._usable = fcntl is not None
        self._lock = Lock()

    @contextlib.contextmanager
    def lead(self, address: bytes, landed: Callable[[], bool], wait: float = WAIT_SECONDS) -> Iterator[bool]:
        """
        Hold the lock of *address* for the length of a `with` block.

        Args:
            address: What the work is for.
            landed: Whether the result has come from elsewhere; asked while another process holds the lock.
            wait: The longest wait in seconds.

        Yields:
            Whether another process was waited for.
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
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                # A file system without locks: everyone works.
                self._usable = False
            return False
        return True

    def _release(self, start: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.lockf(self._file or 0, fcntl.LOCK_UN, 1, start)
