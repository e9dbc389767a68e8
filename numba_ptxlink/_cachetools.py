"""What the command `numba-ptxlink cache` does: look into a cache, check it, empty it, carry it elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._seal import Damaged, WrongSeal, address_of, unseal
from .errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ._store import Directory
    from .cache import Cache

_LARGEST = 1 << 30


@dataclass(frozen=True)
class Stats:
    """
    What one directory holds.

    Args:
        path: The directory.
        writable: Whether new entries go there.
        entries: How many files it holds.
        size: Their sizes together, in bytes.
        cap: Where the oldest are dropped, in bytes.
        kinds: How many sound entries there are of each kind.
    """

    path: Path
    writable: bool
    entries: int
    size: int
    cap: int
    kinds: dict[str, int]


@dataclass(frozen=True)
class Verified:
    """
    What a check found.

    Args:
        sound: How many entries are as they were written.
        removed: The files that were not, and why. They are gone where the directory can be written.
        foreign: The files that were sealed with another secret, or not at all where there is one.
    """

    sound: int
    removed: dict[Path, str]
    foreign: dict[Path, str]


def stats(cache: Cache) -> list[Stats]:
    """Return what each directory of *cache* holds, in the order they are searched."""
    directories, writer, _ = cache.tiers()
    found = []
    for directory in directories:
        sizes = []
        for path in directory.files():
            with contextlib.suppress(OSError):
                sizes.append(path.stat().st_size)
        kinds = Counter(each.kind for each in cache.entries() if each.directory == directory.path)
        written = directory is writer
        found.append(Stats(directory.path, written, len(sizes), sum(sizes), directory.size, dict(kinds)))
    return found


def clear(cache: Cache) -> int:
    """
    Delete the entries of the directory that *cache* writes, and return how many there were.

    Raises:
        CacheError: There is no such directory, or an entry cannot be deleted.
    """
    writer = _writer(cache)
    count = sum(1 for _ in writer.files())
    writer.clear()
    return count


def path(cache: Cache) -> Path:
    """
    Return the directory that *cache* writes.

    Raises:
        CacheError: There is none.
    """
    return _writer(cache).path


def verify(cache: Cache) -> Verified:
    """Check every file against its digest and seal, and delete the damaged ones."""
    sound = 0
    removed: dict[Path, str] = {}
    foreign: dict[Path, str] = {}
    for directory in cache.tiers()[0]:
        for file in directory.files():
            try:
                unseal(file.read_bytes(), None, cache.settings.cache_secret)
                sound += 1
            except WrongSeal as error:
                foreign[file] = str(error)
            except Damaged as error:
                removed[file] = str(error)
                with contextlib.suppress(OSError):
                    file.unlink()
            except OSError:
                continue
    return Verified(sound, removed, foreign)


def export(cache: Cache, archive: Path) -> int:
    """
    Write the sound entries of *cache* to a tar file, atomically, and return how many they are.

    Raises:
        CacheError: The file cannot be written.
    """
    seen: set[str] = set()
    try:
        with (
            tempfile.NamedTemporaryFile(dir=archive.parent, prefix=f".{archive.name}.", delete=False) as file,
            tarfile.open(fileobj=file, mode="w") as tar,
        ):
            for name, sealed in _sound(cache):
                if name not in seen:
                    seen.add(name)
                    member = tarfile.TarInfo(name)
                    member.size = len(sealed)
                    tar.addfile(member, io.BytesIO(sealed))
        os.replace(file.name, archive)  # noqa: PTH105 - one rename, whatever was there
    except OSError as error:
        raise CacheError(f"{archive} could not be written: {error.strerror}; check the folder.") from error
    return len(seen)


def _sound(cache: Cache) -> Iterator[tuple[str, bytes]]:
    for directory in cache.tiers()[0]:
        for file in directory.files():
            with contextlib.suppress(OSError, Damaged, WrongSeal):
                sealed = file.read_bytes()
                unseal(sealed, None, cache.settings.cache_secret)
                yield address_of(sealed).hex(), sealed


def import_(cache: Cache, archive: Path) -> tuple[int, int]:
    """
    Put the entries of a tar file that `export` wrote into *cache*.

    Returns:
        How many were taken, and how many were not since they are damaged or sealed with another secret.

    Raises:
        CacheError: The file cannot be read, or no directory written.
    """
    writer = _writer(cache)
    taken = refused = 0
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                file = tar.extractfile(member) if member.isfile() and member.size <= _LARGEST else None
                try:
                    sealed = file.read() if file else b""
                    unseal(sealed, None, cache.settings.cache_secret)
                except (Damaged, WrongSeal):
                    refused += 1
                    continue
                taken += writer.put(address_of(sealed), sealed)
    except (OSError, tarfile.TarError) as error:
        raise CacheError(f"{archive} could not be read: {error}; give a file of `cache export`.") from error
    return taken, refused


def _writer(cache: Cache) -> Directory:
    _, writer, refused = cache.tiers()
    if not cache.settings.cache:
        raise CacheError("the cache is off: NUMBA_PTXLINK_CACHE=0; unset it.")
    if writer is None:
        raise CacheError(f"no cache directory can be written: {'; '.join(refused) or 'all are read-only'}.")
    return writer
