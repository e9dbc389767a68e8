"""
Find the files that a CUDA C++ source can include, without running a preprocessor.

NVRTC reports no dependencies, so the scan finds more than is included: it ignores conditions, and finds a
file of each name that occurs in every include directory. If a name results from a macro, the result has no
key.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink.errors import ConfigError, LinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_MAX_FILES = 20_000
# The scan of a file that has not changed for this time is identified by the file's times.
_SETTLED_NANOSECONDS = 1_000_000_000
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_GAP = rb"(?:[ \t\f\v]|/\*.*?\*/)*"
# Matches within lines, comments and strings too: matching too much is harmless.
_DIRECTIVE = re.compile(
    rb"(?:(?:#|%:|\?\?=)"
    + _GAP
    + rb"(?:include|include_next|import|embed)|__has_(?:include|include_next|embed))\b"
    + _GAP
    + rb"(?:\("
    + _GAP
    + rb")?([^\r\n]*)",
    re.DOTALL,
)
_LITERAL = re.compile(rb'"([^"\r\n]+)"|<([^>\r\n]+)>')
# A macro may be the name of a file: #define CONFIG "config.h", or without quotes, which another macro adds.
_IN_MACRO = re.compile(
    rb'#[ \t]*define\b[^\r\n"<]*?'
    rb'(?:"([^"\r\n]+\.\w+)"|<([^<>\r\n]+\.\w+)>|[\s=]([A-Za-z_./][\w./+-]*\.[chi]\w*))'
)
_FOLDER_FLAGS = re.compile(rb"^(?:-I|--include-path)[ =\n]?(.+)$", re.MULTILINE)
_FILE_FLAGS = re.compile(rb"^(?:-include|--pre-include)[ =\n]?(.+)$", re.MULTILINE)
# A bare __has_include tests for the operator itself and names no file.
_NO_OPERAND = re.compile(rb"\s*(?:$|\)|&&|\|\||//|/\*|,)")
# Other spellings of "#", and of the backslash that joins two lines.
_DIGRAPHS = (b"%:", b"??=", b"??/")
_TIMES = (b"__TIME__", b"__DATE__", b"__TIMESTAMP__")
_PATHS = (b"__FILE", b"__BASE_FILE__", b"__builtin_FILE", b"source_location", b"assert")


class _Scan(NamedTuple):
    """
    The includes of a file.

    Args:
        digest: A digest of its content.
        names: The names of files that it may include.
        has_unknown_names: Whether it may include files of other names, or contains the time of compilation.
        depends_on_path: Whether its code can depend on its path.
    """

    digest: str
    names: tuple[str, ...]
    has_unknown_names: bool
    depends_on_path: bool


class _File(NamedTuple):
    """
    A file that a source can include.

    Args:
        scan: The scan of its content.
        version: The version, as `version` returns it.
    """

    scan: _Scan
    version: tuple[int, ...]

    @property
    def identity(self) -> tuple[int, ...]:
        """The device and inode: `#pragma once` includes a file once, by whatever paths it is found."""
        return self.version[:2]


class Includes(NamedTuple):
    """
    The files that a source can include.

    Args:
        files: The files; files that one directive can mean are in search order.
        key: Lines that change whenever one of the files changes; None if that cannot be known, or if the code
            contains the time. The lines contain paths only if the code can depend on them, as by `__FILE__`.
        versions: The version of each file, as `version` returns it.
    """

    files: tuple[str, ...]
    key: tuple[str, ...] | None
    versions: tuple[tuple[int, ...], ...] = ()


def find_includes(
    source: bytes,
    folder: Path,
    include_dirs: Sequence[Path | str] = (),
    headers: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> Includes:
    """
    Return the files that a source can include.

    Args:
        source: The source text.
        folder: The directory of the source; for source in memory, the one that is searched first.
        include_dirs: The include directories, in search order.
        headers: Headers in memory, by name.
        flags: NVRTC's options: macros, folders and included files count.
    """
    for name in (*map(os.fsdecode, include_dirs), *(headers or ())):
        encode(name)
    header_scans = {name: _scan(encode(text)) for name, text in (headers or {}).items()}
    flag_text = b"\n".join(map(encode, flags))
    # Any flag may define a macro.
    directives = [b'#include "%b"' % name for name in _FILE_FLAGS.findall(flag_text)]
    directives += [b"#define %b" % flag for flag in flag_text.split(b"\n")]
    search = _Search([*include_dirs, *map(os.fsdecode, _FOLDER_FLAGS.findall(flag_text))], header_scans)
    scans = [_scan(source), _scan(b"\n".join(directives)), *header_scans.values()]
    is_complete = search.run([(scan, str(folder)) for scan in scans])
    files = search.files
    scans += (file.scan for file in files.values())
    lines = search.key_lines()
    if any(scan.depends_on_path for scan in scans):
        lines |= {f"path {Path(path).absolute()}" for path in files}
    has_key = is_complete and not any(scan.has_unknown_names for scan in scans)
    versions = tuple(file.version for file in files.values())
    return Includes(tuple(files), tuple(sorted(lines)) if has_key else None, versions)


class _Search:
    """
    A search for the files that sources can include.

    Args:
        include_dirs: The include directories, in search order.
        header_scans: The scans of headers in memory, by name.

    Attributes:
        files: The files that were found, by path.
    """

    def __init__(self, include_dirs: Sequence[Path | str], header_scans: Mapping[str, _Scan]) -> None:
        self.files: dict[str, _File] = {}
        self._include_dirs = include_dirs
        self._header_scans = header_scans
        self._header_lines: set[str] = set()
        # Two names of one file differ from two files with one content: `#pragma once` distinguishes them.
        self._file_lines: dict[tuple[int, ...], set[str]] = {}
        self._read, self._real_path = functools.cache(_scan_file), functools.cache(os.path.realpath)

    def run(self, pending: list[tuple[_Scan, str]]) -> bool:
        """Search for the includes of *pending*, pairs of a scan and its folder; return False if too many."""
        # Breadth-first, so that headers are recorded in search order.
        while pending and len(self.files) <= _MAX_FILES:
            scan, folder = pending.pop(0)
            for name in scan.names:
                if name in self._header_scans:
                    digest = self._header_scans[name].digest
                    self._header_lines.add(f"held {scan.digest} {name} {digest}")
                pending += self._find(scan, folder, name)
        return not pending

    def _find(self, scan: _Scan, folder: str, name: str) -> Iterator[tuple[_Scan, str]]:
        """Record the files that *name* can mean in a file of *folder*; yield the new ones."""
        for number, directory in enumerate((folder, *self._include_dirs)):
            path = os.path.join(directory, name)  # noqa: PTH118 - four times faster
            if (file := self._read(path)) is None:
                continue
            line = f"file {scan.digest} {number} {name} {file.scan.digest}"
            self._file_lines.setdefault(file.identity, set()).add(line)
            if path not in self.files:
                self.files[path] = file
                # With links and ".." resolved, cyclic includes end.
                yield file.scan, self._real_path(os.path.dirname(path))  # noqa: PTH120 - likewise

    def key_lines(self) -> set[str]:
        """Return the lines of a key: all names that files were found by, and their digests."""
        return self._header_lines | {"\n".join(sorted(lines)) for lines in self._file_lines.values()}


def version(status: os.stat_result) -> tuple[int, ...]:
    """Return the device, inode, size and times of a file, which change whenever the file is written."""
    # Programs may set the time of modification back, but not the time of the last change.
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def folders(include_dirs: Sequence[Path | str] | Path | str) -> Sequence[Path | str]:
    """
    Return the directories *include_dirs*; a single path is one directory.

    Raises:
        ConfigError: A directory is no path.
    """
    paths = (include_dirs,) if isinstance(include_dirs, (str, os.PathLike)) else include_dirs
    directories = tuple(paths) if isinstance(paths, Iterable) else (paths,)
    for path in directories:
        if not isinstance(path, (str, os.PathLike)) or "\0" in os.fsdecode(path):
            raise ConfigError(f"include_dirs is {include_dirs!r}; pass a folder or a list of them.")
    return directories


def join_lines(text: bytes) -> bytes:
    """Return *text* with lines that end in a backslash joined to the next one."""
    return _SPLICE.sub(b"", text) if b"\\" in text else text


def encode(text: str) -> bytes:
    """
    Return *text* as NVRTC reads it.

    Raises:
        LinkError: The text has a NUL, where NVRTC would stop reading, or half of a character.
    """
    try:
        code = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise LinkError(f"{text[:80]!r} for NVRTC is not valid Unicode ({error}); correct it.") from error
    if b"\0" in code:
        raise LinkError(f"{text[:80]!r} for NVRTC has a NUL character; remove it.")
    return code


def _scan(text: bytes) -> _Scan:
    joined = join_lines(text)
    operands = (operand for operand in _DIRECTIVE.findall(joined) if not _NO_OPERAND.match(operand))
    literals = [_LITERAL.match(operand) for operand in operands]
    matches = [match for match in (*literals, *_IN_MACRO.finditer(joined)) if match]
    return _Scan(
        digest=hashlib.sha256(text).hexdigest(),
        names=tuple(dict.fromkeys(os.fsdecode(match[match.lastindex or 0]) for match in matches)),
        has_unknown_names=None in literals or any(word in joined for word in (*_DIGRAPHS, *_TIMES)),
        depends_on_path=any(word in joined for word in _PATHS),
    )


def _scan_file(path: str) -> _File | None:
    """Return the file at *path*; None if there is none. Scans of unchanged files are reused."""
    try:
        status = os.stat(path)  # noqa: PTH116 - four times faster
        # Two changes within one tick of the clock have the same times.
        is_settled = time.time_ns() - status.st_ctime_ns > _SETTLED_NANOSECONDS
        scan = _scan_unchanged if is_settled else _scan_unchanged.__wrapped__
        return _File(scan(path, *version(status)), version(status))
    except OSError:
        return None


@functools.cache
def _scan_unchanged(path: str, *_: int) -> _Scan:
    return _scan(Path(path).read_bytes())
