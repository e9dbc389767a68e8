"""Open caches in directories, fill them, and list the files of their entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cache_worker import code, key

from numba_ptxlink._config import Config
from numba_ptxlink.cache import Cache, Entry

if TYPE_CHECKING:
    from pathlib import Path


def open_cache(*directories, **settings) -> Cache:
    """Return a cache in *directories*."""
    return Cache(Config(cache_dirs=tuple(map(str, directories)), **settings))


def fill(cache: Cache, *names: str) -> None:
    """Put the entries *names* into *cache*."""
    for name in names:
        cache.put(key(name), Entry({"log": name}, code(name)))


def files_of(path: Path) -> list[Path]:
    """Return the files of the entries in the cache directory *path*."""
    return [file for file in (path / "v2").glob("*") if file.is_file() and not file.name.startswith("new-")]
