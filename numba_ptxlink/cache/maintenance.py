"""What the command `numba-ptxlink cache` does: look into a cache, check it, empty it, carry it elsewhere."""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from numba_ptxlink.errors import CacheError

from .directory import LARGEST
from .entry import Damaged, WrongSeal, address_of, unseal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numba_ptxlink.cache import Cache

    from .directory import Directory

_MOST_MEMBERS = 1_000_000


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
        sizes = [directory.size_of(address) for address in directory.addresses()]
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
    count = len(writer.addresses())
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
    """Check every file against its name, digest and seal, and delete the damaged ones."""
    sound = 0
    removed: dict[Path, str] = {}
    foreign: dict[Path, str] = {}
    for directory in cache.tiers()[0]:
        for address in directory.addresses():
            try:
                unseal(directory.read(address), address, cache.settings.cache_secret)
                sound += 1
            except (WrongSeal, CacheError) as error:
                foreign[directory.path_of(address)] = str(error)
            except Damaged as error:
                removed[directory.path_of(address)] = str(error)
                directory.discard(address)
            except OSError:
                continue
    return Verified(sound, removed, foreign)


def export(cache: Cache, archive: Path) -> int:
    """
    Write the sound entries of *cache* to a tar file, atomically, and return how many they are.

    Whatever goes wrong leaves the folder as it was.

    Raises:
        CacheError: The file cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=archive.parent, prefix=f".{archive.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                count = _write(cache, file)
            os.replace(temporary, archive)  # noqa: PTH105 - one rename, whatever was there
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108 - likewise
            raise
    except OSError as error:
        raise CacheError(f"{archive} could not be written: {error.strerror}; check the folder.") from error
    return count


def _write(cache: Cache, file: IO[bytes]) -> int:
    seen: set[bytes] = set()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for address, sealed in _sound(cache):
            if address not in seen:
                seen.add(address)
                member = tarfile.TarInfo(address.hex())
                member.size = len(sealed)
                tar.addfile(member, io.BytesIO(sealed))
    return len(seen)


def _sound(cache: Cache) -> Iterator[tuple[bytes, bytes]]:
    for directory in cache.tiers()[0]:
        for address in directory.addresses():
            with contextlib.suppress(OSError, CacheError, Damaged, WrongSeal):
                sealed = directory.read(address)
                unseal(sealed, address, cache.settings.cache_secret)
                yield address, sealed


@dataclass(frozen=True)
class Imported:
    """
    What became of the members of an archive.

    Args:
        taken: How many entries are new here.
        present: How many were here already, and stayed as they are.
        refused: How many were not taken: damaged, sealed with another secret, too large or no entries.
    """

    taken: int = 0
    present: int = 0
    refused: int = 0


def import_(cache: Cache, archive: Path) -> Imported:
    """
    Put the entries of a tar file that `export` wrote into *cache*, and overwrite none.

    Nothing in the file is believed: at most the size of one entry is in memory, whatever it announces.

    Raises:
        CacheError: The file cannot be read, it holds more than the directory may, or none can be written.
    """
    writer = _writer(cache)
    count: Counter[str] = Counter()
    size = 0
    try:
        with archive.open("rb") as file:
            for sealed in _members(file):
                fate = _take(cache, writer, sealed)
                count[fate] += 1
                size += len(sealed) if fate == "taken" else 0
                if size > writer.size or count.total() > _MOST_MEMBERS:
                    raise CacheError(
                        f"{archive} holds more than {writer.path} may; set NUMBA_PTXLINK_CACHE_SIZE to more, "
                        f"or give a smaller file. What was taken so far stays."
                    )
    except (OSError, tarfile.TarError) as error:
        raise CacheError(f"{archive} could not be read: {error}; give a file of `cache export`.") from error
    return Imported(**count)


def _take(cache: Cache, writer: Directory, sealed: bytes) -> str:
    secret = cache.settings.cache_secret
    try:
        unseal(sealed, None, secret)
    except (Damaged, WrongSeal):
        return "refused"
    address = address_of(sealed)
    with contextlib.suppress(OSError, CacheError, Damaged, WrongSeal):
        unseal(writer.read(address), address, secret)
        return "present"
    return "taken" if writer.put(address, sealed) else "refused"


def _members(file: IO[bytes]) -> Iterator[bytes]:
    """
    Yield the content of every plain file in the tar file *file*, b"" for every other member.

    `tarfile` alone reads what a member announces: sparse files of any size, and headers as long as they say.
    Here each header is looked at alone, and what is no plain file is passed over.

    Raises:
        tarfile.TarError: It is no tar file, or cut short.
    """
    end = file.seek(0, io.SEEK_END)
    if not end:
        raise tarfile.ReadError("it is empty")
    place = 0
    while place < end:
        file.seek(place)
        header = file.read(tarfile.BLOCKSIZE)
        if not any(header):
            return
        member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        place += tarfile.BLOCKSIZE
        if not 0 <= member.size <= end - place:
            raise tarfile.ReadError("it is cut short")
        plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.size <= LARGEST
        yield file.read(member.size) if plain else b""
        place += -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _writer(cache: Cache) -> Directory:
    _, writer, refused = cache.tiers()
    if not cache.settings.cache:
        raise CacheError("the cache is off: NUMBA_PTXLINK_CACHE=0; unset it.")
    if writer is None:
        raise CacheError(f"no cache directory can be written: {'; '.join(refused) or 'all are read-only'}.")
    return writer
