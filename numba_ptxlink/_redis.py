"""The shared tier: entries on a Redis server, none of whose faults costs more than one bounded wait."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any
from urllib.parse import urlsplit

log = logging.getLogger("numba_ptxlink")

TIMEOUT_SECONDS = 0.5
"""The longest that a connection, a read or a write may take."""

PAUSE_SECONDS = 30.0
"""How long a server that failed is left alone."""

_PREFIX = b"numba-ptxlink:"


class Server:
    """
    A Redis server that keeps sealed entries. Nothing is connected before the first use. Thread-safe.

    Args:
        url: As `redis.Redis.from_url` takes it; rediss:// is TLS. Its own parameters override the timeouts.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None
        self._resume = 0.0
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The server's host and port, without the password."""
        parts = urlsplit(self._url)
        return f"{parts.scheme}://{parts.hostname or 'localhost'}:{parts.port or 6379}"

    def get(self, address: bytes) -> bytes | None:
        """Return what is kept under *address*, None where nothing is or no answer comes in time."""
        value = self._ask("read", lambda client: client.get(_PREFIX + address.hex().encode()))
        return value if isinstance(value, bytes) else None

    def put(self, address: bytes, sealed: bytes) -> bool:
        """Keep *sealed* under *address*; return whether the server took it."""
        return bool(self._ask("write", lambda client: client.set(_PREFIX + address.hex().encode(), sealed)))

    def _ask(self, doing: str, question: Any) -> Any:
        if time.monotonic() < self._resume:
            return None
        try:
            with self._lock:
                if self._client is None:
                    self._client = self._connect()
            return question(self._client)
        except Exception as error:  # noqa: BLE001 - a shared tier never fails a build, whatever it does
            self._resume = time.monotonic() + PAUSE_SECONDS
            log.warning(
                "cache: %s failed to %s (%s: %s); doing without it for %d s",
                self.name,
                doing,
                type(error).__name__,
                error,
                PAUSE_SECONDS,
            )
            return None

    def _connect(self) -> Any:
        try:
            import redis
        except ImportError as error:
            raise ImportError("install it with `pip install 'numba-ptxlink[redis]'`") from error
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis.from_url(
            self._url,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            # One new try after a connection that went stale, and no more: the wait is bounded.
            retry=Retry(NoBackoff(), 1),
        )
