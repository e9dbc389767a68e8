"""Enforce a time and size limit for one operation at the sockets of Redis connections."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Allowance(threading.local):
    """The time and bytes left for the current operation of this thread."""

    until = 0.0
    bytes = 0


_left = _Allowance()


@contextlib.contextmanager
def allowance(seconds: float, size: int) -> Iterator[None]:
    """
    Limit what this thread's connections do in the `with` block, including connecting and retries.

    Args:
        seconds: The time limit.
        size: The most bytes that may be received.
    """
    _left.until, _left.bytes = time.monotonic() + seconds, size
    try:
        yield
    finally:
        _left.until, _left.bytes = 0.0, 0


def _seconds(timeout: float | None) -> float:
    """Return the timeout of the next socket call, at most *timeout*."""
    seconds = _left.until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the operation took too long")
    return seconds if timeout is None else min(seconds, timeout)


class _Socket:
    """A socket proxy that checks the limits at each transfer and passes everything else through."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._timeout: float | None = inner.gettimeout()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def gettimeout(self) -> float | None:
        return self._timeout

    def recv(self, size: int, *flags: int) -> bytes:
        self._inner.settimeout(_seconds(self._timeout))
        received: bytes = self._inner.recv(size, *flags)
        self._spend(len(received))
        return received

    def recv_into(self, buffer: Any, *arguments: int) -> int:
        self._inner.settimeout(_seconds(self._timeout))
        size: int = self._inner.recv_into(buffer, *arguments)
        self._spend(size)
        return size

    def sendall(self, content: Any) -> None:
        # socket.sendall applies its timeout to the whole call.
        self._inner.settimeout(_seconds(self._timeout))
        self._inner.sendall(content)

    @staticmethod
    def _spend(size: int) -> None:
        _left.bytes -= size
        if _left.bytes < 0:
            raise ConnectionError("the answer is larger than any entry")


def bounded(connection: type[Any], connect_timeout: float | None) -> type[Any]:
    """
    Return a subclass of *connection*, a class of redis-py, whose sockets obey their thread's limits.

    Args:
        connection: The class, with TLS or without.
        connect_timeout: The timeout for connecting to one address, in seconds.
    """

    class Bounded(connection):  # type: ignore[misc]
        @property
        def socket_connect_timeout(self) -> float:
            # A host name can resolve to many addresses, which are tried in turn: each gets only what is left.
            return _seconds(connect_timeout)

        @socket_connect_timeout.setter
        def socket_connect_timeout(self, _: float | None) -> None:
            pass

        def _connect(self) -> Any:
            return _Socket(super()._connect())

    return Bounded
