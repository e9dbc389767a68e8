"""Write the files of one result: none half-written, and the last one last."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import working_directory
from numba_ptxlink.errors import ConfigError, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


def checked_path(option: str, given: Any) -> Path:
    """
    Return the path that is the value of an option.

    Raises:
        ConfigError: It is no path, or is relative to a working directory that was removed.
    """
    if isinstance(given, (str, os.PathLike)):
        # Half of a character has no bytes.
        with contextlib.suppress(UnicodeEncodeError):
            if 0 not in os.fsencode(given):
                path = Path(os.fsdecode(given))
                if not path.is_absolute():
                    working_directory()
                return path
    raise ConfigError(f"{option} is {shown(given)}; pass a path.")


def _delete(path: Path) -> bool:
    """Delete the file at *path*, and return whether that was possible."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def write(files: Mapping[Path, bytes], obsolete: Collection[Path] = ()) -> list[Path]:
    """
    Write *files*, each by an atomic rename, in order: a reader sees the old file or the new one.

    Those that have their content already keep their times, so that build tools leave what depends on them
    alone. The last one is always written, and tells these tools that all are up to date; *obsolete* is
    deleted before that. All contents are on the disk under temporary names before the first rename. What
    ends the process between two renames leaves the last of *files* as it was: let that one be the file that
    tells whether the others belong together.

    Returns:
        Those of *obsolete* that could not be deleted.

    Raises:
        OSError: A file could not be written. Its `filename` is the path out of *files*.
    """
    *others, last = files
    target = last
    staged: dict[Path, Path] = {}
    try:
        for target in [*(path for path in others if not has(path, files[path])), last]:
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            # Not derived from the target's name, which may have the greatest length already.
            staged[target] = target.with_name(f".ptxlink.{secrets.token_hex(8)}.tmp")
            _fill(staged[target], files[target])
        for target, path in staged.items():
            if target == last:
                stay = [each for each in obsolete if not _delete(each)]
            path.replace(target)
    except OSError as error:
        error.filename, error.filename2 = str(target), None
        raise
    finally:
        for path in staged.values():
            _delete(path)
    return stay


def has(path: Path, content: bytes) -> bool:
    """Return whether the file at *path* has this content."""
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def _fill(path: Path, content: bytes) -> None:
    # Not mkstemp: the file gets the permissions that the umask allows, as if it were opened for writing.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(content)


def depfile(target: Path, sources: Iterable[Path]) -> bytes:
    """
    Return the depfile of *target*, in the form of `gcc -MD -MP` that make, Ninja and CMake read.

    Args:
        target: What is out of date when one of *sources* is newer; its path as the build tool has it.
        sources: What it is made of. Each has an empty rule too, so that make goes on where one was deleted.
    """
    names = [_escaped(str(source)) for source in sources]
    rule = " \\\n  ".join([f"{_escaped(str(target))}:", *names])
    # With a percent sign it would be a pattern of targets.
    lines = [rule, *(f"\n{name}:" for name in names if "%" not in name), ""]
    # Paths that the locale does not decode have the bytes that they have on disk.
    return "\n".join(lines).encode(errors="surrogateescape")


def _escaped(path: str) -> str:
    # A backslash that is before anything else than a blank or a hash stands for itself.
    return re.sub(r"(\\*)([ #])", r"\1\1\\\2", path).replace(":", r"\:").replace("$", "$$")
