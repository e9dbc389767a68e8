"""Combine the directories and the server into one cache, with single flight and counters."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._config import Config, config
from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import CacheError

from .directory import WRITABLE, Directory, default_directory
from .key import Damaged, Entry, Key, WrongSeal, seal, unseal
from .server import Server
from .single_flight import Processes, Threads

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Cache", "Counters", "Entry", "Key", "cached", "counters", "default"]

log = logging.getLogger(__name__)

OFF = "the cache is off: NUMBA_PTXLINK_CACHE=0; unset it"
"""The reason why a cache is not used."""


class Counters(NamedTuple):
    """
    What a cache did in this process.

    Args:
        hits: Results that were found, or that another thread or process had just computed.
        misses: Results that had to be computed.
        bytes_read: The size of the code that was found, in bytes.
        bytes_written: The size of the code that was stored, in bytes.
    """

    hits: int = 0
    misses: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class Tiers(NamedTuple):
    """
    The directories of a cache.

    Args:
        directories: Those that are read, in order.
        writer: The one that is written to, None without one.
        refused: Why others are not used.
        processes: The keys that processes are computing, None without a writer.
    """

    directories: tuple[Directory, ...] = ()
    writer: Directory | None = None
    refused: tuple[str, ...] = ()
    processes: Processes | None = None


class Cache:
    """
    A cache of the tiers in the configuration. Thread-safe, and shared by processes.

    Args:
        settings: The configuration.
    """

    def __init__(self, settings: Config) -> None:
        self.settings = settings
        self._counters = Counters()
        self._lock = Lock()
        self._threads: Threads[Entry] = Threads()
        self._opened: Tiers | None = None
        self._server = _connect(settings)

    @property
    def counters(self) -> Counters:
        """What this cache did so far."""
        with self._lock.held:
            return self._counters

    def tiers(self) -> Tiers:
        """Return the directories, which are opened at the first call."""
        if self._opened is None:
            with self._lock.held:
                if self._opened is None:
                    started = time.perf_counter()
                    self._opened = _open(self.settings)
                    log.debug("cache: opened in %.1f ms", 1e3 * (time.perf_counter() - started))
        return self._opened

    def unused(self) -> tuple[str, ...]:
        """Return why directories are not used."""
        return self.tiers().refused if self.settings.cache else (OFF,)

    def writer(self) -> Directory:
        """
        Return the directory that is written to.

        Raises:
            CacheError: There is none.
        """
        writer = self.tiers().writer
        if writer is None:
            why = "; ".join(self.unused()) or f"all are read-only; {WRITABLE}"
            raise CacheError(f"no cache directory can be written: {why}.")
        return writer

    def get(self, key: Key) -> Entry | None:
        """Return the entry stored under *key*, None on a miss. Never raises."""
        entry = self._local(self._address(key)) or self._remote(self._address(key))
        self._count(entry, hit=entry is not None)
        return entry

    def put(self, key: Key, entry: Entry) -> None:
        """Store *entry* under *key*, in every tier that can be written. Never raises."""
        address = self._address(key)
        sealed = seal(
            address, entry._replace(meta={**entry.meta, "kind": key.kind}), self.settings.cache_secret
        )
        writer = self.tiers().writer
        stored = writer is not None and writer.put(address, sealed)
        if self._server is not None:
            stored |= self._server.put(address, sealed)
        if stored:
            with self._lock.held:
                written = self._counters.bytes_written + len(entry.code)
                self._counters = self._counters._replace(bytes_written=written)

    def found(self, key: Key) -> Entry | None:
        """Return the entry of *key* in a directory, None where `through` has to go on. Never raises."""
        if not self.settings.cache or _inside.busy:
            return None
        entry = self._local(self._address(key))
        if entry is not None:
            self._count(entry, hit=True)
        return entry

    def through(self, key: Key, make: Callable[[], Entry]) -> Entry:
        """
        Return the entry of *key*; on a miss, compute it with *make* and store it.

        Single flight: of all threads and processes that ask for one key at a time, one runs *make*. The cache
        is off within *make*: parts of a stored result need not be stored as well.

        Args:
            key: Everything the result depends on.
            make: Computes the result. Its exceptions are raised here, and nothing is stored.
        """
        if not self.settings.cache or _inside.busy:
            return make()
        entry = self.found(key)
        if entry is None:
            address = self._address(key)
            entry, another = self._threads.join(address, lambda: self._make(key, address, make))
            if another:
                self._count(entry, hit=True)
        return entry

    def _make(self, key: Key, address: bytes, make: Callable[[], Entry]) -> Entry:
        landed: list[Entry] = []

        def find() -> bool:
            entry = self._local(address)
            landed.extend([entry] if entry else [])
            return bool(landed)

        processes = self.tiers().processes
        leading = processes.lead(address, find) if processes else contextlib.nullcontext(enter_result=False)
        with leading as waited:
            # Another process may have stored the result between the first lookup and the lock.
            if not landed:
                find()
            entry = landed[0] if landed else self._remote(address)
            self._count(entry, hit=entry is not None)
            if entry is not None:
                return entry
            if waited:
                log.debug("cache: another process gave up %s %s", key.kind, address.hex()[:12])
            log.debug("cache: missed %s %s: %s", key.kind, address.hex()[:12], dict(key.parts))
            with _inside:
                result = make()
            self.put(key, result)
            return result

    def _address(self, key: Key) -> bytes:
        # Different addresses let entries with and without an HMAC share a directory.
        return hashlib.sha256(b"sealed" + key.digest).digest() if self.settings.cache_secret else key.digest

    def _local(self, address: bytes) -> Entry | None:
        for directory in self.tiers().directories:
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
        writer = self.tiers().writer
        if writer is not None:
            writer.put(address, sealed)
        return entry

    def _count(self, entry: Entry | None, *, hit: bool) -> None:
        with self._lock.held:
            now = self._counters
            self._counters = now._replace(
                hits=now.hits + hit,
                misses=now.misses + (not hit),
                bytes_read=now.bytes_read + (len(entry.code) if entry else 0),
            )


def _connect(settings: Config) -> Server | None:
    """Return the server that machines share, None without one."""
    if not (settings.cache and settings.cache_url):
        return None
    server = Server(settings.cache_url)
    if settings.cache_secret is None:
        log.warning(
            "cache: %s is not used, for whoever can write to it could have their code run; set "
            "NUMBA_PTXLINK_CACHE_SECRET to the same secret on all machines",
            server.name,
        )
        return None
    return server


def _open(settings: Config) -> Tiers:
    if not settings.cache:
        return Tiers()
    directories: list[Directory] = []
    refused: list[str] = []
    warnings: list[str] = []
    writer: Directory | None = None
    for path in settings.cache_dirs or ("",):
        try:
            directory = Directory(_location(path), settings.cache_size, create=writer is None)
        except CacheError as error:
            refused.append(str(error))
            # Past the directory that is written, a missing one is normal; one that is refused is not.
            if writer is None or os.path.lexists(path):
                warnings.append(str(error))
            continue
        directories.append(directory)
        if writer is None and directory.writable:
            writer = directory
    if writer is None:
        read_only = (f"{directory.path} is read-only" for directory in directories)
        warnings = [f"nothing is kept: {'; '.join(refused) or ', '.join(read_only)}"]
    for warning in warnings:
        log.warning("cache: %s", warning)
    processes = Processes(writer.open_locks) if writer else None
    return Tiers(tuple(directories), writer, tuple(refused), processes)


def _location(path: str) -> Path:
    """Return the directory at *path*, the user's own for ""."""
    try:
        return Path(path).expanduser() if path else default_directory()
    except RuntimeError as error:
        raise CacheError(f"{path}: {error}") from error


class _Inside(threading.local):
    busy = False

    def __enter__(self) -> None:
        self.busy = True

    def __exit__(self, *_: object) -> None:
        self.busy = False


_inside = _Inside()


@functools.cache
def default() -> Cache:
    """Return the cache that the environment configures, one for the whole process."""
    return Cache(config())


def cached(key: Key, make: Callable[[], Entry]) -> Entry:
    """Return the entry of *key* in the default cache, computed on a miss. See `Cache.through`."""
    return default().through(key, make)


def counters() -> Counters:
    """Return what the default cache did in this process."""
    return default().counters
