"""
Cache compiled, linked and exported results as bytes; a failure of the cache never fails a build.

A result is stored under a hash of all its inputs, in a directory that processes share and, if configured, on
a Redis server that machines share. An entry that is damaged, unreadable, or not written by this package is
treated as missing.
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

# The names that are not in the module `tiered`, with their modules. Modules are imported at the first use of
# a name: a kernel that numba-cuda reads from its own cache needs only `key`.
_MODULE_OF_NAME = {"Entry": "key", "Key": "key", "package_version": "key"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f".{_MODULE_OF_NAME.get(name, 'tiered')}", __name__)
    value = globals()[name] = getattr(module, name)
    return value
