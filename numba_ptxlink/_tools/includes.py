"""
Find the files that a CUDA C++ source can include, without running a preprocessor.

NVRTC does not report the files that it includes. The scan may find more files than NVRTC includes: it ignores
conditions such as #if, and if several include directories contain the named file, it finds all of them. If a
directive names its file by a macro, the result has no cache key.
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

# The search ends after this number of files, and its result has no cache key.
_MAX_FILES = 20_000
# The scan of a file is reused only if the file was last changed longer ago than this, see `_scan_file`.
_SETTLED_NANOSECONDS = 1_000_000_000
# A backslash at the end of a line joins the next line to it.
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
# Blanks and comments between two tokens.
_GAP = rb"(?:[ \t\f\v]|/\*.*?\*/)*"
# The group is the operand and the rest of the line: `"a.h"` of `#include "a.h"`, `<b>)` of
# `__has_include(<b>)`. Matches anywhere in a line, also in comments and strings: further names are harmless.
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
# A file's name in quotes or angle brackets.
_LITERAL = re.compile(rb'"([^"\r\n]+)"|<([^>\r\n]+)>')
# A macro may be the name of a file: #define CONFIG "config.h", or without quotes, which another macro adds.
# A name without quotes has an extension that begins with c, h or i. "=" precedes the name if a flag defines
# the macro, see `find_includes`. Such names count for the list of files; a directive that uses the macro
# prevents the cache key all the same.
_FILE_IN_MACRO = re.compile(
    rb'#[ \t]*define\b[^\r\n"<]*?'
    rb'(?:"([^"\r\n]+\.\w+)"|<([^<>\r\n]+\.\w+)>|[\s=]([A-Za-z_./][\w./+-]*\.[chi]\w*))'
)
# Matches in flags that are joined by newlines, since the value of a flag may be the next item.
_FOLDER_FLAGS = re.compile(rb"^(?:-I|--include-path)[ =\n]?(.+)$", re.MULTILINE)
_FILE_FLAGS = re.compile(rb"^(?:-include|--pre-include)[ =\n]?(.+)$", re.MULTILINE)
# The text behind a bare __has_include, which names no file: `) && X` in `#if defined(__has_include) && X`.
_NO_OPERAND = re.compile(rb"\s*(?:$|\)|&&|\|\||//|/\*|,)")
# Other spellings of "#", and of the backslash that joins two lines. `_FILE_IN_MACRO` and `_SPLICE` do not
# match them, so a file that contains one may include names that a scan does not find.
_DIGRAPHS = (b"%:", b"??=", b"??/")
# Macros whose value is the time of compilation.
_TIME_MACROS = (b"__TIME__", b"__DATE__", b"__TIMESTAMP__")
# Names by which code gets the path of its file: `assert` uses __FILE__.
_PATH_NAMES = (b"__FILE", b"__BASE_FILE__", b"__builtin_FILE", b"source_location", b"assert")


class _Scan(NamedTuple):
    """
    The names that a source file may include.

    Args:
        digest: The SHA-256 digest of the content.
        names: The names of files that the file may include.
        prevents_key: Whether the file may include other names, or contains the time of compilation, so that
            no cache key describes its code.
        depends_on_path: Whether the code can depend on the path of the file.
    """

    digest: str
    names: tuple[str, ...]
    prevents_key: bool
    depends_on_path: bool


class _File(NamedTuple):
    """
    A file that a source can include.

    Args:
        scan: The scan of its content.
        version: The device, inode, size and times, as the function `version` returns them.
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
        files: The files; if one directive can mean several, they are in search order.
        key: Lines for a cache key, which change whenever one of the files changes; None if the scan may have
            missed a file, or if the code contains the time. The lines contain paths only if the code can
            depend on them, as by `__FILE__`.
        versions: The device, inode, size and times of each of *files*, as the function `version` returns
            them.
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
        headers: The texts of headers in memory, by name.
        flags: NVRTC's options, of which those that define macros, include files or add directories count.

    Raises:
        LinkError: A text has a character that NVRTC cannot read.
    """
    # Called for the error that `encode` raises for a name that NVRTC cannot read.
    for name in (*map(os.fsdecode, include_dirs), *(headers or ())):
        encode(name)
    header_scans = {name: _scan(encode(text)) for name, text in (headers or {}).items()}
    flag_text = b"\n".join(map(encode, flags))
    # A macro in the flags may be the name of a file. To let `_scan` find it, write each flag as a macro's
    # definition, such as '#define -DCONFIG="a.h"'; also flags without "-D", since "-D" and 'CONFIG="a.h"' may
    # be two items.
    directives = [b'#include "%b"' % name for name in _FILE_FLAGS.findall(flag_text)]
    directives += [b"#define %b" % flag for flag in flag_text.split(b"\n")]
    search = _Search([*include_dirs, *map(os.fsdecode, _FOLDER_FLAGS.findall(flag_text))], header_scans)
    scans = [_scan(source), _scan(b"\n".join(directives)), *header_scans.values()]
    is_complete = search.run([(scan, str(folder)) for scan in scans])
    files = search.files
    scans += (file.scan for file in files.values())
    key_lines = search.key_lines()
    if any(scan.depends_on_path for scan in scans):
        key_lines |= {f"path {Path(path).absolute()}" for path in files}
    has_key = is_complete and not any(scan.prevents_key for scan in scans)
    versions = tuple(file.version for file in files.values())
    return Includes(tuple(files), tuple(sorted(key_lines)) if has_key else None, versions)


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
        self._header_key_lines: set[str] = set()
        # By the identity of a file. `#pragma once` has an effect on one file with two names, but not on two
        # files with equal content, so the key has to distinguish these cases.
        self._file_key_lines: dict[tuple[int, ...], set[str]] = {}
        self._read, self._real_path = functools.cache(_scan_file), functools.cache(os.path.realpath)

    def run(self, pending: list[tuple[_Scan, str]]) -> bool:
        """
        Search for the files that sources include, and for those that these include.

        Args:
            pending: The scan and the folder of each source; the search empties this list.

        Returns:
            False if the search ended early, after `_MAX_FILES`.
        """
        # Breadth-first: the files that one directive can mean are recorded, in search order, before the files
        # that these include.
        while pending and len(self.files) <= _MAX_FILES:
            scan, folder = pending.pop(0)
            for name in scan.names:
                if name in self._header_scans:
                    digest = self._header_scans[name].digest
                    self._header_key_lines.add(f"header {scan.digest} {name} {digest}")
                pending += self._find(scan, folder, name)
        return not pending

    def _find(self, scan: _Scan, folder: str, name: str) -> Iterator[tuple[_Scan, str]]:
        """
        Record the files that a directive can mean; yield the scan and the folder of each new file.

        Args:
            scan: The scan of the source that contains the directive.
            folder: The folder of this source.
            name: The name in the directive, such as "a.h".
        """
        for position, directory in enumerate((folder, *self._include_dirs)):
            path = os.path.join(directory, name)  # noqa: PTH118 - four times faster
            if (file := self._read(path)) is None:
                continue
            # The position identifies the directory in the key. The directory's path is not in the key, so
            # that equal files in other places have an equal key.
            line = f"file {scan.digest} {position} {name} {file.scan.digest}"
            self._file_key_lines.setdefault(file.identity, set()).add(line)
            if path not in self.files:
                self.files[path] = file
                # Resolve links and "..": otherwise files that include each other would get ever longer paths.
                yield file.scan, self._real_path(os.path.dirname(path))  # noqa: PTH120 - faster

    def key_lines(self) -> set[str]:
        """
        Return the items of a key: the names by which each file was found, and its digest.

        One item has all names of a file, so that the key shows which names mean the same file.
        """
        return self._header_key_lines | {"\n".join(sorted(lines)) for lines in self._file_key_lines.values()}


def version(status: os.stat_result) -> tuple[int, ...]:
    """Return the device, inode, size and times of a file, which change whenever the file is written."""
    # A program may set st_mtime, the time of the last modification, back, but not st_ctime.
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def check_include_dirs(include_dirs: Sequence[Path | str] | Path | str) -> Sequence[Path | str]:
    """
    Return *include_dirs* as a sequence; a single path becomes a sequence of one.

    Raises:
        ConfigError: An item is not a path.
    """
    paths = (include_dirs,) if isinstance(include_dirs, (str, os.PathLike)) else include_dirs
    directories = tuple(paths) if isinstance(paths, Iterable) else (paths,)
    for path in directories:
        if not isinstance(path, (str, os.PathLike)) or "\0" in os.fsdecode(path):
            raise ConfigError(f"include_dirs is {include_dirs!r}; pass a folder or a list of them.")
    return directories


def join_lines(text: bytes) -> bytes:
    """Return *text* with each line that ends in a backslash joined to the next line."""
    return _SPLICE.sub(b"", text) if b"\\" in text else text


def encode(text: str) -> bytes:
    """
    Return *text* as NVRTC reads it.

    Raises:
        LinkError: The text has a NUL, where NVRTC would stop reading, or half of a surrogate pair.
    """
    try:
        code = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise LinkError(f"{text[:80]!r} for NVRTC is not valid Unicode ({error}); correct it.") from error
    if b"\0" in code:
        raise LinkError(f"{text[:80]!r} for NVRTC has a NUL character; remove it.")
    return code


def _scan(text: bytes) -> _Scan:
    """Return the scan of a source's *text*."""
    joined = join_lines(text)
    operands = (operand for operand in _DIRECTIVE.findall(joined) if not _NO_OPERAND.match(operand))
    # An operand that is a macro gives None in the list.
    literals = [_LITERAL.match(operand) for operand in operands]
    matches = [match for match in (*literals, *_FILE_IN_MACRO.finditer(joined)) if match]
    return _Scan(
        digest=hashlib.sha256(text).hexdigest(),
        # A pattern has a group for each form of a name, "a.h" and <a.h>; `lastindex` is the matched group's.
        names=tuple(dict.fromkeys(os.fsdecode(match[match.lastindex or 0]) for match in matches)),
        prevents_key=None in literals or any(word in joined for word in (*_DIGRAPHS, *_TIME_MACROS)),
        depends_on_path=any(word in joined for word in _PATH_NAMES),
    )


def _scan_file(path: str) -> _File | None:
    """Return the file at *path*; None if there is none. Scans of unchanged files are reused."""
    try:
        status = os.stat(path)  # noqa: PTH116 - four times faster
        # Two changes within one tick of the clock have the same times: do not reuse the scan of a new file.
        is_settled = time.time_ns() - status.st_ctime_ns > _SETTLED_NANOSECONDS
        scan = _scan_unchanged if is_settled else _scan_unchanged.__wrapped__
        return _File(scan(path, *version(status)), version(status))
    except OSError:
        return None


@functools.cache
def _scan_unchanged(path: str, *_: int) -> _Scan:
    """Return the scan of the file at *path*; its `version` is a part of the key of `functools.cache`."""
    return _scan(Path(path).read_bytes())
