"""Combine the directories and the server into one cache, with single flight and counters."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._config import Config, config
from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import CacheError

from .directory import WRITABLE, Directory, locate
from .key import Damaged, Entry, Key, WrongSeal, seal, unseal
from .server import NAME, Server
from .single_flight import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """

    directories: tuple[Directory, ...] = ()
    writer: Directory | None = None
    refused: tuple[str, ...] = ()


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
        with self._lock.held:
            if self._opened is None:
                self._opened = _open(self.settings)
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

    def put(self, key: Key, entry: Entry) -> None:
        """Store *entry* under *key*, in every tier that can be written. Never raises."""
        address = self._address(key)
        kept = entry._replace(meta={**entry.meta, "kind": key.kind})
        sealed = seal(address, kept, self.settings.cache_secret)
        writer = self.tiers().writer
        stored = writer is not None and writer.put(address, sealed)
        if self._server is not None:
            stored |= self._server.put(address, sealed)
        if stored:
            self._count(bytes_written=len(entry.code))

    def found(self, key: Key) -> Entry | None:
        """Return the entry of *key* in a directory, None if `get_or_compute` is needed. Never raises."""
        entry = self._local(self._address(key))
        return entry and self._hit(entry)

    def memoize(self, key: Key, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return what is noted under *key*, or note what *ask* tells; that is no result, and not counted."""
        if not self.settings.cache:
            return ask()
        entry = self._local(self._address(key))
        if entry is None:
            entry = Entry(ask(), b"")
            self.put(key, entry)
        return entry.meta

    def get_or_compute(self, key: Key | Callable[[], Key], make: Callable[[], Entry]) -> Entry:
        """
        Return the entry of *key*; on a miss, compute it with *make* and store it.

        Single flight: of all threads and processes that ask for one key at a time, one runs *make*. The cache
        is off within *make*: parts of a stored result need not be stored as well.

        Args:
            key: Everything the result depends on; or what returns that, called where the cache is used.
            make: Computes the result. Its exceptions are raised here, and nothing is stored.
        """
        if not self.settings.cache or _inside.busy:
            return make()
        key = key if isinstance(key, Key) else key()
        if entry := self.found(key):
            return entry
        address = self._address(key)
        entry, another = self._threads.join(address, lambda: self._make(key, address, make))
        return self._hit(entry) if another else entry

    def _make(self, key: Key, address: bytes, make: Callable[[], Entry]) -> Entry:
        def landed() -> bool:
            return self._local(address) is not None

        writer = self.tiers().writer
        with writer.processes.lead(address, landed) if writer else contextlib.nullcontext():
            # Another process may have stored the result between the first lookup and the lock.
            entry = self._local(address) or self._remote(address)
            if entry is not None:
                return self._hit(entry)
            self._count(misses=1)
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
        if self._server is None or (sealed := self._server.get(address)) is None:
            return None
        try:
            entry = unseal(sealed, address, self.settings.cache_secret)
        except (Damaged, WrongSeal) as error:
            log.warning("cache: ignored entry %s of %s: %s", address.hex()[:12], NAME, error)
            return None
        writer = self.tiers().writer
        if writer is not None:
            writer.put(address, sealed)
        return entry

    def _hit(self, entry: Entry) -> Entry:
        self._count(hits=1, bytes_read=len(entry.code))
        return entry

    def _count(self, **more: int) -> None:
        with self._lock.held:
            now = self._counters._asdict()
            self._counters = Counters(**{name: now[name] + more.get(name, 0) for name in now})


def _connect(settings: Config) -> Server | None:
    """Return the server that machines share, None without one."""
    if not (settings.cache and settings.cache_url):
        return None
    if settings.cache_secret is None:
        log.warning(
            "cache: %s is not used, for whoever can write to it could have their code run; set "
            "NUMBA_PTXLINK_CACHE_SECRET to the same secret on all machines",
            NAME,
        )
        return None
    return Server(settings.cache_url)


def _open(settings: Config) -> Tiers:
    if not settings.cache:
        return Tiers()
    directories: list[Directory] = []
    refused: list[str] = []
    writer: Directory | None = None
    for path in settings.cache_dirs or ("",):
        try:
            place = locate(path)
            # Past the directory that is written, a missing one is normal.
            if writer is not None and not place.exists():
                continue
            directory = Directory(place, settings.cache_size, create=writer is None)
        except CacheError as error:
            log.warning("cache: %s", error)
            refused.append(str(error))
            continue
        directories.append(directory)
        if writer is None and directory.writable:
            writer = directory
    if writer is None:
        log.warning("cache: nothing is kept: no directory can be written")
    return Tiers(tuple(directories), writer, tuple(refused))


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


def cached(key: Key | Callable[[], Key], make: Callable[[], Entry]) -> Entry:
    """Return the entry of *key* in the default cache, computed on a miss. See `Cache.through`."""
    return default().get_or_compute(key, make)


def counters() -> Counters:
    """Return what the default cache did in this process."""
    return default().counters
