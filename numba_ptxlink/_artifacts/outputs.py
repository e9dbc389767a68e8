"""Write the files of an export: each by an atomic rename, and the manifest last."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import working_directory
from numba_ptxlink.errors import ConfigError, short_repr

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


def require_path(option: str, value: Any) -> Path:
    """
    Return the value of an option as a path.

    Raises:
        ConfigError: The value is not a path, or is relative to a working directory that was removed.
    """
    if isinstance(value, (str, os.PathLike)):
        # A path has no NUL character, and can be encoded, unlike a surrogate that stands for no byte.
        with contextlib.suppress(UnicodeEncodeError):
            if 0 not in os.fsencode(value):
                path = Path(os.fsdecode(value))
                if not path.is_absolute():
                    # Raises ConfigError if the directory was removed.
                    working_directory()
                return path
    raise ConfigError(f"{option} is {short_repr(value)}; pass a path.")


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

    Files that have their content already keep their times, so that build tools do not rebuild their
    dependents. The last file is always written, so that these tools see that the files are up to date. All
    contents are written to temporary files before the first rename, without fsync. If the process dies
    between two renames, some files are new and others old, and the last file is old. Pass the manifest last:
    its digests then differ from those of the new files, by which readers notice the mixture.

    Args:
        files: The content of each file, by its path.
        obsolete: The files to delete, before the last file is written.

    Returns:
        The members of *obsolete* that could not be deleted.

    Raises:
        OSError: A file could not be written. The error's `filename` is the path in *files*.
    """
    *earlier_paths, last_path = files
    # The path that is being written, which an error names.
    target = last_path
    temporary_paths: dict[Path, Path] = {}
    undeleted_paths: list[Path] = []
    try:
        for target in [*(path for path in earlier_paths if not has_content(path, files[path])), last_path]:
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            # Not derived from the target's name, which may already have the maximum length.
            temporary_paths[target] = target.with_name(f".ptxlink.{secrets.token_hex(8)}.tmp")
            _create(temporary_paths[target], files[target])
        for target, temporary_path in temporary_paths.items():
            if target == last_path:
                undeleted_paths = [path for path in obsolete if not _delete(path)]
            temporary_path.replace(target)
    except OSError as error:
        error.filename = str(target)
        error.filename2 = None
        raise
    finally:
        for temporary_path in temporary_paths.values():
            _delete(temporary_path)
    return undeleted_paths


def has_content(path: Path, content: bytes) -> bool:
    """Return whether there is a file at *path* with this content."""
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def _create(path: Path, content: bytes) -> None:
    """Create a file that does not exist yet."""
    # Not mkstemp: the file gets the permissions that the umask allows, as if it were opened for writing.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
        file.write(content)


def depfile(target: Path, sources: Iterable[Path]) -> bytes:
    """
    Return the depfile of *target*, in the form of `gcc -MD -MP` that make, Ninja and CMake read.

    Args:
        target: The path of the file that depends on *sources*, as the build tool spells it.
        sources: The files that *target* depends on. Each has an empty rule, too, so that make accepts it if
            it was deleted.
    """
    names = [_escape(str(source)) for source in sources]
    rule = " \\\n  ".join([f"{_escape(str(target))}:", *names])
    # For make, a target with a percent sign is a pattern.
    lines = [rule, *(f"\n{name}:" for name in names if "%" not in name), ""]
    # Paths that the locale cannot decode are written with their original bytes.
    return "\n".join(lines).encode(errors="surrogateescape")


def _escape(path: str) -> str:
    """Return *path* as a depfile spells it."""
    # "my file" becomes "my\ file". Backslashes are doubled only in front of a blank or a hash.
    return re.sub(r"(\\*)([ #])", r"\1\1\\\2", path).replace(":", r"\:").replace("$", "$$")
