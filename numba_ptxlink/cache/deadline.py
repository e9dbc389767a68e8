"""A Redis connection that cannot take longer, or send more, than one operation is worth."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Allowance(threading.local):
    """What is left for the operation that this thread is in."""

    until = 0.0
    bytes = 0


_left = _Allowance()


@contextlib.contextmanager
def allowance(seconds: float, size: int) -> Iterator[None]:
    """
    Bound everything that connections of this thread do in the `with` block, connecting and retries included.

    Args:
        seconds: How long it may take.
        size: How many bytes may be received.
    """
    _left.until, _left.bytes = time.monotonic() + seconds, size
    try:
        yield
    finally:
        _left.until, _left.bytes = 0.0, 0


def _seconds(asked: float | None) -> float:
    """Return how long the next call of the operating system may take, at most *asked*."""
    seconds = _left.until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the operation took too long")
    return seconds if asked is None else min(seconds, asked)


class _Socket:
    """A socket whose every call looks at what is left; all else is the socket's own."""

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
        # The socket's own sendall bounds the whole of it.
        self._inner.settimeout(_seconds(self._timeout))
        self._inner.sendall(content)

    @staticmethod
    def _spend(size: int) -> None:
        _left.bytes -= size
        if _left.bytes < 0:
            raise ConnectionError("the answer is larger than any entry")


def bounded(connection: type[Any], connect_timeout: float | None) -> type[Any]:
    """
    Return *connection*, a class of redis-py, with sockets that keep to their thread's allowance.

    Args:
        connection: The class, for TLS or without.
        connect_timeout: How long it may take to reach one address, in seconds.
    """

    class Bounded(connection):  # type: ignore[misc]
        @property
        def socket_connect_timeout(self) -> float:
            # A name can stand for many addresses, which are tried one after another.
            return _seconds(connect_timeout)

        @socket_connect_timeout.setter
        def socket_connect_timeout(self, _: float | None) -> None:
            pass

        def _connect(self) -> Any:
            return _Socket(super()._connect())

    return Bounded
