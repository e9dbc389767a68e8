"""Combine directories and a server into one cache, which computes each result once and counts its hits."""

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

from .directory import WRITABLE_CURE, Directory, locate
from .key import Damaged, Entry, Key, WrongSeal, seal, unseal
from .server import NAME, Server
from .single_flight import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

OFF = "the cache is off: NUMBA_PTXLINK_CACHE=0; unset it"
"""The reason why no directory is used if the cache is off."""


class Counters(NamedTuple):
    """
    The activity of a cache in this process.

    Args:
        hits: The number of results that were found, or that another thread or process had just computed.
        misses: The number of results that had to be computed.
        bytes_read: The size of the found code, in bytes.
        bytes_written: The size of the stored code, in bytes.
    """

    hits: int = 0
    misses: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


class Tiers(NamedTuple):
    """
    The directories of a cache.

    Args:
        directories: The directories that entries are read from, in search order.
        writable: The first of *directories* that can be written, which gets new entries; None if none can be.
        unused_reasons: For each other directory of the configuration that cannot be used, the reason.
    """

    directories: tuple[Directory, ...] = ()
    writable: Directory | None = None
    unused_reasons: tuple[str, ...] = ()


class Cache:
    """
    A cache in the directories, and on the server, of a configuration. Thread-safe, and shared by processes.

    Args:
        settings: The configuration.
    """

    def __init__(self, settings: Config) -> None:
        self.settings = settings
        self._counters = Counters()
        self._lock = Lock()
        self._threads: Threads[Entry] = Threads()
        self._tiers: Tiers | None = None
        self._server = _make_server(settings)

    @property
    def counters(self) -> Counters:
        """The activity of this cache so far."""
        with self._lock.held:
            return self._counters

    def tiers(self) -> Tiers:
        """Return the directories, which are opened at the first call."""
        with self._lock.held:
            if self._tiers is None:
                self._tiers = _open_directories(self.settings)
            return self._tiers

    def unused_reasons(self) -> tuple[str, ...]:
        """Return the reasons why directories are not used."""
        return self.tiers().unused_reasons if self.settings.cache else (OFF,)

    def writable_directory(self) -> Directory:
        """
        Return the directory that new entries are written to.

        Raises:
            CacheError: No directory can be written.
        """
        directory = self.tiers().writable
        if directory is None:
            reasons = "; ".join(self.unused_reasons()) or f"all are read-only; {WRITABLE_CURE}"
            raise CacheError(f"no cache directory can be written: {reasons}.")
        return directory

    def put(self, key: Key, entry: Entry) -> None:
        """Store *entry* under *key* in the writable directory and on the server. Never raises."""
        address = self._address(key)
        # The kind is for people who look into an entry: the name of its file, a hash, does not tell the kind.
        entry_with_kind = entry._replace(meta={**entry.meta, "kind": key.kind})
        sealed = seal(address, entry_with_kind, self.settings.cache_secret)
        writable = self.tiers().writable
        stored = writable is not None and writable.put(address, sealed)
        if self._server is not None:
            stored |= self._server.put(address, sealed)
        if stored:
            self._count(bytes_written=len(entry.code))

    def look_up(self, key: Key) -> Entry | None:
        """
        Return the entry of *key* in a directory, and count a hit; None if there is none. Never raises.

        The server is not queried: only `get_or_compute` reads from it.
        """
        entry = self._read_local(self._address(key))
        return entry and self._count_hit(entry)

    def memoize(self, key: Key, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """
        Return the JSON values stored under *key*; on a miss, compute them with *compute* and store them.

        Unlike `get_or_compute`, this counts no hits and misses, and waits for no other thread or process.
        """
        if not self.settings.cache:
            return compute()
        entry = self._read_local(self._address(key))
        if entry is None:
            entry = Entry(compute(), b"")
            self.put(key, entry)
        return entry.meta

    def get_or_compute(self, key: Key | Callable[[], Key], compute: Callable[[], Entry]) -> Entry:
        """
        Return the entry of *key*; on a miss, compute it with *compute* and store it.

        If several threads or processes need one key at the same time, one runs *compute*, and the others
        wait. Within *compute*, the cache is off for its thread: parts of a stored result need not be stored
        as well.

        Args:
            key: The inputs of the result; or a function that returns them, called only if the cache is used.
            compute: Computes the result. Its exceptions are raised here, and nothing is stored then.
        """
        if not self.settings.cache or _computing.is_busy:
            return compute()
        key = key if isinstance(key, Key) else key()
        if entry := self.look_up(key):
            return entry
        address = self._address(key)
        entry, from_other_thread = self._threads.join(address, lambda: self._compute(key, address, compute))
        return self._count_hit(entry) if from_other_thread else entry

    def _compute(self, key: Key, address: bytes, compute: Callable[[], Entry]) -> Entry:
        """Return the entry of *key* from another process or the server; else compute and store it."""

        def is_available() -> bool:
            return self._read_local(address) is not None

        writable = self.tiers().writable
        with writable.processes.lead(address, is_available) if writable else contextlib.nullcontext():
            # Another process may have stored the result between the first lookup and the lock.
            entry = self._read_local(address) or self._read_remote(address)
            if entry is not None:
                return self._count_hit(entry)
            self._count(misses=1)
            log.debug("cache: missed %s %s: %s", key.kind, address.hex()[:12], dict(key.parts))
            with _computing:
                result = compute()
            self.put(key, result)
            return result

    def _address(self, key: Key) -> bytes:
        # With a secret, entries have an HMAC, and other addresses than without: a directory can have both.
        return hashlib.sha256(b"sealed" + key.digest).digest() if self.settings.cache_secret else key.digest

    def _read_local(self, address: bytes) -> Entry | None:
        """Return the first valid entry in the directories; None if there is none."""
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

    def _read_remote(self, address: bytes) -> Entry | None:
        """Return the valid entry on the server, and copy it to a directory; None if there is none."""
        if self._server is None or (sealed := self._server.get(address)) is None:
            return None
        try:
            entry = unseal(sealed, address, self.settings.cache_secret)
        except (Damaged, WrongSeal) as error:
            log.warning("cache: ignored entry %s of %s: %s", address.hex()[:12], NAME, error)
            return None
        writable = self.tiers().writable
        if writable is not None:
            writable.put(address, sealed)
        return entry

    def _count_hit(self, entry: Entry) -> Entry:
        """Count a hit; return *entry*."""
        self._count(hits=1, bytes_read=len(entry.code))
        return entry

    def _count(self, **increments: int) -> None:
        with self._lock.held:
            values = self._counters._asdict()
            self._counters = Counters(**{name: values[name] + increments.get(name, 0) for name in values})


def _make_server(settings: Config) -> Server | None:
    """Return the server that machines share, not connected yet; None if none can be used."""
    if not (settings.cache and settings.cache_url):
        return None
    if settings.cache_secret is None:
        log.warning(
            "cache: %s is not used, since anybody who can write to it could run code here; set "
            "NUMBA_PTXLINK_CACHE_SECRET to the same secret on all machines",
            NAME,
        )
        return None
    return Server(settings.cache_url)


def _open_directories(settings: Config) -> Tiers:
    """Open the directories of the configuration; the first that can be written gets new entries."""
    if not settings.cache:
        return Tiers()
    directories: list[Directory] = []
    unused_reasons: list[str] = []
    writable: Directory | None = None
    for path in settings.cache_dirs or ("",):  # "" is the user's directory, see `locate`.
        try:
            folder = locate(path)
            # A missing directory is created, unless an earlier one can be written: then it is skipped.
            if writable is not None and not folder.exists():
                continue
            directory = Directory(folder, settings.cache_size, create=writable is None)
        except CacheError as error:
            log.warning("cache: %s", error)
            unused_reasons.append(str(error))
            continue
        directories.append(directory)
        if writable is None and directory.is_writable:
            writable = directory
    if writable is None:
        log.warning("cache: results are not stored, since no directory can be written; %s", WRITABLE_CURE)
    return Tiers(tuple(directories), writable, tuple(unused_reasons))


class _Computing(threading.local):
    """The class of `_computing`: `is_busy` is true for a thread that is in a block `with _computing:`."""

    is_busy = False

    def __enter__(self) -> None:
        self.is_busy = True

    def __exit__(self, *_: object) -> None:
        self.is_busy = False


_computing = _Computing()


@functools.cache
def default() -> Cache:
    """Return the cache that the environment configures, one for the whole process."""
    return Cache(config())


def cached(key: Key | Callable[[], Key], compute: Callable[[], Entry]) -> Entry:
    """Return the entry of *key* in the default cache, computed on a miss. See `Cache.get_or_compute`."""
    return default().get_or_compute(key, compute)


def counters() -> Counters:
    """Return the activity of the default cache in this process."""
    return default().counters
