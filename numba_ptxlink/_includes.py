"""
What a CUDA C++ source can include: every header that may be read, found without a preprocessor.

NVRTC reports no dependencies. So conditions are ignored, and every header counts that any directory offers
under a name that occurs: more than is read, never less. Where a name is put together by macros, all files
below all directories count.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_FILES = 20_000
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_GAP = rb"(?:[ \t\f\v]|/\*.*?\*/)*"
# Anywhere in a line, and in comments and texts too: to take too much is harmless.
_DIRECTIVE = re.compile(
    rb"(?:#|%:|\?\?=)" + _GAP + rb"(?:include|include_next|import|embed)\b" + _GAP + rb"([^\r\n]*)"
    rb"|__has_(?:include|include_next|embed)\b" + _GAP + rb"(?:\(" + _GAP + rb")?([^\r\n]*)",
    re.DOTALL,
)
_LITERAL = re.compile(rb'"([^"\r\n]+)"|<([^>\r\n]+)>')
_DEFINED = re.compile(rb"\s*(?:$|\)|&&|\|\||//|/\*|,)")
_KNOWS_PATHS = re.compile(rb"__FILE__|__FILE_NAME__|__BASE_FILE__|__builtin_FILE|source_location|\bassert\b")


@dataclass(frozen=True)
class _Scan:
    """What one text says: the names it includes, and whether others are put together by macros."""

    digest: str
    names: frozenset[str]
    opaque: bool
    knows_paths: bool


_scans: dict[tuple[str, int, int, int], _Scan] = {}
_scans_lock = threading.Lock()


def manifest(
    source: bytes, folder: Path, include_dirs: Sequence[Path | str], headers: Mapping[str, str]
) -> tuple[str, ...] | None:
    """
    Return lines that change whenever something that *source* includes does; None where that cannot be told.

    Paths are among them only where the code can know them, by `__FILE__`.

    Args:
        source: The text.
        folder: The directory it is in, or is taken to be in.
        include_dirs: The directories that are searched, in order.
        headers: Headers held in memory, by name.
    """
    dirs = [Path(path) for path in include_dirs]
    held = {name: text.encode() for name, text in headers.items()}
    own = [(scan(text), folder) for text in (source, *held.values())]
    lines, scans = _follow(own, dirs)
    if len(scans) > _MOST_FILES:
        return None
    lines |= {f"held {name} {hashlib.sha256(text).hexdigest()}" for name, text in held.items()}
    if any(each.opaque for each in scans):
        trees = [_tree(path) for path in (folder, *dirs)]
        if None in trees:
            return None
        lines |= {f"tree {i} {tree}" for i, tree in enumerate(trees)}
    if any(each.knows_paths for each in scans):
        lines |= {f"path {i} {path.absolute()}" for i, path in enumerate((folder, *dirs))}
    return tuple(sorted(lines))


def _follow(own: Sequence[tuple[_Scan, Path]], dirs: Sequence[Path]) -> tuple[set[str], list[_Scan]]:
    """Return a line for every file that an include may mean, and what all texts say."""
    lines: set[str] = set()
    files: dict[Path, _Scan] = {}
    seen: set[tuple[str, Path]] = set()
    pending = list(own)
    while pending and len(files) <= _MOST_FILES:
        found, home = pending.pop()
        fresh = [name for name in found.names if (name, home) not in seen]
        seen.update((name, home) for name in fresh)
        for name, (place, directory) in product(fresh, enumerate((home, *dirs))):
            path = directory / name
            inner = files.get(path) or _scan_file(path)
            if inner is not None:
                lines.add(f"file {place} {name} {inner.digest}")
                if path not in files:
                    files[path] = inner
                    pending.append((inner, path.parent))
    return lines, [*(each for each, _ in own), *files.values()]


def scan(text: bytes) -> _Scan:
    """Read the directives out of *text*."""
    names: set[str] = set()
    opaque = False
    spliced = _SPLICE.sub(b"", text) if b"\\" in text else text
    for match in _DIRECTIVE.finditer(spliced):
        argument = match[1] if match[1] is not None else match[2]
        literal = _LITERAL.match(argument)
        if literal:
            names.add(os.fsdecode(literal[1] or literal[2]))
        elif match[1] is not None or not _DEFINED.match(argument):
            # A bare __has_include asks whether the compiler knows it.
            opaque = True
    return _Scan(
        hashlib.sha256(text).hexdigest(), frozenset(names), opaque, _KNOWS_PATHS.search(spliced) is not None
    )


def _scan_file(path: Path) -> _Scan | None:
    try:
        status = path.stat()
        key = (str(path), status.st_size, status.st_mtime_ns, status.st_ino)
        with _scans_lock:
            known = _scans.get(key)
        if known is None:
            known = scan(path.read_bytes())
            with _scans_lock:
                _scans[key] = known
    except OSError:
        return None
    return known


def _tree(top: Path) -> str | None:
    digest = hashlib.sha256()
    count = 0
    for folder, folders, files in os.walk(top, followlinks=True):
        folders.sort()
        # Links may lead in a circle.
        count += len(folders)
        for name in sorted(files):
            path = Path(folder, name)
            try:
                status = path.stat()
            except OSError:
                continue
            count += 1
            if count > _MOST_FILES:
                return None
            line = (str(path.relative_to(top)), status.st_size, status.st_mtime_ns)
            digest.update(repr(line).encode())
    return digest.hexdigest()
