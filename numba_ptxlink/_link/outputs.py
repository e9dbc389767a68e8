"""Write the files of one result: all of them or none, and never a half-written one."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def write(files: Mapping[Path, bytes]) -> None:
    """
    Write *files*, each by an atomic rename, in order: a reader sees the old file or the new one.

    Those that have their content already keep their times, so that build tools leave what depends on them
    alone. The last one is always written, and tells these tools that all are up to date.
    All contents are on the disk under temporary names before the first rename. If a rename fails, or the
    process is interrupted, the former files are put back. What kills the process between two renames leaves
    the last of *files* as it was: let that one be the file that tells whether the others belong together.

    Raises:
        OSError: A file could not be written. Its `filename` is the path out of *files*.
    """
    files = _changed(files)
    temporary: list[Path] = []
    replaced: list[tuple[Path, Path | None]] = []
    target = None
    try:
        staged = []
        for target, content in files.items():
            path = _beside(target, temporary)
            _fill(path, content)
            staged.append((path, target))
        for path, target in staged:
            former = _keep(target, temporary)
            replaced.append((target, former))
            path.replace(target)
    except BaseException as error:
        for place, former in reversed(replaced):
            with suppress(OSError):
                place.unlink(missing_ok=True) if former is None else former.replace(place)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(target), None
        raise
    finally:
        for path in temporary:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _changed(files: Mapping[Path, bytes]) -> dict[Path, bytes]:
    """Return those of *files* that have another content, and the last one."""
    *others, last = files
    return {path: files[path] for path in others if not _has(path, files[path])} | {last: files[last]}


def _has(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def _beside(target: Path, temporary: list[Path]) -> Path:
    """Return a new path beside *target*, noted in *temporary* before there is a file."""
    # Not derived from the target's name, which may have the greatest length already.
    path = target.with_name(f".ptxlink.{secrets.token_hex(8)}.tmp")
    temporary.append(path)
    return path


def _fill(path: Path, content: bytes) -> None:
    # Not mkstemp: the file gets the permissions that the umask allows, as if it were opened for writing.
    with os.fdopen(os.open(path, _CREATE | os.O_CLOEXEC, 0o666), "wb") as file:
        file.write(content)


def _keep(target: Path, temporary: list[Path]) -> Path | None:
    """Return another name for the file at *target*, None where there is none."""
    if not os.path.lexists(target):
        return None
    if target.is_dir() and not target.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if target.exists() and not target.is_file():
        raise FileExistsError(errno.EEXIST, "it is a device or a pipe", str(target))
    former = _beside(target, temporary)
    try:
        os.link(target, former, follow_symlinks=False)
    except OSError:
        # Some file systems have no hard links.
        shutil.copy2(target, former, follow_symlinks=False)
    return former
