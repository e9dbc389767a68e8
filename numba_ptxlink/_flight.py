"""Single flight: of all processes and threads that want one key at a time, one works and the others wait."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


class Threads(Generic[T]):
    """The keys that threads of this process work on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flying: dict[bytes, Future[T]] = {}
        # A fork leaves the child with the parent's threads' keys, and without the threads.
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._flying = {}

    def join(self, address: bytes, work: Callable[[], T], wait: float = WAIT_SECONDS) -> tuple[T, bool]:
        """
        Do *work*, or wait for the thread that does it already.

        Args:
            address: What the work is for.
            work: Does it.
            wait: The longest wait in seconds; after it, or if the other thread failed, *work* is done here.

        Returns:
            The result, and whether it is another thread's.
        """
        with self._lock:
            flight = self._flying.get(address)
            mine = flight is None
            if flight is None:
                flight = self._flying[address] = Future()
        if not mine:
            try:
                return flight.result(wait), True
            except (Exception, FutureTimeout):  # noqa: BLE001 - whatever it was, it is met again below
                return work(), False
        try:
            result = work()
        except BaseException as error:
            flight.set_exception(error)
            # Nobody may be waiting, and then nobody reads it.
            flight.exception()
            raise
        else:
            flight.set_result(result)
            return result, False
        finally:
            with self._lock:
                if self._flying.get(address) is flight:
                    del self._flying[address]


class Processes:
    """
    The keys that processes work on, as record locks on one file: a key has its own byte, far beyond the end.

    The kernel drops a process's locks when it dies, however it dies. Network file systems carry them too.

    Args:
        path: The file. Made where it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self._usable = fcntl is not None
        self._lock = threading.Lock()

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
            with self._lock:
                if self._file is None:
                    # Never closed: closing any descriptor of it would drop all locks of this process.
                    self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
