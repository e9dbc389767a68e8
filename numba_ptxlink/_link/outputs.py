"""Write the files of one result: all of them or none, never a half-written one, and one result at a time."""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import shutil
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

try:
    import fcntl
except ImportError:  # no fcntl on this platform: writers do not wait for each other
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

log = logging.getLogger(__name__)

LONGEST_WAIT = 60.0
"""How long a writer waits for another one, in seconds."""

_PAUSE = 0.01
_LOCK = ".ptxlink.lock"
_TEMPORARY = re.compile(r"\.ptxlink\.[0-9a-f]{16}\.tmp")
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL


@contextmanager
def exclusive(
    folders: Iterable[Path], keep: Callable[[Path], bool] = lambda _: False
) -> Iterator[list[Path]]:
    """
    Write into *folders*, which exist, alone in a `with` block: other threads' and processes' blocks wait.

    Deletes the temporary files that killed processes have left there. Where a file system has no locks,
    nobody waits, and nothing is known to be left.

    Args:
        folders: The folders.
        keep: Which of these files are yielded, and deleted after a block that did not fail.

    Raises:
        TimeoutError: Another writer has not ended.
    """
    with ExitStack() as stack:
        deadline = time.monotonic() + LONGEST_WAIT
        kept: list[Path] = []
        # In one order, so that two writers never wait for each other.
        for folder in sorted({os.path.realpath(folder) for folder in folders}):
            if stack.enter_context(_locked(Path(folder), deadline)):
                for path in _left(folder):
                    if keep(path):
                        kept.append(path)
                    else:
                        _delete(path)
        yield kept
        for path in kept:
            _delete(path)


def _left(folder: str) -> list[Path]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is looked at
    except OSError:
        return []
    return [Path(folder, name) for name in names if _TEMPORARY.fullmatch(name)]


def _delete(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path, deadline: float) -> Iterator[bool]:
    """Lock *folder* for a `with` block; yield whether that was possible."""
    # Not the folder itself, which scripts lock around whole commands.
    path = folder / _LOCK
    while True:
        with ExitStack() as stack:
            file = _opened(path)
            if file is None:
                yield False
                return
            stack.enter_context(file)
            if not _lock(file, deadline, folder):
                if file.writable():
                    _delete(path)
                yield False
                return
            if not _is_at(path, file):
                # The one before has deleted it.
                continue
            try:
                yield True
            finally:
                if _is_at(path, file):
                    _delete(path)
                # Closing does not unlock what a process that was forked meanwhile has open.
                fcntl.flock(file, fcntl.LOCK_UN)
            return


def _opened(path: Path) -> IO[bytes] | None:
    # Another user's, who was killed, can be locked all the same.
    for mode in ("ab", "rb"):
        with suppress(OSError):
            return open(path, mode, opener=_open_no_link)
    return None


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _lock(file: IO[bytes], deadline: float, folder: Path) -> bool:
    """Lock *file* and return whether its file system can."""
    while fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                cause = (
                    f"another process writes there, which holds {_LOCK}, and has not ended in "
                    f"{LONGEST_WAIT:.0f} s"
                )
                raise TimeoutError(errno.ETIMEDOUT, cause, str(folder)) from None
            time.sleep(_PAUSE)
        except OSError as error:
            log.warning(
                "%s: its file system has no locks (%s); let only one process at a time write there",
                folder,
                error.strerror,
            )
            return False
        else:
            return True
    return False


def _is_at(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(file.fileno()))
    except OSError:
        return False


def write(files: Mapping[Path, bytes], obsolete: Collection[Path] = ()) -> list[Path]:
    """
    Write *files*, each by an atomic rename, in order: a reader sees the old file or the new one.

    Those that have their content already keep their times, so that build tools leave what depends on them
    alone. The last one is always written, and tells these tools that all are up to date; *obsolete* is
    deleted before that. All contents are on the disk under temporary names before the first rename. If a
    rename fails, or the process is interrupted, the former files are put back. What kills the process between
    two renames leaves the last of *files* as it was: let that one be the file that tells whether the others
    belong together. It leaves temporary files, too, which the next `exclusive` block deletes.

    Returns:
        Those of *obsolete* that could not be deleted.

    Raises:
        OSError: A file could not be written. Its `filename` is the path out of *files*.
    """
    files = _changed(files)
    temporary: list[Path] = []
    replaced: list[tuple[Path, Path | None]] = []
    target = None
    stay = []
    try:
        staged = []
        for target, content in files.items():
            path = _beside(target, temporary)
            _fill(path, content)
            staged.append((path, target))
        for number, (path, target) in enumerate(staged, 1):
            if number == len(staged):
                stay = [each for each in obsolete if not _removed(each, temporary, replaced)]
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
            _delete(path)
    return stay


def _removed(path: Path, temporary: list[Path], replaced: list[tuple[Path, Path | None]]) -> bool:
    """Give the file at *path* a temporary name and return whether that was possible."""
    former = _beside(path, temporary)
    # Before it is gone: an interrupt between the two puts it back.
    replaced.append((path, former))
    try:
        path.replace(former)
    except OSError:
        return False
    return True


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
