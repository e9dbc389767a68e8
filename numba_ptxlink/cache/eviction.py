"""What leaves a cache directory: entries above its cap, those first that were not used for longest."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass

TEMPORARY = "new-"
"""How the names of files begin that are being written."""

CHECK_SECONDS = 600
"""How often the size of a cache is looked at."""

_ENTRY = re.compile(r"[0-9a-f]{64}")
_STAMP = "checked"
# No write takes that long: its process was killed.
_ABANDONED_SECONDS = 3600


@dataclass(frozen=True)
class _File:
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
    """Return whether nobody has looked at the size of the cache in the directory *top* for a while."""
    try:
        looked = os.stat(_STAMP, dir_fd=top, follow_symlinks=False).st_mtime
    except FileNotFoundError:
        return True
    # A clock that was set back must not put the next look off for ever.
    return abs(time.time() - looked) > CHECK_SECONDS


def stamp(top: int) -> float:
    """
    Note that the cache in the directory *top* is looked at, and return the time there.

    Raises:
        OSError: It cannot be noted.
    """
    file = os.open(_STAMP, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=top)
    try:
        os.utime(file)
        return os.fstat(file).st_mtime
    finally:
        os.close(file)


def enforce(folder: int, cap: int, now: float) -> None:
    """
    Delete what was not used for longest until *cap* bytes are left, and what killed writers left behind.

    A time in the future was given by a clock that was wrong, then or now. Such an entry was used late, and is
    dated now: it goes after all others this time, and ages like them from here on.

    Args:
        folder: The directory of the entries.
        cap: The most that may be left, in bytes.
        now: The time there.
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
    left = sum(file.size for file in files)
    files.sort(key=lambda file: file.used)
    for file in files:
        if left > cap:
            left -= file.size
            _delete(file.name, folder)
        elif file.used > now:
            with contextlib.suppress(OSError):
                os.utime(file.name, (now, now), dir_fd=folder, follow_symlinks=False)


def _delete(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)
