"""The shared tier: entries on a Redis server, none of whose faults costs more than one bounded wait."""

from __future__ import annotations

import logging
import math
import time
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from numba_ptxlink._locks import Lock

from . import deadline

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 0.5
"""The longest that a connection, or one read or write of a socket, may take."""

OPERATION_SECONDS = 2.0
"""The longest that a question may take: connecting, its answer and a second try together.

Only the resolver, which is asked for the address of a name, has no bound but its own."""

PAUSE_SECONDS = 30.0
"""How long a server that failed is left alone."""

LARGEST = 32 << 20
"""The largest entry that is sent or received, in bytes."""

_CURE = (
    "its URL is wrong; give redis://[[user]:password@]host[:port][/number], with the password "
    "percent-encoded and no parameter that redis-py does not have"
)
_PREFIX = b"numba-ptxlink:"
# What a server says around an entry when it is connected and asked.
_TALK = 1 << 16


class _UnusableError(Exception):
    """Nothing that time mends: the server is not asked again."""


class Server:
    """
    A Redis server that keeps sealed entries. Nothing is connected before the first use. Thread-safe.

    Args:
        url: As `redis.Redis.from_url` takes it; rediss:// is TLS, unix:// a socket of this machine. One that
            cannot be used costs a warning.
        lifetime: After how many seconds the server may drop an entry; None for never.
    """

    def __init__(self, url: str, lifetime: int | None = None) -> None:
        self._url = url
        self._lifetime = lifetime
        self._client: Any = None
        self._resume = 0.0
        # Clients of the parent, whose locks another thread may hold: kept, so that nothing ends them here.
        self._abandoned: list[Any] = []
        self._lock = Lock(forget=self._abandon)
        self._secrets = _secrets(url)
        host = _host(url)
        self._usable = bool(host)
        self.name = host or "the server that NUMBA_PTXLINK_CACHE names"

    def __repr__(self) -> str:
        return f"Server({self.name!r})"

    def _abandon(self) -> None:
        self._abandoned.append(self._client)
        self._client = None

    def get(self, address: bytes) -> bytes | None:
        """Return what is kept under *address*, None where nothing is or no answer comes in time."""
        value = self._ask("read", lambda client: client.get(_PREFIX + address.hex().encode()))
        return value if isinstance(value, bytes) else None

    def put(self, address: bytes, sealed: bytes) -> bool:
        """Keep *sealed* under *address*; return whether the server took it."""
        if len(sealed) > LARGEST:
            log.debug(
                "cache: %s is not sent %d bytes, which nobody would take from it", self.name, len(sealed)
            )
            return False
        name = _PREFIX + address.hex().encode()
        return bool(self._ask("write", lambda client: client.set(name, sealed, ex=self._lifetime)))

    def _ask(self, doing: str, question: Any) -> Any:
        if time.monotonic() < self._resume:
            return None
        try:
            with self._lock.held:
                if self._client is None:
                    self._client = self._connect()
                client = self._client
            with deadline.allowance(OPERATION_SECONDS, LARGEST + _TALK):
                return question(client)
        except _UnusableError as error:
            self._resume = math.inf
            log.warning("cache: %s cannot be used: %s; going on without", self.name, error)
        except Exception as error:  # noqa: BLE001 - a shared tier never fails a build, whatever it does
            self._resume = time.monotonic() + PAUSE_SECONDS
            log.warning(
                "cache: %s failed to %s (%s: %s); doing without it for %d s",
                self.name,
                doing,
                type(error).__name__,
                self._without_secrets(str(error)),
                PAUSE_SECONDS,
            )
        return None

    def _connect(self) -> Any:
        if not self._usable:
            raise _UnusableError(_CURE)
        try:
            import redis
        except ImportError as error:
            raise _UnusableError("install it with `pip install 'numba-ptxlink[redis]'`") from error
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        try:
            client = redis.Redis.from_url(
                self._url,
                socket_timeout=TIMEOUT_SECONDS,
                socket_connect_timeout=TIMEOUT_SECONDS,
                # One new try after a connection that went stale, and no more.
                retry=Retry(NoBackoff(), 1),
            )
            pool = client.connection_pool
            timeout = pool.connection_kwargs.get("socket_connect_timeout")
            pool.connection_class = deadline.bounded(pool.connection_class, timeout)
            with deadline.allowance(OPERATION_SECONDS, 0):
                # A parameter that redis-py does not know is noticed here, before anything is connected.
                pool.connection_class(**pool.connection_kwargs)
        except Exception as error:
            # redis-py's own words quote the URL.
            raise _UnusableError(_CURE) from error
        return client

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def _host(url: str) -> str:
    """Return the server of *url* as it may be shown, "" where the URL is wrong."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return f"unix://{parts.path}"
        port = parts.port or 6379
    except ValueError:
        return ""
    # A password with one of "/?#" in it: what looks like host and port is its beginning.
    if "@" in f"{parts.path}{parts.query}{parts.fragment}":
        return ""
    return f"{parts.scheme}://{parts.hostname or 'localhost'}:{port}"


def _secrets(url: str) -> set[str]:
    """Return every text in *url* that must not be shown, as it is there and as it is sent."""
    found = {url}
    try:
        parts = urlsplit(url)
        found |= {parts.password or ""}
        found |= {value for name, value in parse_qsl(parts.query) if "password" in name}
    except ValueError:
        pass
    return {text for secret in found for text in (secret, unquote(secret)) if text}
