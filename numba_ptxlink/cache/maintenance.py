"""Implement the commands of `numba-ptxlink cache`: statistics, the path, and deletion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink.errors import CacheError

from .directory import WRITABLE

if TYPE_CHECKING:
    from pathlib import Path

    from numba_ptxlink.cache import Cache

    from .directory import Directory

OFF = "the cache is off: NUMBA_PTXLINK_CACHE=0; unset it"
"""The reason why a cache is not used."""


@dataclass(frozen=True)
class Stats:
    """
    The contents of one directory.

    Args:
        path: The directory.
        writable: Whether new entries are written to it.
        entries: The number of its files.
        size: Their total size in bytes.
        cap: The soft limit in bytes, above which entries are evicted.
    """

    path: Path
    writable: bool
    entries: int
    size: int
    cap: int


def stats(cache: Cache) -> list[Stats]:
    """Return statistics of each directory of *cache*, in search order."""
    tiers = cache.tiers()
    reports = []
    for directory in tiers.directories:
        sizes = directory.sizes()
        written = directory is tiers.writer
        reports.append(Stats(directory.path, written, len(sizes), sum(sizes), directory.size))
    return reports


def clear(cache: Cache) -> int:
    """
    Delete all entries of the directory that *cache* writes to; return their number.

    Raises:
        CacheError: There is no such directory, or an entry cannot be deleted.
    """
    return _writer(cache).clear()


def path(cache: Cache) -> Path:
    """
    Return the directory that *cache* writes to.

    Raises:
        CacheError: There is none.
    """
    return _writer(cache).path


def _writer(cache: Cache) -> Directory:
    if not cache.settings.cache:
        raise CacheError(f"{OFF}.")
    tiers = cache.tiers()
    if tiers.writer is None:
        why = "; ".join(tiers.refused) or f"all are read-only; {WRITABLE}"
        raise CacheError(f"no cache directory can be written: {why}.")
    return tiers.writer
