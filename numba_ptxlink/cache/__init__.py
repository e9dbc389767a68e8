"""
Cache compiled, linked and exported results as bytes; a failure of the cache never fails a build.

A result is stored under a hash of everything it depends on, in a directory that processes share and, if one
is configured, on a Redis server that machines share. A damaged, unreadable or foreign entry is a miss.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .key import Entry, Key, package_version
    from .tiered import Cache, Counters, cached, counters, default

__all__ = [
    "Cache",
    "Counters",
    "Entry",
    "Key",
    "cached",
    "counters",
    "default",
    "package_version",
]

# Imported when it is first used: a kernel that numba-cuda itself has kept needs keys, and no tier.
_HOMES = {"Entry": "key", "Key": "key", "package_version": "key"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f".{_HOMES.get(name, 'tiered')}", __name__)
    value = globals()[name] = getattr(home, name)
    return value
