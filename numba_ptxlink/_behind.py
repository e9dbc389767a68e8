"""Write-behind: what was made is handed out at once, and kept by a thread that comes behind."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_MOST = 64
"""How many results may wait to be written; with more, whoever makes one writes it."""


class Behind(Generic[T]):
    """
    Results on their way to where they are kept.

    They are written in the order in which they came. The end of the interpreter and a fork wait for that.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[bytes, T] = {}
        self._writer: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        # The thread does not live on in the child, what it had locked would stay so, and Python warns of it.
        os.register_at_fork(before=self._stop, after_in_child=self._forget)

    def _stop(self) -> None:
        with self._lock:
            writer, self._writer = self._writer, None
        if writer is not None:
            writer.shutdown()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._waiting = {}
        self._writer = self._last = None

    def get(self, address: bytes) -> T | None:
        """Return what waits under *address*, None where nothing does."""
        return self._waiting.get(address)

    def put(self, address: bytes, made: T, write: Callable[[], None]) -> None:
        """
        Have *made* found under *address* until *write* has returned.

        Args:
            address: What it is for.
            made: The result.
            write: Keeps it. It must not raise.
        """
        with self._lock:
            if len(self._waiting) < _MOST and self._submit(address, write):
                self._waiting[address] = made
                return
        write()

    def _submit(self, address: bytes, write: Callable[[], None]) -> bool:
        def run() -> None:
            try:
                write()
            finally:
                with self._lock:
                    self._waiting.pop(address, None)

        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "numba-ptxlink-cache")
        try:
            self._last = self._writer.submit(run)
        except RuntimeError:  # the interpreter is about to end, or no thread can be had
            return False
        return True

    def flush(self) -> None:
        """Wait until everything that waits now has been written."""
        last = self._last
        if last is not None:
            wait([last])
