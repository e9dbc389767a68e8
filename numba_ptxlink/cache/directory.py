"""One directory of sealed entries: held by its descriptor, read with suspicion, written atomically."""

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
"""The folder of the entries. Another name for another layout, so that nobody takes one for the other."""

LARGEST = 1 << 30
"""The largest entry that is read, in bytes."""

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Opening a FIFO that somebody put there must not wait for its writer.
_OPEN_ENTRY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# The second is what a file system of another machine says.
_GONE = (errno.ENOENT, errno.ESTALE)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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

    It is looked up by its path once. What the path leads to later makes no difference, unless the directory
    itself was deleted: then it is made again, and checked again.

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
        """Open the directory, check it, and return its descriptor, which lives as long as this object."""
        if self._create:
            _make(self.path)
        try:
            top = os.open(self.path, _OPEN_DIRECTORY)
        except OSError as error:
            raise CacheError(f"{self.path} cannot be used: {error.strerror}") from error
        weakref.finalize(self, os.close, top).atexit = False
        status = os.fstat(top)
        _refuse_foreign(self.path, status)
        with contextlib.suppress(FileNotFoundError):
            _refuse_foreign(self.path / LAYOUT, os.stat(LAYOUT, dir_fd=top, follow_symlinks=False))
        # Whoever lets others read the directory means what is in it.
        self._mode = stat.S_IMODE(status.st_mode) & (_OTHERS_READ | _OTHERS_ENTER)
        return top

    def path_of(self, address: bytes) -> Path:
        """Return where the entry of *address* is, for people to read."""
        return self.path / LAYOUT / address.hex()

    def get(self, address: bytes) -> bytes | None:
        """Return what is kept under *address*, None where nothing is or it cannot be taken. Is a use."""
        try:
            return self.read(address, used=self.writable)
        except FileNotFoundError:
            return None
        except CacheError as error:
            self._warn("foreign", "cache: ignored an entry: %s", error)
        except Exception as error:  # noqa: BLE001 - the cache never fails a build
            # It may be all right the next time, and is not deleted.
            log.debug("cache: %s could not be read: %s", self.path, error)
        return None

    def read(self, address: bytes, *, most: int = LARGEST, used: bool = False) -> bytes:
        """
        Return what is kept under *address*.

        Args:
            address: The 32 bytes it is kept under.
            most: How many bytes of it to read at most.
            used: Whether this is a use, which puts its eviction off.

        Raises:
            CacheError: Its code would be another user's, or it is no file.
            OSError: It is not there, or cannot be read.
        """
        file = os.open(f"{LAYOUT}/{address.hex()}", _OPEN_ENTRY, dir_fd=self._top)
        try:
            status = os.fstat(file)
            _refuse_foreign(self.path_of(address), status)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
                raise CacheError(f"{self.path_of(address)} is no entry; delete it")
            if used:
                # By the clock of the file system, which is one for all machines that share it.
                os.utime(file)
            return _read(file, min(most, status.st_size))
        finally:
            os.close(file)

    def put(self, address: bytes, sealed: bytes) -> bool:
        """Keep *sealed* under *address*, atomically; return whether that worked. The first failure warns."""
        if not self.writable:
            return False
        try:
            self._write(address.hex(), sealed)
            self._count(len(sealed))
        except Exception as error:  # noqa: BLE001 - likewise
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
        Put *sealed* in its place, without a wait for the disk.

        That wait can take longer than a link, and gains nothing here: what a crash of the machine leaves half
        written is damaged, and a miss.
        """
        temporary = f"{LAYOUT}/{eviction.TEMPORARY}{secrets.token_hex(8)}"
        file = self._new_file(temporary)
        try:
            try:
                # The process's umask is about files that people make.
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
        """Make the file *name*, and whatever of the directory somebody has deleted since it was opened."""
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
        """Delete what is kept under *address*, if it can be deleted."""
        with contextlib.suppress(OSError):
            os.unlink(f"{LAYOUT}/{address.hex()}", dir_fd=self._top)

    def clear(self) -> None:
        """
        Delete every entry.

        Raises:
            CacheError: An entry could not be deleted.
        """
        try:
            with self._folder() as folder:
                for name in eviction.names(folder):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise CacheError(
                f"{self.path} could not be cleared: {error.strerror}; mend its permissions."
            ) from error

    def addresses(self) -> list[bytes]:
        """Return what entries are kept under, in order."""
        with contextlib.suppress(OSError), self._folder() as folder:
            return sorted(map(bytes.fromhex, filter(eviction.is_entry, eviction.names(folder))))
        return []

    def size_of(self, address: bytes) -> int:
        """Return the size of an entry's file in bytes, 0 where there is none."""
        with contextlib.suppress(OSError):
            return os.stat(f"{LAYOUT}/{address.hex()}", dir_fd=self._top, follow_symlinks=False).st_size
        return 0

    def open_locks(self) -> int:
        """
        Open the file whose locks tell what processes work on.

        Raises:
            OSError: It cannot be made or written.
        """
        return os.open(
            "locks", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._top
        )

    def _count(self, length: int) -> None:
        """Enforce the cap now and then: looking at 100,000 entries takes longer than a compile."""
        with self._lock.held:
            self._written += length
            # The clock of another machine may be so far off that its mark is always an old one.
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
        # A descriptor of its own: whoever lists a directory moves the position of its descriptor.
        folder = os.open(LAYOUT, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._top)
        try:
            yield folder
        finally:
            os.close(folder)

    def _warn(self, about: str, message: str, *arguments: object) -> None:
        log.log(logging.DEBUG if about in self._warned else logging.WARNING, message, *arguments)
        self._warned.add(about)


def _read(file: int, size: int) -> bytes:
    first = os.read(file, size)
    if len(first) == size:
        return first
    parts = [first]
    while first and (missing := size - sum(map(len, parts))):
        first = os.read(file, missing)
        parts.append(first)
    return b"".join(parts)


def _make(path: Path) -> None:
    """Make the directory *path*, and what is missing above it, for this user alone."""
    try:
        if path.is_dir():
            return
        if not path.parent.exists():
            _make(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise CacheError(f"{path} cannot be made: {error.strerror}") from error


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
