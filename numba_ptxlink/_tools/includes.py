"""
Tell which files a CUDA C++ source can include, without running a preprocessor.

NVRTC reports no dependencies, so the scan takes more than is included: it ignores conditions, and takes every
file that any include directory has under a name that occurs. Where a macro makes the name, nothing is told.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink._locks import Lock
from numba_ptxlink.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MOST_FILES = 20_000
# Nanoseconds for which a file has to be unchanged before its times tell its content.
_SETTLED = 1_000_000_000
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_GAP = rb"(?:[ \t\f\v]|/\*.*?\*/)*"
# Both also match within lines, comments and strings: matching too much is harmless.
_DIRECTIVE = re.compile(
    rb"#" + _GAP + rb"(?:include|include_next|import|embed)\b" + _GAP + rb"([^\r\n]*)", re.DOTALL
)
_QUESTION = re.compile(
    rb"__has_(?:include|include_next|embed)\b" + _GAP + rb"(?:\(" + _GAP + rb")?([^\r\n]*)", re.DOTALL
)
_LITERAL = re.compile(rb'"([^"\r\n]+)"|<([^>\r\n]+)>')
# A bare __has_include tests for the operator itself and names no file.
_BARE = re.compile(rb"\s*(?:$|\)|&&|\|\||//|/\*|,)")
# Another spelling of "#".
_DIGRAPHS = (b"%:", b"??=")
_TIMES = (b"__TIME__", b"__DATE__", b"__TIMESTAMP__")
_PATHS = (b"__FILE", b"__BASE_FILE__", b"__builtin_FILE", b"source_location", b"assert")


@dataclass(frozen=True)
class _Scan:
    """
    What one file includes.

    Args:
        digest: A digest of its content.
        names: The names of files that it may include.
        opaque: Whether it may include others too, or tells the time of its compilation.
        knows_paths: Whether it can tell where it is.
    """

    digest: str
    names: frozenset[str]
    opaque: bool
    knows_paths: bool


@dataclass(frozen=True)
class Includes:
    """
    What a source can include.

    Args:
        files: The files.
        first: Those of them that a preprocessor would find, each the first in the search order for its name.
        key: Lines that change whenever one of them changes; None where that cannot be told, or the code tells
            the time. Paths are part of them only if the code can observe them, such as by `__FILE__`.
    """

    files: frozenset[str]
    first: frozenset[str]
    key: tuple[str, ...] | None


_scans: dict[tuple[object, ...], _Scan] = {}
_scans_lock = Lock()


def of(
    source: bytes,
    folder: Path,
    include_dirs: Sequence[Path | str] = (),
    headers: Mapping[str, str] | None = None,
) -> Includes:
    """
    Return what a source can include.

    Args:
        source: The source text.
        folder: The directory it is in, or is treated as being in.
        include_dirs: The include directories, in search order.
        headers: Headers in memory, by name.
    """
    texts = headers or {}
    search = _Search([*map(str, include_dirs)])
    held: dict[str, _Scan] = {}
    used: set[str] = set()
    lines: set[str] = set()
    own = _scan(source)
    search.pending.append((own, str(folder)))
    while search.pending and len(search.files) <= _MOST_FILES:
        scan, home = search.pending.pop()
        for name in scan.names:
            if name in texts:
                if name not in held:
                    held[name] = _scan(texts[name].encode())
                    search.pending.append((held[name], str(folder)))
                lines.add(f"held {scan.digest} {name} {held[name].digest}")
            found = list(search.find(name, home))
            used |= {place for _, place, _, _ in found}
            lines |= {f"file {scan.digest} {number} {name} {inner.digest}" for number, _, _, inner in found}
    files = {path: scan for path, scan in search.files.items() if scan is not None}
    scans = [own, *held.values(), *files.values()]
    if any(scan.knows_paths for scan in scans):
        lines |= {f"path {Path(path).absolute()}" for path in used}
    told = not search.pending and not any(scan.opaque for scan in scans)
    first = _first(search, [own, *held.values()], str(folder), texts)
    return Includes(frozenset(files), frozenset(first), tuple(sorted(lines)) if told else None)


def _first(search: _Search, own: Sequence[_Scan], folder: str, texts: Mapping[str, str]) -> set[str]:
    """Return the files that come first for a name of *own*, or of such a file."""
    first: set[str] = set()
    pending = [(scan, folder) for scan in own]
    while pending:
        scan, home = pending.pop()
        for name in scan.names - texts.keys():
            for _, _, path, inner in search.find(name, home):
                if path not in first:
                    first.add(path)
                    pending.append((inner, os.path.realpath(os.path.dirname(path))))  # noqa: PTH120 - as above
                break
    return first


class _Search:
    """
    The files that were looked for, each with its scan, and the scans whose names are still to be looked for.

    Args:
        places: The include directories.
    """

    def __init__(self, places: Sequence[str]) -> None:
        self.places = places
        self.files: dict[str, _Scan | None] = {}
        self.pending: list[tuple[_Scan, str]] = []
        # Resolving links and ".." makes a cycle of includes terminate.
        self._real = functools.cache(os.path.realpath)

    def find(self, name: str, home: str) -> Iterator[tuple[int, str, str, _Scan]]:
        """Yield the files called *name* from *home* on, in search order: number, directory, path and scan."""
        for number, place in enumerate((home, *self.places)):
            path = os.path.join(place, name)  # noqa: PTH118 - four times faster
            if path not in self.files:
                self.files[path] = new = _scan_file(path)
                if new is not None:
                    self.pending.append((new, self._real(os.path.dirname(path))))  # noqa: PTH120 - likewise
            if (scan := self.files[path]) is not None:
                yield number, place, path, scan


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


def _scan(text: bytes) -> _Scan:
    spliced = _SPLICE.sub(b"", text) if b"\\" in text else text
    questions = (match[1] for match in _QUESTION.finditer(spliced) if not _BARE.match(match[1]))
    literals = [_LITERAL.match(each) for each in (*_DIRECTIVE.findall(spliced), *questions)]
    return _Scan(
        digest=hashlib.sha256(text).hexdigest(),
        names=frozenset(os.fsdecode(match[1] or match[2]) for match in literals if match),
        opaque=None in literals or any(word in spliced for word in (*_DIGRAPHS, *_TIMES)),
        knows_paths=any(word in spliced for word in _PATHS),
    )


def _scan_file(path: str) -> _Scan | None:
    """Return the scan of the file at *path*, which is remembered; None where there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - four times faster
        # Programs set the time of modification back; the time of the last change is the system's own.
        key = (path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        with _scans_lock.held:
            scan = _scans.get(key)
        if scan is None:
            # Two changes at one tick of the clock look the same.
            settled = time.time_ns() - status.st_ctime_ns > _SETTLED
            scan = _scan(Path(path).read_bytes())
            if settled:
                with _scans_lock.held:
                    _scans[key] = scan
    except OSError:
        return None
    return scan
