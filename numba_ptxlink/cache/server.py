"""Store entries on a Redis server that machines share; after a failure, do not use it for a while."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

from numba_ptxlink._locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 0.5
"""The timeout of connecting, and of each read or write of the socket, in seconds."""

PAUSE_SECONDS = 30.0
"""The time for which the server is not used after a failure, in seconds."""

MAX_ENTRY_BYTES = 32 << 20
"""The largest entry that is sent to the server, in bytes; larger entries are only in directories."""

NAME = "the server that NUMBA_PTXLINK_CACHE names"
"""The name of the server in messages, since a URL, even the start of a wrong one, may contain a password."""

_PREFIX = b"numba-ptxlink:"


class Server:
    """
    A Redis server that stores sealed entries. Connects at the first use. Thread-safe, also after a fork.

    A failure is logged as a warning without passwords, and counts as a missing entry; the server is then not
    used for `PAUSE_SECONDS`.

    Args:
        url: The URL for `redis.Redis.from_url`; rediss:// means TLS, unix:// a socket of this machine.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: Any = None
        # The server is not used before this time of `time.monotonic`.
        self._resume_time = 0.0
        # In a forked child: the parent's clients. Finalising one could wait for ever for its locks, which
        # threads of the parent may have held at the fork, so this list keeps the clients alive.
        self._abandoned: list[Any] = []
        self._lock = Lock(forget=self._abandon)

    def _abandon(self) -> None:
        """Keep the parent's client, and use a new one; `Lock` calls this in a forked child."""
        self._abandoned.append(self._client)
        self._client = None

    def get(self, address: bytes) -> bytes | None:
        """Return the entry stored under *address*; None if there is none or no reply comes in time."""
        value = self._query("read", lambda client: client.get(_PREFIX + address.hex().encode()))
        return value if isinstance(value, bytes) else None

    def put(self, address: bytes, sealed: bytes) -> bool:
        """Store *sealed* under *address*; return whether the server accepted it."""
        if len(sealed) > MAX_ENTRY_BYTES:
            return False
        name = _PREFIX + address.hex().encode()
        return bool(self._query("write", lambda client: client.set(name, sealed)))

    def _query(self, action: str, operation: Callable[[Any], Any]) -> Any:
        """
        Return the result of *operation*; None if it fails, or if the server is not used at present.

        Args:
            action: "read" or "write", for the warning.
            operation: Called with the client.
        """
        if time.monotonic() < self._resume_time:
            return None
        try:
            import redis
        except ImportError:
            self._resume_time = math.inf
            log.warning("cache: %s is not used; run `pip install 'numba-ptxlink[redis]'`", NAME)
            return None
        try:
            with self._lock.held:
                if self._client is None:
                    self._client = self._connect()
                client = self._client
            return operation(client)
        # An invalid URL raises ValueError, TypeError or AttributeError. Any other exception may be that of a
        # signal handler, and is not caught.
        except (redis.RedisError, OSError, ValueError, TypeError, AttributeError) as error:
            self._resume_time = time.monotonic() + PAUSE_SECONDS
            log.warning(
                # Without the error's text, which may quote the URL with its password.
                "cache: %s failed to %s (%s), and is not used for %d s; check it and its URL, such as "
                "rediss://user:password@host:6379/0, with the password percent-encoded",
                NAME,
                action,
                type(error).__name__,
                PAUSE_SECONDS,
            )
        return None

    def _connect(self) -> Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis.from_url(
            self._url,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            # Retry once, without a pause: the server may have closed an idle connection.
            retry=Retry(NoBackoff(), 1),
        )
