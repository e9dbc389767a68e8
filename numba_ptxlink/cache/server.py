"""Store sealed entries on a Redis server that machines share; pause after each failure."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from numba_ptxlink._locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 0.5
"""The timeout of connecting, and of one read or write of a socket, in seconds."""

PAUSE_SECONDS = 30.0
"""How long a server is not asked again after a failure, in seconds."""

LARGEST = 32 << 20
"""The largest entry that is sent, in bytes."""

_CURE = (
    "its URL is wrong; give redis://[[user]:password@]host[:port][/number], with the password "
    "percent-encoded and no parameter that redis-py does not have"
)
_PREFIX = b"numba-ptxlink:"


class _UnusableError(Exception):
    """A permanent failure: the server is not asked again."""


class Server:
    """
    A Redis server that stores sealed entries. Connects at the first use. Thread-safe; a fork may use it.

    A fault is a miss and a warning without passwords; the server is then left alone for a while.

    Args:
        url: As `redis.Redis.from_url` takes it; rediss:// is TLS, unix:// a socket of this machine. An
            unusable URL is not an error: it is logged as a warning, once.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None
        self._resume = 0.0
        # The parent's clients after a fork. Threads that no longer exist may hold their locks, so that
        # finalising them could deadlock: they are kept alive.
        self._abandoned: list[Any] = []
        self._lock = Lock(forget=self._abandon)
        host = _host(url)
        self._usable = bool(host)
        self.name = host or "the server that NUMBA_PTXLINK_CACHE names"

    def __repr__(self) -> str:
        return f"Server({self.name!r})"

    def _abandon(self) -> None:
        self._abandoned.append(self._client)
        self._client = None

    def get(self, address: bytes) -> bytes | None:
        """Return the entry stored under *address*, None if there is none or no reply comes in time."""
        value = self._ask("read", lambda client: client.get(_PREFIX + address.hex().encode()))
        return value if isinstance(value, bytes) else None

    def put(self, address: bytes, sealed: bytes) -> bool:
        """Store *sealed* under *address*; return whether the server accepted it."""
        if len(sealed) > LARGEST:
            log.debug("cache: %s is not sent %d bytes, more than the largest entry", self.name, len(sealed))
            return False
        name = _PREFIX + address.hex().encode()
        return bool(self._ask("write", lambda client: client.set(name, sealed)))

    def _ask(self, action: str, operation: Callable[[Any], Any]) -> Any:
        if time.monotonic() < self._resume:
            return None
        try:
            with self._lock.held:
                if self._client is None:
                    self._client = self._connect()
                client = self._client
        except _UnusableError as error:
            self._resume = math.inf
            log.warning("cache: %s cannot be used: %s; going on without", self.name, error)
            return None
        import redis

        try:
            return operation(client)
        # No others: what a signal handler raises meanwhile is the program's.
        except (redis.RedisError, OSError, UnicodeError) as error:
            self._resume = time.monotonic() + PAUSE_SECONDS
            log.warning(
                # Its text may quote the URL, with its password.
                "cache: %s failed to %s (%s); doing without it for %d s",
                self.name,
                action,
                type(error).__name__,
                PAUSE_SECONDS,
            )
        return None

    def _connect(self) -> Any:
        if not self._usable:
            raise _UnusableError(_CURE)
        try:
            import redis
        except ImportError as error:
            raise _UnusableError(
                "the package redis is not installed; install it with `pip install 'numba-ptxlink[redis]'`"
            ) from error
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        try:
            client = redis.Redis.from_url(
                self._url,
                socket_timeout=TIMEOUT_SECONDS,
                socket_connect_timeout=TIMEOUT_SECONDS,
                # One retry, for a connection that went stale.
                retry=Retry(NoBackoff(), 1),
            )
            pool = client.connection_pool
            # Fails on a URL parameter that redis-py does not know, without connecting.
            pool.connection_class(**pool.connection_kwargs)
        except (redis.RedisError, ValueError, TypeError, AttributeError) as error:
            # The cause is not shown: redis-py's message quotes the URL, with its password.
            raise _UnusableError(_CURE) from error
        return client


def _host(url: str) -> str:
    """Return scheme, host and port of *url*, without secrets; "" if the URL is invalid."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        port = parts.port or 6379
    except ValueError:
        return ""
    # An unescaped "/", "?" or "#" in a password ends the authority early: host and port would show its start.
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return ""
    return f"{parts.scheme}://{parts.hostname or 'localhost'}:{port}"
