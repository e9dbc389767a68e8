"""
Find every file that a CUDA C++ source can include, without running a preprocessor.

NVRTC reports no dependencies, so the scan over-approximates: it ignores conditions and takes every file that
any include directory has under a name that occurs. If a name is composed by macros, it takes all files below
all include directories.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_MOST_FILES = 20_000
# Nanoseconds for which a file has to be unchanged before its times tell its content.
_SETTLED = 1_000_000_000
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_GAP = rb"(?:[ \t\f\v]|/\*.*?\*/)*"
_WORD = _GAP + rb"(?:include|include_next|import|embed)\b" + _GAP + rb"([^\r\n]*)"
# Also matches within lines, comments and strings: matching too much is harmless. One pattern for each
# spelling of "#", since a search for a fixed prefix is many times faster.
_DIRECTIVES = tuple(
    (start, re.compile(re.escape(start) + _WORD, re.DOTALL)) for start in (b"#", b"%:", b"??=")
)
_QUESTION = re.compile(
    rb"__has_(?:include|include_next|embed)\b" + _GAP + rb"(?:\(" + _GAP + rb")?([^\r\n]*)", re.DOTALL
)
_LITERAL = re.compile(rb'"([^"\r\n]+)"|<([^>\r\n]+)>')
_BARE = re.compile(rb"\s*(?:$|\)|&&|\|\||//|/\*|,)")
_PATH_WORDS = (b"__FILE", b"__BASE_FILE__", b"__builtin_FILE", b"source_location", b"assert")


@dataclass(frozen=True)
class _Scan:
    """The result of scanning one file: the names it includes, and whether macros compose others."""

    digest: str
    names: frozenset[str]
    opaque: bool
    knows_paths: bool


_scans: dict[tuple[object, ...], _Scan] = {}
_scans_lock = Lock()


def manifest(
    source: bytes, folder: Path, include_dirs: Sequence[Path | str], headers: Mapping[str, str]
) -> tuple[str, ...] | None:
    """
    Return lines that change whenever an included file changes; None if there are too many files to tell.

    Paths are part of the lines only if the code can observe them, such as by `__FILE__`.

    Args:
        source: The source text.
        folder: The directory it is in, or is treated as being in.
        include_dirs: The include directories, in search order.
        headers: Headers in memory, by name.
    """
    dirs = [Path(path) for path in include_dirs]
    texts = {name: text.encode() for name, text in headers.items()}
    own = [(scan(text), folder) for text in (source, *texts.values())]
    lines, files, used = _follow(own, dirs)
    scans = [*(scanned for scanned, _ in own), *files.values()]
    if len(scans) > _MOST_FILES:
        return None
    lines |= {f"held {name} {hashlib.sha256(text).hexdigest()}" for name, text in texts.items()}
    if any(scanned.opaque for scanned in scans):
        trees = [_tree(path) for path in (folder, *dirs)]
        if None in trees:
            return None
        lines |= {f"tree {i} {tree}" for i, tree in enumerate(trees)}
        used |= {str(path) for path in (folder, *dirs)}
    if any(scanned.knows_paths for scanned in scans):
        lines |= {f"path {Path(path).absolute()}" for path in used}
    return tuple(sorted(lines))


def _follow(
    own: Sequence[tuple[_Scan, Path]], dirs: Sequence[Path]
) -> tuple[set[str], dict[str, _Scan], set[str]]:
    """Return a line for every file that may be included, their scans, and the directories with such files."""
    # Resolving links and ".." makes a cycle of includes terminate.
    real = functools.cache(os.path.realpath)
    lines: set[str] = set()
    used: set[str] = set()
    files: dict[str, _Scan] = {}
    seen: set[tuple[str, str, str]] = set()
    pending = [(scanned, str(home)) for scanned, home in own]
    while pending and len(files) <= _MOST_FILES:
        scanned, home = pending.pop()
        places = [("beside", home), *((str(i), str(path)) for i, path in enumerate(dirs))]
        for name, (place, directory) in product(scanned.names, places):
            if (name, place, directory) in seen:
                continue
            seen.add((name, place, directory))
            path = os.path.join(directory, name)  # noqa: PTH118 - four times faster
            inner = files.get(path) or _scan_file(path)
            if inner is not None:
                lines.add(f"file {place} {name} {inner.digest}")
                used.add(directory)
                if path not in files:
                    files[path] = inner
                    pending.append((inner, real(os.path.dirname(path))))  # noqa: PTH120 - four times faster
    return lines, files, used


def names_included(
    source: bytes, folder: Path, include_dirs: Sequence[Path | str], headers: Mapping[str, str]
) -> frozenset[str]:
    """
    Return every name that a source, or a file that it can include, may include.

    Args:
        source: The source text.
        folder: The directory it is in, or is treated as being in.
        include_dirs: The include directories, in search order.
        headers: Headers in memory, by name.
    """
    own = [(scan(text), folder) for text in (source, *(text.encode() for text in headers.values()))]
    _, files, _ = _follow(own, [Path(path) for path in include_dirs])
    return frozenset().union(
        *(scanned.names for scanned in (*(scanned for scanned, _ in own), *files.values()))
    )


def files_included(source: bytes, include_dirs: Sequence[Path]) -> list[Path]:
    """
    Return every file that a source can include which `working_directory.isolated` compiles.

    Args:
        source: The source text.
        include_dirs: The include directories.
    """
    _, files, _ = _follow([(scan(source), Path("/"))], include_dirs)
    return sorted(map(Path, files))


def included(
    source: bytes,
    folder: Path,
    names: Collection[str],
    include_dirs: Sequence[Path | str],
    headers: Mapping[str, str],
) -> dict[str, bytes]:
    """
    Return the files called one of *names* that a source includes, by path; of each the first in order.

    Args:
        source: The source text.
        folder: The directory it is in, or is treated as being in.
        names: File names without folders.
        include_dirs: The include directories, in search order.
        headers: Headers in memory, by name.
    """
    found: dict[str, bytes] = {}
    seen: set[str] = set()
    inner: _Scan | None
    pending: list[tuple[_Scan, str]] = [(scan(source), str(folder))]
    while pending and len(seen) <= _MOST_FILES:
        scanned, home = pending.pop()
        for name in scanned.names:
            if name in headers:
                path, inner, home_of = name, scan(headers[name].encode()), str(folder)
            else:
                paths = (os.path.join(place, name) for place in (home, *include_dirs))  # noqa: PTH118
                hits = ((path, hit) for path in paths if (hit := _scan_file(path)) is not None)
                path, inner = next(hits, ("", None))
                home_of = os.path.dirname(path)  # noqa: PTH120
            if inner is None or path in seen:
                continue
            seen.add(path)
            pending.append((inner, home_of))
            if os.path.basename(name) in names:  # noqa: PTH119
                found[path] = headers[name].encode() if name in headers else Path(path).read_bytes()
    return found


def folders(include_dirs: Sequence[Path | str] | Path | str) -> Sequence[Path | str]:
    """
    Return the directories *include_dirs*, which may be one.

    Raises:
        ConfigError: They are no paths.
    """
    given = (include_dirs,) if isinstance(include_dirs, (str, os.PathLike)) else include_dirs
    listed = tuple(given) if isinstance(given, Iterable) else (given,)
    for each in listed:
        if not isinstance(each, (str, os.PathLike)) or "\0" in os.fsdecode(each):
            raise ConfigError(f"include_dirs is {include_dirs!r}; pass a folder or a list of them.")
    return listed


def scan(text: bytes) -> _Scan:
    """Collect the include directives of *text*."""
    spliced = _SPLICE.sub(b"", text) if b"\\" in text else text
    directives = [
        match[1] for start, pattern in _DIRECTIVES if start in spliced for match in pattern.finditer(spliced)
    ]
    # A bare __has_include tests for the operator itself and names no file.
    questions = [match[1] for match in _QUESTION.finditer(spliced) if not _BARE.match(match[1])]
    literals = [_LITERAL.match(argument) for argument in (*directives, *questions)]
    return _Scan(
        digest=hashlib.sha256(text).hexdigest(),
        names=frozenset(os.fsdecode(match[1] or match[2]) for match in literals if match),
        opaque=None in literals,
        knows_paths=any(word in spliced for word in _PATH_WORDS),
    )


def _scan_file(path: str) -> _Scan | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - four times faster
        key = (path, *_stamp(status))
        with _scans_lock.held:
            scanned = _scans.get(key)
        if scanned is None:
            settled = _settled(status)
            scanned = scan(Path(path).read_bytes())
            if settled:
                with _scans_lock.held:
                    _scans[key] = scanned
    except OSError:
        return None
    return scanned


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    # Programs set the time of modification back; the time of the last change is the system's own.
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _settled(status: os.stat_result) -> bool:
    """Return whether a further change of the file would show: two at one tick of the clock look the same."""
    return time.time_ns() - status.st_ctime_ns > _SETTLED


def _tree(top: Path) -> str | None:
    digest = hashlib.sha256()
    count = 0
    for folder, folders, files in os.walk(top, followlinks=True):
        folders.sort()
        # Counting folders ends a cycle of links.
        count += len(folders)
        for name in sorted(files):
            path = Path(folder, name)
            try:
                status = path.stat()
                fresh = stat.S_ISREG(status.st_mode) and not _settled(status)
                known = hashlib.sha256(path.read_bytes()).hexdigest() if fresh else _stamp(status)
            except OSError:
                continue
            count += 1
            if count > _MOST_FILES:
                return None
            digest.update(repr((str(path.relative_to(top)), known)).encode())
    return digest.hexdigest()
