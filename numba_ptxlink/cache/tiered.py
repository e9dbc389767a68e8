"""One interface over the directory and the server: lookup, single flight, and what a miss costs."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink._config import Config, config
from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import CacheError

from .directory import Directory, default_directory
from .entry import PEEK, Damaged, Entry, WrongSeal, described, peek, seal, unseal
from .key import Key
from .server import Server
from .single_flight import Processes, Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Cache", "Counters", "Described", "Entry", "Key", "cached", "counters", "default"]

log = logging.getLogger(__name__)

_MOST_COMPARED = 2000


@dataclass(frozen=True)
class Counters:
    """
    What a cache did in this process.

    Args:
        hits: Results that were found, or that another thread or process had just made.
        misses: Results that had to be made.
        bytes_read: Code that was found, in bytes.
        bytes_written: Code that was kept, in bytes.
    """

    hits: int = 0
    misses: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True)
class Described:
    """
    An entry as it describes itself.

    Args:
        path: Its file.
        directory: The cache directory it is in.
        kind: What made it: "assemble", "link", "nvvm", "nvrtc" or "symbols".
        parts: What it is a result of, by label; long parts as the start of their digest.
        size: The code's size in bytes.
    """

    path: Path
    directory: Path
    kind: str
    parts: Mapping[str, str]
    size: int


@dataclass
class _Tiers:
    directories: tuple[Directory, ...] = ()
    writer: Directory | None = None
    processes: Processes | None = None
    refused: tuple[str, ...] = ()


@dataclass
class Cache:
    """
    The tiers that the configuration names. Thread-safe, and shared by processes.

    Args:
        settings: What the environment asks for.
    """

    settings: Config
    _counters: Counters = field(default_factory=Counters, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)
    _threads: Threads[Entry] = field(default_factory=Threads, init=False, repr=False)
    _opened: _Tiers | None = field(default=None, init=False, repr=False)
    _server: Server | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.settings.cache and self.settings.cache_url:
            self._server = Server(self.settings.cache_url, lifetime=self.settings.cache_ttl)

    @property
    def counters(self) -> Counters:
        """What this cache did so far."""
        with self._lock.held:
            return self._counters

    def tiers(self) -> tuple[tuple[Directory, ...], Directory | None, tuple[str, ...]]:
        """Return the directories that are read, the one that is written, and why others are not used."""
        opened = self._open()
        return opened.directories, opened.writer, opened.refused

    def get(self, key: Key) -> Entry | None:
        """Return what is kept under *key*, None on a miss. Never raises."""
        found = self._local(self._address(key)) or self._remote(self._address(key))
        self._count(found, hit=found is not None)
        return found

    def put(self, key: Key, entry: Entry) -> None:
        """Keep *entry* under *key*, wherever that is possible. Never raises."""
        address = self._address(key)
        described = replace(entry, meta={**entry.meta, "kind": key.kind, "parts": dict(key.parts)})
        sealed = seal(address, described, self.settings.cache_secret)
        writer = self._open().writer
        kept = writer is not None and writer.put(address, sealed)
        if self._server is not None:
            kept |= self._server.put(address, sealed)
        if kept:
            with self._lock.held:
                written = self._counters.bytes_written + len(entry.code)
                self._counters = replace(self._counters, bytes_written=written)

    def through(self, key: Key, make: Callable[[], Entry]) -> Entry:
        """
        Return the result of *make*, from the cache where it is there.

        Of all threads and processes that ask for one key at a time, one runs *make*. Within it the cache is
        off: a part of a result that is kept need not be kept as well.

        Args:
            key: Everything the result depends on.
            make: Makes it. What it raises is raised here, and nothing is kept.
        """
        if not self.settings.cache or _inside.busy:
            return make()
        address = self._address(key)
        found = self._local(address)
        if found is None:
            found, another = self._threads.join(address, lambda: self._make(key, address, make))
            if another:
                self._count(found, hit=True)
            return found
        self._count(found, hit=True)
        return found

    def _make(self, key: Key, address: bytes, make: Callable[[], Entry]) -> Entry:
        landed: list[Entry] = []

        def look() -> bool:
            found = self._local(address)
            landed.extend([found] if found else [])
            return bool(landed)

        processes = self._open().processes
        leading = processes.lead(address, look) if processes else contextlib.nullcontext(enter_result=False)
        with leading as waited:
            # Between the first look and the lock another process may have come and gone.
            if not landed:
                look()
            found = landed[0] if landed else self._remote(address)
            self._count(found, hit=found is not None)
            if found is not None:
                return found
            if waited:
                log.debug("cache: another process gave up %s %s", key.kind, address.hex()[:12])
            self._explain(key)
            with _inside:
                made = make()
            self.put(key, made)
            return made

    def _address(self, key: Key) -> bytes:
        # Entries that are sealed and entries that are not can share a directory.
        return hashlib.sha256(b"sealed" + key.digest).digest() if self.settings.cache_secret else key.digest

    def _local(self, address: bytes) -> Entry | None:
        for directory in self._open().directories:
            sealed = directory.get(address)
            if sealed is None:
                continue
            try:
                return unseal(sealed, address, self.settings.cache_secret)
            except Damaged as error:
                log.info("cache: dropped entry %s in %s: %s", address.hex()[:12], directory.path, error)
                directory.discard(address)
            except WrongSeal as error:
                log.warning("cache: ignored entry %s in %s: %s", address.hex()[:12], directory.path, error)
        return None

    def _remote(self, address: bytes) -> Entry | None:
        sealed = self._server.get(address) if self._server else None
        if self._server is None or sealed is None:
            return None
        try:
            entry = unseal(sealed, address, self.settings.cache_secret)
        except (Damaged, WrongSeal) as error:
            log.warning("cache: ignored entry %s of %s: %s", address.hex()[:12], self._server.name, error)
            return None
        writer = self._open().writer
        if writer is not None:
            writer.put(address, sealed)
        return entry

    def _count(self, found: Entry | None, *, hit: bool) -> None:
        with self._lock.held:
            now = self._counters
            self._counters = replace(
                now,
                hits=now.hits + hit,
                misses=now.misses + (not hit),
                bytes_read=now.bytes_read + (len(found.code) if found else 0),
            )

    def _explain(self, key: Key) -> None:
        """Say at debug level which parts of *key* differ from the nearest entry."""
        if not log.isEnabledFor(logging.DEBUG):
            return
        nearest: tuple[str, ...] | None = None
        for each in self.entries(_MOST_COMPARED):
            if each.kind == key.kind:
                differing = key.differences(each.parts)
                nearest = differing if nearest is None or len(differing) < len(nearest) else nearest
        if nearest is None:
            log.debug("cache: missed %s %s, the first of its kind", key.kind, key.digest.hex()[:12])
        else:
            log.debug(
                "cache: missed %s %s; the nearest entry differs in %s",
                key.kind,
                key.digest.hex()[:12],
                ", ".join(nearest) or "nothing but its seal",
            )

    def entries(self, most: int | None = None) -> Iterator[Described]:
        """
        Yield what all directories hold, as the entries describe themselves; nothing is checked.

        Args:
            most: How many files to look into at most.
        """
        for directory in self._open().directories:
            for address in directory.addresses():
                if most is not None:
                    most -= 1
                    if most < 0:
                        return
                with contextlib.suppress(OSError, CacheError, Damaged):
                    meta, size = peek(directory.read(address, most=PEEK))
                    yield Described(directory.path_of(address), directory.path, *described(meta), size)

    def _open(self) -> _Tiers:
        if self._opened is not None:
            return self._opened
        with self._lock.held:
            if self._opened is None:
                started = time.perf_counter()
                self._opened = _open(self.settings)
                log.debug("cache: opened in %.1f ms", 1e3 * (time.perf_counter() - started))
            return self._opened


def _open(settings: Config) -> _Tiers:
    if not settings.cache:
        return _Tiers()
    directories: list[Directory] = []
    refused: list[str] = []
    worth_a_word: list[str] = []
    writer: Directory | None = None
    for path in settings.cache_dirs or (None,):
        try:
            place = default_directory() if path is None else Path(path).expanduser()
            directory = Directory(place, settings.cache_size, create=writer is None)
        except Exception as error:  # noqa: BLE001 - the cache never fails a build
            reason = (
                str(error) if isinstance(error, CacheError) else f"{path}: {type(error).__name__}: {error}"
            )
            refused.append(reason)
            # A missing directory of a search path is nothing to talk about, a refused one is.
            if writer is None or os.path.lexists(path or ""):
                worth_a_word.append(reason)
            continue
        directories.append(directory)
        if writer is None and directory.writable:
            writer = directory
    if writer is None:
        reasons = "; ".join(refused) or ", ".join(f"{each.path} is read-only" for each in directories)
        log.warning("cache: nothing is kept: %s", reasons)
    else:
        for reason in worth_a_word:
            log.warning("cache: %s", reason)
    processes = Processes(writer.open_locks) if writer else None
    return _Tiers(tuple(directories), writer, processes, tuple(refused))


class _Inside(threading.local):
    busy = False

    def __enter__(self) -> None:
        self.busy = True

    def __exit__(self, *_: object) -> None:
        self.busy = False


_inside = _Inside()


@functools.cache
def default() -> Cache:
    """Return the cache that the environment asks for, the same one for the whole process."""
    return Cache(config())


def cached(key: Key, make: Callable[[], Entry]) -> Entry:
    """Return the result of *make*, from the default cache where it is there. See `Cache.through`."""
    return default().through(key, make)


def counters() -> Counters:
    """Return what the default cache did in this process."""
    return default().counters
