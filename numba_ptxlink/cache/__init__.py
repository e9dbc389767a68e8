"""
The cache of everything that is compiled, linked or exported: bytes in, bytes out, and never a failed build.

A result is kept under the hash of all it depends on, in a directory that processes share and, where one is
configured, on a server that machines share. What is damaged, unreadable or foreign is a miss.
"""

from .entry import Entry
from .key import Key
from .tiered import Cache, Counters, Described, cached, counters, default

__all__ = ["Cache", "Counters", "Described", "Entry", "Key", "cached", "counters", "default"]
