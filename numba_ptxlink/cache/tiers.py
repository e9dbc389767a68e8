"""What a tier of the cache that machines share has to offer, and which one a URL names."""

from __future__ import annotations

from typing import Protocol

from .server import Server


class SharedTier(Protocol):
    """
    A store of sealed entries that machines share.

    Thread-safe, and usable in a forked child. A fault is a miss that costs a bounded time, after which the
    store is left alone for a while; what it logs holds no secret.

    Args:
        name: What messages call it, without secrets.
    """

    name: str

    def get(self, address: bytes) -> bytes | None:
        """Return the entry stored under *address*, None if there is none or no reply comes in time."""

    def put(self, address: bytes, sealed: bytes) -> bool:
        """Store *sealed* under *address*; return whether it is there."""


def connect(url: str, lifetime: int | None) -> SharedTier:
    """
    Return the store at *url*, whose scheme `_config` has checked: Redis so far. It connects at its first use.

    Args:
        url: Its address, such as "redis://host:6379/0".
        lifetime: Seconds for which an entry is kept after it was written, None for ever.
    """
    return Server(url, lifetime=lifetime)
