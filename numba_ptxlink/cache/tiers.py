"""What a tier of the cache that machines share has to offer, and which one a URL names."""

from __future__ import annotations

from typing import Protocol

from .server import Server


class SharedTier(Protocol):
    """
    A store of sealed entries that machines share. Thread-safe; a fault is a miss that costs a bounded time.

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
    Return the store at *url*, whose scheme `_config` has checked. Connects at the first use.

    Args:
        url: Its address, such as "redis://host:6379/0".
        lifetime: Seconds for which an entry is kept after its last use, None for ever.
    """
    return Server(url, lifetime=lifetime)
