"""
Cache compiled, linked and exported results as bytes; a failure of the cache never fails a build.

A result is stored under a hash of everything it depends on, in a directory that processes share and, if one
is configured, on a Redis server that machines share. A damaged, unreadable or foreign entry is a miss.
"""

from .entry import Entry
from .key import Key
from .tiered import Cache, Counters, Described, cached, counters, default

__all__ = ["Cache", "Counters", "Described", "Entry", "Key", "cached", "counters", "default"]
