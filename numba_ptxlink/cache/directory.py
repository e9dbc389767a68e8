"""Store entries in a directory: ownership checks, atomic rename, LRU eviction above a soft limit."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
import stat
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import CacheError

from . import eviction

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

LAYOUT = "v2"
"""The subdirectory of the entries, named after the layout: releases with another one never read it."""
WRITABLE = "let NUMBA_PTXLINK_CACHE name a directory that you can write to, or be 0 to do without"
"""What helps where no directory can be written."""

LARGEST = 1 << 30
"""The largest entry that is read, in bytes."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: opening a FIFO in an entry's place must not wait for its writer.
_OPEN_ENTRY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# ESTALE is what a network file system reports for a deleted directory.
_GONE = (errno.ENOENT, errno.ESTALE)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def default_directory() -> Path:
    """
    Return the user's cache directory: $XDG_CACHE_HOME/numba-ptxlink, or ~/.cache/numba-ptxlink.

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
    if home.parts and not home.is_absolute():
        raise CacheError(
            f"the home directory is {str(home)!r}, which is not absolute; set HOME or XDG_CACHE_HOME to an "
            "absolute path, or NUMBA_PTXLINK_CACHE to a directory, or to 0 to do without"
        )
    if not home.is_dir() or not home.parts:
        raise CacheError(
            "there is no home directory; set NUMBA_PTXLINK_CACHE to a directory, or to 0 to do without"
        )
    return home / ".cache" / "numba-ptxlink"


class Directory:
    """
    A directory of entries, shared by processes and threads. Reading needs no write permission.

    The path is resolved once and the descriptor kept, so that replacing the path has no effect. If the
    directory itself is deleted, it is created and checked again.

    Args:
        path: Its path; created with mode 0700 if it is missing and *create* is set.
        size: The soft limit in bytes.
        create: Whether it may be created.

    Raises:
        CacheError: It is missing, or another user owns it or can write to it: loading would run their code.
    """

    def __init__(self, path: Path, size: int, *, create: bool) -> None:
        self.path = path
        self.size = size
        self._create = create
        self._written = 0
        self._next_look = 0.0
        self._lock = Lock()
        self._warned: set[str] = set()
        self._top = self._open()
        self.writable = os.access(
            ".",
            os.R_OK | os.W_OK | os.X_OK,
            dir_fd=self._top,
            effective_ids=os.access in os.supports_effective_ids,
        )

    def _open(self) -> int:
        """Open and check the directory; return its descriptor, which is closed with this object."""
        if self._create:
            _make(self.path)
        try:
            top = os.open(self.path, _OPEN_DIRECTORY)
        except OSError as error:
            raise CacheError(f"{self.path} cannot be used: {error.strerror}") from error
        weakref.finalize(self, os.close, top).atexit = False
        status = os.fstat(top)
        _refuse_foreign(self.path, status)
        with contextlib.suppress(OSError):
            _refuse_foreign(self.path / LAYOUT, os.stat(LAYOUT, dir_fd=top, follow_symlinks=False))
        # Entries follow the directory's read permissions: opening it to others is meant to share them.
        self._mode = stat.S_IMODE(status.st_mode) & (_OTHERS_READ | _OTHERS_ENTER)
        return top

    def path_of(self, address: bytes) -> Path:
        """Return the path of the entry of *address*, for messages."""
        return self.path / LAYOUT / address.hex()

    def get(self, address: bytes) -> bytes | None:
        """Return the entry stored under *address*, None if it is missing or unreadable. Counts as a use."""
        try:
            return self._read_entry(address)
        except FileNotFoundError:
            return None
        except CacheError as error:
            self._warn("foreign", "cache: ignored an entry: %s", error)
        except OSError as error:
            if error.errno is None:
                raise  # a signal handler's, such as of a time-out
            # The error may be transient: the entry is not deleted.
            log.debug("cache: %s could not be read: %s", self.path, error)
        return None

    def _read_entry(self, address: bytes) -> bytes:
        """
        Return the entry stored under *address*, and mark it as used, which delays its eviction.

        Raises:
            CacheError: Another user owns it or can write to it, or it is not a regular file of legal size.
            OSError: It is missing or cannot be read.
        """
        file = os.open(f"{LAYOUT}/{address.hex()}", _OPEN_ENTRY, dir_fd=self._top)
        try:
            status = os.fstat(file)
            _refuse_foreign(self.path_of(address), status)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                raise CacheError(f"{self.path_of(address)} is no entry; delete it")
            if self.writable:
                # Without times, utime takes the file system's clock, the same for all machines that share it.
                os.utime(file)
            return _read(file, status.st_size)
        finally:
            os.close(file)

    def put(self, address: bytes, sealed: bytes) -> bool:
        """Store *sealed* under *address* by atomic rename; return whether that worked. Warn once."""
        if not self.writable:
            return False
        try:
            self._write(address.hex(), sealed)
            self._count(len(sealed))
        except (OSError, CacheError) as error:
            if isinstance(error, OSError) and error.errno is None:
                raise  # a signal handler's, such as of a time-out
            self._warn(
                "write",
                "cache: %s cannot be written (%s); going on without. Free space, mend the permissions, "
                "or set NUMBA_PTXLINK_CACHE.",
                self.path,
                getattr(error, "strerror", None) or error,
            )
            return False
        return True

    def _write(self, name: str, sealed: bytes) -> None:
        """
        Write *sealed* to a temporary file and rename it, without fsync.

        fsync can take longer than a link and gains nothing here: an entry that a crash of the machine leaves
        half written fails its digest check and is a miss.
        """
        temporary = f"{LAYOUT}/{eviction.TEMPORARY}{secrets.token_hex(8)}"
        file = self._new_file(temporary)
        try:
            try:
                # fchmod overrides the umask: entries follow the directory's permissions.
                os.fchmod(file, 0o600 | self._mode & _OTHERS_READ)
                rest = memoryview(sealed)
                while rest:
                    rest = rest[os.write(file, rest) :]
            finally:
                os.close(file)
            os.replace(temporary, f"{LAYOUT}/{name}", src_dir_fd=self._top, dst_dir_fd=self._top)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._top)
            raise

    def _new_file(self, name: str) -> int:
        """Create the file *name*, and recreate what was deleted of the directory since it was opened."""
        try:
            return os.open(name, _CREATE, 0o600, dir_fd=self._top)
        except OSError as error:
            if error.errno not in _GONE:
                raise
            with self._lock.held:
                if self._is_gone():
                    self._top = self._open()
                with contextlib.suppress(FileExistsError):
                    os.mkdir(LAYOUT, 0o700, dir_fd=self._top)
                    os.chmod(LAYOUT, 0o700 | self._mode, dir_fd=self._top)
            return os.open(name, _CREATE, 0o600, dir_fd=self._top)

    def _is_gone(self) -> bool:
        try:
            return os.fstat(self._top).st_nlink == 0
        except OSError:
            return True

    def discard(self, address: bytes) -> None:
        """Delete the entry stored under *address*, if possible."""
        with contextlib.suppress(OSError):
            os.unlink(f"{LAYOUT}/{address.hex()}", dir_fd=self._top)

    def clear(self) -> int:
        """
        Delete every entry; return their number.

        Raises:
            CacheError: An entry could not be deleted.
        """
        entries = 0
        try:
            with self._folder() as folder:
                for name in eviction.names(folder):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
                        entries += eviction.is_entry(name)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise CacheError(
                f"{self.path} could not be cleared: {error.strerror}; mend its permissions."
            ) from error
        return entries

    def sizes(self) -> list[int]:
        """Return the sizes of all entries in bytes."""
        found = []
        with contextlib.suppress(OSError), self._folder() as folder:
            for name in filter(eviction.is_entry, eviction.names(folder)):
                with contextlib.suppress(FileNotFoundError):
                    found.append(os.stat(name, dir_fd=folder, follow_symlinks=False).st_size)
        return found

    def open_locks(self) -> int:
        """
        Open the lock file for `single_flight.Processes`, creating it if necessary.

        Raises:
            OSError: It cannot be created or written.
        """
        return os.open(
            "locks", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._top
        )

    def _count(self, length: int) -> None:
        """Enforce the soft limit from time to time: listing 100,000 entries takes longer than a compile."""
        with self._lock.held:
            self._written += length
            # The stamp of a machine with a wrong clock can always look old, hence the second timer.
            waiting = time.monotonic() < self._next_look or not eviction.is_due(self._top)
            if self._written <= self.size // 16 and waiting:
                return
            self._written = 0
            self._next_look = time.monotonic() + eviction.CHECK_SECONDS
        now = eviction.stamp(self._top)
        with self._folder() as folder:
            eviction.enforce(folder, self.size, now)

    @contextlib.contextmanager
    def _folder(self) -> Iterator[int]:
        # A separate descriptor: listing moves a descriptor's position, which threads would share.
        folder = os.open(LAYOUT, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._top)
        try:
            yield folder
        finally:
            os.close(folder)

    def _warn(self, about: str, message: str, *arguments: object) -> None:
        log.log(logging.DEBUG if about in self._warned else logging.WARNING, message, *arguments)
        self._warned.add(about)


def _read(file: int, size: int) -> bytes:
    chunk = os.read(file, size)
    if len(chunk) == size:
        return chunk
    chunks = [chunk]
    while chunk and (missing := size - sum(map(len, chunks))):
        chunk = os.read(file, missing)
        chunks.append(chunk)
    return b"".join(chunks)


def _make(path: Path) -> None:
    """Create the directory *path* and its missing parents with mode 0700."""
    try:
        if path.is_dir():
            return
        if not path.parent.exists():
            _make(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CacheError(f"{path} cannot be made: {error.strerror}; {WRITABLE}") from error


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
