"""Store entries in a directory: ownership checks, atomic rename, LRU eviction above a soft limit."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import stat
import time
import weakref
from pathlib import Path

from numba_ptxlink.errors import CacheError

from .single_flight import Processes

log = logging.getLogger(__name__)

LAYOUT = "v2"
"""The subdirectory of the entries, named after their layout: releases with another layout do not read it."""
WRITABLE_CURE = "let NUMBA_PTXLINK_CACHE name a directory that you can write to, or be 0 for no cache"
"""The cure if no directory can be written."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
# Flags of os.open.
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: if an entry is a FIFO, opening it must not wait for a writer.
_ENTRY_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TEMPORARY_PREFIX = "new-"
# The name of an entry, its address in hexadecimal digits, or that of a temporary file.
_ENTRY_NAME = re.compile(rf"[0-9a-f]{{64}}|{_TEMPORARY_PREFIX}.*")
# Writing a file takes less time, so the process that began an older temporary file was killed.
_ABANDONED_SECONDS = 3600
# The size of the directory is checked once in about this many writes, since listing 100,000 entries takes
# longer than a compilation.
_WRITES_PER_CHECK = 256


def locate(path: str) -> Path:
    """
    Return the directory at *path*; for "", the user's directory in $XDG_CACHE_HOME or ~/.cache.

    Raises:
        CacheError: The user has no home directory.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG Base Directory Specification requires that a relative path is ignored.
    if not base.is_absolute():
        base = Path("~/.cache")
    try:
        return Path(path or base / "numba-ptxlink").expanduser()
    except RuntimeError as error:
        raise CacheError(f"{path}: {error}; {WRITABLE_CURE}") from error


class Directory:
    """
    A directory of entries, shared by processes and threads. Reading needs no write permission.

    The path is opened once and its descriptor kept: another directory that later gets this path is not used.
    If the directory is deleted meanwhile, this process stores nothing more.

    Args:
        path: The path of the directory.
        max_size: The soft limit of the size of all entries, in bytes.
        create: Whether a missing directory is created, with mode 0700.

    Raises:
        CacheError: The directory is missing, or another user owns it or can write to it: loading an entry
            could run that user's code.
    """

    def __init__(self, path: Path, max_size: int, *, create: bool) -> None:
        self.path = path
        self.max_size = max_size
        self._written_bytes = 0
        self._has_warned = False
        if create:
            _create_folders(path)
        try:
            self._descriptor = os.open(path, _DIRECTORY_FLAGS)
        except OSError as error:
            raise CacheError(f"{path} cannot be used: {error.strerror}") from error
        self.processes = Processes(self._descriptor)
        # Closed with this object; when the process ends, the system closes it.
        weakref.finalize(self, os.close, self._descriptor).atexit = False
        status = os.fstat(self._descriptor)
        _check_owner(path, status)
        # The permissions of group and others: entries get those of the directory, without write permission.
        self._others_mode = stat.S_IMODE(status.st_mode) & (_OTHERS_READ | _OTHERS_ENTER)
        self.is_writable = os.access(".", os.R_OK | os.W_OK | os.X_OK, dir_fd=self._descriptor)
        if create:
            # mkdir fails if the subdirectory exists; any other failure is reported when an entry is written.
            with contextlib.suppress(OSError):
                os.mkdir(LAYOUT, 0o700, dir_fd=self._descriptor)
                os.chmod(LAYOUT, 0o700 | self._others_mode, dir_fd=self._descriptor)
        # A directory that was never written may lack the subdirectory.
        with contextlib.suppress(OSError):
            _check_owner(path / LAYOUT, os.stat(LAYOUT, dir_fd=self._descriptor, follow_symlinks=False))

    def get(self, address: bytes) -> bytes | None:
        """
        Return the entry stored under *address*; None if it is missing or unreadable.

        The entry counts as used now, which delays its eviction.
        """
        try:
            return self._read_entry(address)
        except FileNotFoundError:
            return None
        except CacheError as error:
            self._warn("cache: ignored an entry: %s", error)
        except OSError as error:
            if error.errno is None:
                raise  # A signal handler raised it, such as for a time-out.
            # The entry is not deleted, since the error may be transient.
            log.debug("cache: %s could not be read: %s", self.path, error)
        return None

    def _read_entry(self, address: bytes) -> bytes:
        """
        Return the entry stored under *address*, and set its time of last use.

        Raises:
            CacheError: Another user owns the entry or can write to it.
            OSError: The entry is missing or cannot be read.
        """
        file = os.open(f"{LAYOUT}/{address.hex()}", _ENTRY_FLAGS, dir_fd=self._descriptor)
        try:
            status = os.fstat(file)
            _check_owner(self.path / LAYOUT / address.hex(), status)
            if self.is_writable:
                # Without a time, utime takes that of the file system, whose clock all machines share.
                os.utime(file)
            return os.read(file, status.st_size)
        finally:
            os.close(file)

    def put(self, address: bytes, sealed: bytes) -> bool:
        """
        Store *sealed* under *address*; return whether that worked.

        Failures are logged, the first one as a warning.
        """
        if not self.is_writable:
            return False
        try:
            self._write(address.hex(), sealed)
            self._enforce_limit(len(sealed))
        except (OSError, CacheError) as error:
            if isinstance(error, OSError) and error.errno is None:
                raise  # A signal handler raised it, such as for a time-out.
            self._warn(
                "cache: %s cannot be written (%s), and results are not stored; free space, correct the "
                "permissions, or set NUMBA_PTXLINK_CACHE.",
                self.path,
                getattr(error, "strerror", None) or error,
            )
            return False
        return True

    def _write(self, name: str, sealed: bytes) -> None:
        """
        Write *sealed* to a temporary file and rename it, without fsync.

        fsync can take longer than a link, and is not needed: if a crash of the machine leaves an entry half
        written, its digest check fails, which is a miss.
        """
        temporary_path = f"{LAYOUT}/{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        file = os.open(temporary_path, _CREATE_FLAGS, 0o600, dir_fd=self._descriptor)
        try:
            try:
                # fchmod overrides the umask, so that entries get the directory's permissions.
                os.fchmod(file, 0o600 | (self._others_mode & _OTHERS_READ))
                remaining = memoryview(sealed)
                while remaining:
                    remaining = remaining[os.write(file, remaining) :]
            finally:
                os.close(file)
            os.replace(
                temporary_path, f"{LAYOUT}/{name}", src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor
            )
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary_path, dir_fd=self._descriptor)
            raise

    def discard(self, address: bytes) -> None:
        """Delete the entry stored under *address*, if possible."""
        self._unlink(address.hex())

    def clear(self) -> int:
        """
        Delete every entry; return their number.

        Raises:
            CacheError: An entry could not be deleted.
        """
        entry_count = 0
        try:
            for _, _, name in self._files():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{LAYOUT}/{name}", dir_fd=self._descriptor)
                    if not name.startswith(_TEMPORARY_PREFIX):
                        entry_count += 1
        except OSError as error:
            raise CacheError(
                f"{self.path} could not be cleared: {error.strerror}; correct its permissions."
            ) from error
        return entry_count

    def sizes(self) -> list[int]:
        """Return the sizes of all entries in bytes."""
        with contextlib.suppress(OSError):
            return [size for _, size, name in self._files() if not name.startswith(_TEMPORARY_PREFIX)]
        return []

    def _enforce_limit(self, byte_count: int) -> None:
        """
        Count *byte_count* written bytes; from time to time, reduce the directory to `max_size`.

        The entries whose last use is longest ago are deleted, and temporary files of killed processes.
        """
        self._written_bytes += byte_count
        # Check when this process has written a sixteenth of the limit, or by chance, since many processes may
        # write few entries each.
        if self._written_bytes <= self.max_size // 16 and secrets.randbelow(_WRITES_PER_CHECK):
            return
        self._written_bytes = 0
        files = self._files()
        total = sum(size for _, size, name in files if not name.startswith(_TEMPORARY_PREFIX))
        for last_use, size, name in sorted(files):  # The longest unused first.
            if name.startswith(_TEMPORARY_PREFIX):
                if time.time() - last_use > _ABANDONED_SECONDS:
                    self._unlink(name)
            elif total > self.max_size:
                total -= size
                self._unlink(name)

    def _files(self) -> list[tuple[float, int, str]]:
        """Return the time of the last use, the size and the name of each entry and each temporary file."""
        files = []
        # Each call opens a descriptor of its own: threads that list by one descriptor share its position.
        folder = os.open(LAYOUT, _DIRECTORY_FLAGS | os.O_NOFOLLOW, dir_fd=self._descriptor)
        try:
            for name in filter(_ENTRY_NAME.fullmatch, os.listdir(folder)):  # noqa: PTH208 - a descriptor
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    files.append((status.st_mtime, status.st_size, name))
        finally:
            os.close(folder)
        return files

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(f"{LAYOUT}/{name}", dir_fd=self._descriptor)

    def _warn(self, message: str, *arguments: object) -> None:
        """Log the first problem with this directory as a warning, and others at debug level."""
        log.log(logging.DEBUG if self._has_warned else logging.WARNING, message, *arguments)
        self._has_warned = True


def _create_folders(path: Path) -> None:
    """Create the directory *path* and its missing parents with mode 0700."""
    try:
        for folder in (*reversed(path.parents), path):
            if not folder.is_dir():
                folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CacheError(f"{path} cannot be created: {error.strerror}; {WRITABLE_CURE}") from error


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Refuse a file or directory that neither this user nor root owns, or that others can write to."""
    if status.st_uid not in (os.geteuid(), 0):
        raise CacheError(
            f"{path} belongs to user {status.st_uid}, whose code would be run; "
            f"use a directory of your own, or of root's"
        )
    if status.st_mode & _OTHERS_WRITE:
        raise CacheError(
            f"{path} can be written by other users, whose code would be run; run chmod go-w on it"
        )
