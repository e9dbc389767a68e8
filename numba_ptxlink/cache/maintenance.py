"""Implement the commands of `numba-ptxlink cache`: statistics, verify, clear, export and import."""

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

from .directory import LARGEST, WRITABLE
from .entry import Damaged, WrongSeal, address_of, unseal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numba_ptxlink.cache import Cache

    from .directory import Directory

OFF = "the cache is off: NUMBA_PTXLINK_CACHE=0; unset it"
"""What is said of a cache that is not used."""

_MOST_MEMBERS = 1_000_000


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
        kinds: The number of readable entries by kind.
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
    The result of `verify`.

    Args:
        sound: The number of intact entries.
        removed: The damaged files, each with the reason; deleted if the directory is writable.
        foreign: The files without a valid HMAC, or of other users, each with the reason; left in place.
    """

    sound: int
    removed: dict[Path, str]
    foreign: dict[Path, str]


def stats(cache: Cache) -> list[Stats]:
    """Return statistics of each directory of *cache*, in search order."""
    directories, writer, _ = cache.tiers()
    reports = []
    for directory in directories:
        sizes = [directory.size_of(address) for address in directory.addresses()]
        kinds = Counter(entry.kind for entry in cache.entries() if entry.directory == directory.path)
        written = directory is writer
        reports.append(Stats(directory.path, written, len(sizes), sum(sizes), directory.size, dict(kinds)))
    return reports


def clear(cache: Cache) -> int:
    """
    Delete all entries of the directory that *cache* writes to; return their number.

    Raises:
        CacheError: There is no such directory, or an entry cannot be deleted.
    """
    writer = _writer(cache)
    count = len(writer.addresses())
    writer.clear()
    return count


def path(cache: Cache) -> Path:
    """
    Return the directory that *cache* writes to.

    Raises:
        CacheError: There is none.
    """
    return _writer(cache).path


def verify(cache: Cache) -> Verified:
    """
    Check the name, digest and HMAC of every file, and delete damaged ones.

    Raises:
        CacheError: The cache is off.
    """
    _check_on(cache)
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
    Write the intact entries of *cache* to a tar file by atomic rename; return their number.

    A failure leaves the folder unchanged.

    Raises:
        CacheError: The cache is off, or the file cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=archive.parent, prefix=f".{archive.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                count = write(cache, file)
            os.replace(temporary, archive)  # noqa: PTH105 - the atomic rename
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108 - mkstemp returns a string
            raise
    except OSError as error:
        raise CacheError(f"{archive} could not be written: {error.strerror}; check the folder.") from error
    return count


def write(cache: Cache, file: IO[bytes]) -> int:
    """
    Write the intact entries of *cache* as a tar file to *file*, which may be a pipe; return how many.

    Raises:
        CacheError: The cache is off.
    """
    _check_on(cache)
    seen: set[bytes] = set()
    with tarfile.open(fileobj=file, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
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
    The result of `import_`, in numbers of archive members.

    Args:
        taken: Entries that were added.
        present: Entries that existed already and were left unchanged.
        refused: Members that were not added: damaged, with another HMAC, too large or not entries.
    """

    taken: int = 0
    present: int = 0
    refused: int = 0


def import_(cache: Cache, archive: Path) -> Imported:
    """
    Add the entries of a tar file written by `export` to *cache*, without overwriting any.

    The file is not trusted: at most one entry is in memory at a time, whatever sizes the file declares.

    Raises:
        CacheError: The file cannot be read or exceeds the directory's limit, or no directory is writable.
    """
    writer = _writer(cache)
    count: Counter[str] = Counter()
    size = 0
    try:
        with archive.open("rb") as file:
            for sealed in _members(file):
                outcome = _take(cache, writer, sealed)
                count[outcome] += 1
                size += len(sealed) if outcome == "taken" else 0
                if size > writer.size or count.total() > _MOST_MEMBERS:
                    raise CacheError(
                        f"{archive} holds more than {writer.path} may; set NUMBA_PTXLINK_CACHE_SIZE to more, "
                        f"or give a smaller file. What was taken so far stays."
                    )
    except (OSError, tarfile.TarError) as error:
        taken = f" Entries taken before that, which stay: {count['taken']}." if count["taken"] else ""
        raise CacheError(
            f"{archive} could not be read: {error}; give a file of `cache export` that is whole.{taken}"
        ) from error
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
    Yield the content of every regular file in the tar file *file*, b"" for every other member.

    `tarfile` itself trusts declared sizes: of sparse files, and of extended headers, which it reads whole.
    Here each header is parsed alone, and members that are not regular files are skipped.

    Raises:
        tarfile.TarError: It is not a tar file, or lacks the two blocks of zeros at the end of one.
    """
    end = file.seek(0, io.SEEK_END)
    if not end:
        raise tarfile.ReadError("it is empty")
    offset = 0
    while offset < end:
        file.seek(offset)
        header = file.read(tarfile.BLOCKSIZE)
        if not any(header):
            if header + file.read(tarfile.BLOCKSIZE) == bytes(2 * tarfile.BLOCKSIZE):
                return
            break
        member = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        offset += tarfile.BLOCKSIZE
        if not 0 <= member.size <= end - offset:
            raise tarfile.ReadError("it is cut short")
        regular = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.size <= LARGEST
        yield file.read(member.size) if regular else b""
        offset += -(-member.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    raise tarfile.ReadError("it is cut short")


def _check_on(cache: Cache) -> None:
    if not cache.settings.cache:
        raise CacheError(f"{OFF}.")


def _writer(cache: Cache) -> Directory:
    _, writer, refused = cache.tiers()
    _check_on(cache)
    if writer is None:
        why = "; ".join(refused) or f"all are read-only; {WRITABLE}"
        raise CacheError(f"no cache directory can be written: {why}.")
    return writer
