"""Evict the least recently used entries of a cache directory that exceeds its soft limit."""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import NamedTuple

TEMPORARY = "new-"
"""The prefix of the names of files that are being written."""

CHECK_SECONDS = 600
"""The seconds between two checks of a cache's size."""

_ENTRY = re.compile(r"[0-9a-f]{64}")
_STAMP = "checked"
# No write takes that long: the process that wrote such a temporary file was killed.
_ABANDONED_SECONDS = 3600


class _File(NamedTuple):
    name: str
    size: int
    used: float


def is_entry(name: str) -> bool:
    """Return whether a file called *name* is an entry."""
    return _ENTRY.fullmatch(name) is not None


def names(folder: int) -> list[str]:
    """
    Return the names of the entries in the directory *folder*, and of files that are being written.

    Raises:
        OSError: It cannot be listed.
    """
    return [name for name in os.listdir(folder) if is_entry(name) or name.startswith(TEMPORARY)]


def is_due(top: int) -> bool:
    """Return whether no process has checked the size of the cache in *top* for `CHECK_SECONDS`."""
    try:
        checked = os.stat(_STAMP, dir_fd=top, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return True
    # abs(): after a clock was set back, a stamp in the future must not postpone the check for ever.
    return abs(time.time() - checked) > CHECK_SECONDS


def stamp(top: int) -> float:
    """
    Record that the size of the cache in *top* is checked now; return the time by its file system's clock.

    Raises:
        OSError: The stamp cannot be written.
    """
    file = os.open(_STAMP, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=top)
    try:
        os.utime(file)
        return os.fstat(file).st_mtime
    finally:
        os.close(file)


def enforce(folder: int, cap: int, now: float) -> None:
    """
    Delete the least recently used entries until at most *cap* bytes remain, and files of killed writers.

    A time stamp in the future comes from a clock that is or was wrong. Such an entry counts as just used: it
    is evicted last and restamped with *now*, so that it ages from here on.

    Args:
        folder: A descriptor of the directory of the entries.
        cap: The soft limit in bytes.
        now: The time by the clock of its file system.
    """
    files = []
    for name in names(folder):
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            continue
        if is_entry(name):
            files.append(_File(name, status.st_size, status.st_mtime))
        elif abs(now - status.st_mtime) > _ABANDONED_SECONDS:
            _delete(name, folder)
    total = sum(file.size for file in files)
    files.sort(key=lambda file: file.used)
    for file in files:
        if total > cap:
            total -= file.size
            _delete(file.name, folder)
        elif file.used > now:
            with contextlib.suppress(OSError):
                os.utime(file.name, (now, now), dir_fd=folder, follow_symlinks=False)


def _delete(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
