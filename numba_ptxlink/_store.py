"""One directory of sealed entries: who may own it, and what becomes of its errors."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import CacheError

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("numba_ptxlink")

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_CHECK_SECONDS = 600
_STAMP = "checked"


def default_directory() -> Path:
    """
    Return the user's own cache directory: $XDG_CACHE_HOME/numba-ptxlink, or ~/.cache/numba-ptxlink.

    Raises:
        CacheError: The user has no home directory.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if base and Path(base).is_absolute():
        return Path(base) / "numba-ptxlink"
    try:
        home = Path.home()
    except RuntimeError:
        home = Path()
    if not home.is_absolute() or not home.is_dir():
        raise CacheError(
            "there is no home directory; set NUMBA_PTXLINK_CACHE to a directory, or to 0 to do without"
        )
    return home / ".cache" / "numba-ptxlink"


class Directory:
    """
    A directory of entries, shared by processes and threads. Reading needs no right to write.

    Args:
        path: Where it is. Made, for this user alone, where it is missing and *create* is set.
        size: The soft cap in bytes.
        create: Whether it may be made.

    Raises:
        CacheError: It is not there, or loading what it holds would run the code of another user.
    """

    def __init__(self, path: Path, size: int, *, create: bool) -> None:
        self.path = path
        self.size = size
        self._written = 0
        self._lock = threading.Lock()
        self._warned = False
        if create and not path.exists():
            _make(path)
        self.refuse_if_unsafe()
        self.writable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
        self._files = self._open(None)

    def _open(self, size: int | None) -> Any:
        from cuda.core.utils import FileStreamProgramCache

        try:
            return FileStreamProgramCache(self.path, max_size_bytes=size)
        except OSError as error:
            raise CacheError(f"{self.path} cannot be used: {error.strerror}") from error

    def refuse_if_unsafe(self) -> None:
        """
        Check that nobody but this user and root can write here.

        Raises:
            CacheError: Somebody can, or the directory is not there.
        """
        top = _look(self.path)
        _refuse_foreign(self.path, top)
        if not top.st_mode & _OTHERS:
            return
        # Others can enter, so the doors inside count too.
        for inner in (self.path / "entries", self.path / "tmp", *_children(self.path / "entries")):
            if inner.is_dir():
                _refuse_foreign(inner, _look(inner))

    def get(self, address: bytes) -> bytes | None:
        """Return what is kept under *address*, None where nothing is or it cannot be read."""
        try:
            return bytes(self._files[address.hex()])
        except KeyError:
            return None
        except Exception as error:  # noqa: BLE001 - the cache never fails a build
            # It may be all right the next time, and is not deleted.
            log.debug("cache: %s could not be read: %s", self.path, error)
            return None

    def put(self, address: bytes, sealed: bytes) -> bool:
        """Keep *sealed* under *address*, atomically; return whether that worked. The first failure warns."""
        if not self.writable:
            return False
        try:
            files = self._files_for(len(sealed))
            if files is self._files:
                self._write(address.hex(), sealed)
            else:
                files[address.hex()] = sealed
        except Exception as error:  # noqa: BLE001 - likewise
            if not self._warned:
                self._warned = True
                log.warning(
                    "cache: %s cannot be written (%s); going on without. Free space, mend the permissions, "
                    "or set NUMBA_PTXLINK_CACHE.",
                    self.path,
                    getattr(error, "strerror", None) or error,
                )
            return False
        return True

    def _write(self, key: str, sealed: bytes) -> None:
        """
        Put *sealed* where cuda.core's store looks for *key*, without its wait for the disk.

        That wait can take longer than a link, and gains nothing here: what a crash of the machine leaves half
        written is damaged, and a miss.
        """
        target = self._files._path_for_key(key)  # noqa: SLF001 - it has no public name
        # Somebody may have deleted them since they were made.
        for folder in (target.parent, self.path / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix="entry-", dir=self.path / "tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(sealed)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def discard(self, address: bytes) -> None:
        """Delete what is kept under *address*, if it can be deleted."""
        with contextlib.suppress(Exception):
            del self._files[address.hex()]

    def clear(self) -> None:
        """
        Delete every entry.

        Raises:
            CacheError: An entry could not be deleted.
        """
        try:
            self._files.clear()
        except OSError as error:
            raise CacheError(
                f"{self.path} could not be cleared: {error.strerror}; mend its permissions."
            ) from error

    def files(self) -> Iterator[Path]:
        """Yield the file of every entry, and whatever else lies among them."""
        for folder in sorted(_children(self.path / "entries")):
            yield from (path for path in sorted(_children(folder)) if path.is_file())

    def _files_for(self, length: int) -> Any:
        """
        Return the files to write to, with the cap enforced only now and then.

        A capped store counts every entry when it is opened, which among 100,000 takes longer than a compile.
        """
        with self._lock:
            self._written += length
            stamp = self.path / _STAMP
            try:
                # A clock that was set back must not put the next check off for ever.
                due = abs(time.time() - stamp.stat().st_mtime) > _CHECK_SECONDS
            except FileNotFoundError:
                due = True
            if not due and self._written <= self.size // 16:
                return self._files
            self._written = 0
        stamp.touch(mode=0o600)
        return self._open(self.size)


def _make(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CacheError(f"{path} cannot be made: {error.strerror}") from error


def _look(path: Path) -> os.stat_result:
    try:
        status = path.stat()
    except OSError as error:
        raise CacheError(f"{path} cannot be used: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise CacheError(f"{path} is no directory")
    return status


def _refuse_foreign(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise CacheError(
            f"{path} belongs to user {status.st_uid}, whose code would be run; "
            f"use a directory of your own, or of root's"
        )
    if status.st_mode & _OTHERS_WRITE:
        raise CacheError(
            f"{path} can be written by other users, whose code would be run; run chmod go-w on it"
        )


def _children(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError:
        return []
