"""
Tell which files a CUDA C++ source can include, without running a preprocessor; bring what NVRTC has not.

NVRTC reports no dependencies, so the scan takes more than is included: it ignores conditions, and takes every
file that any include directory has under a name that occurs. Where a macro makes the name, nothing is told.

NVRTC has the functions of C that GPUs can call built in, without the headers of the standard library. CUDA's
C++ library has most of these.
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

from . import find

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_FILES = 20_000
# Nanoseconds for which a file has to be unchanged before its times tell its content.
_SETTLED = 1_000_000_000
_SPLICE = re.compile(rb"\\[ \t]*\r?\n")
_GAP = rb"(?:[ \t\f\v]|/\*.*?\*/)*"
# It also matches within lines, comments and strings: matching too much is harmless.
_NAMED = re.compile(
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
_BARE = re.compile(rb"\s*(?:$|\)|&&|\|\||//|/\*|,)")
# Other spellings of "#", and of the backslash that joins two lines.
_DIGRAPHS = (b"%:", b"??=", b"??/")
_TIMES = (b"__TIME__", b"__DATE__", b"__TIMESTAMP__")
_PATHS = (b"__FILE", b"__BASE_FILE__", b"__builtin_FILE", b"source_location", b"assert")


# POSIX.1-2024, <math.h>.
_MATH = """\
#if !defined(M_PI)
#define M_E 2.71828182845904523536
#define M_LOG2E 1.44269504088896340736
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
"""
# What is not built in of the headers that need no library.
_WITHOUT_LIBRARY = {
    **dict.fromkeys(("assert.h", "stdbool.h", "stdio.h", "stdlib.h", "string.h"), ""),
    "math.h": _MATH,
    "stddef.h": "typedef decltype(sizeof(0)) size_t;\ntypedef decltype((char*)0 - (char*)0) ptrdiff_t;\n",
    "cstdio": "namespace std {\nusing ::printf;\n}\n",
}
_USED = "namespace cuda {\nnamespace std {}\n}\nnamespace std {\nusing namespace cuda::std;\n}\n"
_NO_FILE = re.compile(r'open source file "([^"\n]+)"')
_HOST_CODE = "host functions are not allowed in JIT mode"
_BY_NVCC = "`nvcc -dc` and link the object"


class _Scan(NamedTuple):
    """
    What one file includes.

    Args:
        digest: A digest of its content.
        names: The names of files that it may include.
        opaque: Whether it may include others too, or tells the time of its compilation.
        knows_paths: Whether it can tell where it is.
    """

    digest: str
    names: tuple[str, ...]
    opaque: bool
    knows_paths: bool


class _File(NamedTuple):
    """
    A file that a source can include.

    Args:
        scan: The scan of its content.
        version: What `version` returns.
    """

    scan: _Scan
    version: tuple[int, ...]

    @property
    def identity(self) -> tuple[int, ...]:
        """Its device and inode: `#pragma once` includes a file once, by whatever paths it is found."""
        return self.version[:2]


class Includes(NamedTuple):
    """
    What a source can include.

    Args:
        files: The files; of those that one directive can mean, in search order.
        key: Lines that change whenever one of them changes; None where that cannot be told, or the code tells
            the time. Paths are part of them only if the code can observe them, such as by `__FILE__`.
        versions: What `version` returns of each file.
    """

    files: tuple[str, ...]
    key: tuple[str, ...] | None
    versions: tuple[tuple[int, ...], ...] = ()


def of(
    source: bytes,
    folder: Path,
    include_dirs: Sequence[Path | str] = (),
    headers: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
) -> Includes:
    """
    Return what a source can include.

    Args:
        source: The source text.
        folder: The directory it is in, or is treated as being in.
        include_dirs: The include directories, in search order.
        headers: Headers in memory, by name.
        flags: NVRTC's options, of which macros, folders and files to include count.
    """
    for name in (*map(os.fsdecode, include_dirs), *(headers or ())):
        encoded(name)
    texts = {name: _scan(encoded(text)) for name, text in (headers or {}).items()}
    files: dict[str, _File] = {}
    lines: set[str] = set()
    # Two names of one file differ from two files with one content: `#pragma once` tells them apart.
    directives_of: dict[tuple[int, ...], set[str]] = {}
    at, real = functools.cache(_scan_file), functools.cache(os.path.realpath)
    told = b"\n".join(map(encoded, flags))
    include_dirs = [*include_dirs, *map(os.fsdecode, _FOLDER_FLAGS.findall(told))]
    # Any flag may define a macro.
    directives = [b'#include "%b"' % name for name in _FILE_FLAGS.findall(told)]
    directives += [b"#define %b" % flag for flag in told.split(b"\n")]
    first = [_scan(source), _scan(b"\n".join(directives)), *texts.values()]
    pending = [(text, str(folder)) for text in first]
    scans = [scan for scan, _ in pending]
    while pending and len(files) <= _MOST_FILES:
        # What a file includes that is found first, is found before what one of its name includes.
        scan, home = pending.pop(0)
        for name in scan.names:
            if name in texts:
                lines.add(f"held {scan.digest} {name} {texts[name].digest}")
            for number, place in enumerate((home, *include_dirs)):
                path = os.path.join(place, name)  # noqa: PTH118 - four times faster
                if (inner := at(path)) is None:
                    continue
                directive = f"file {scan.digest} {number} {name} {inner.scan.digest}"
                directives_of.setdefault(inner.identity, set()).add(directive)
                if path not in files:
                    files[path] = inner
                    # Resolving links and ".." makes a circle of includes terminate.
                    pending.append((inner.scan, real(os.path.dirname(path))))  # noqa: PTH120 - likewise
    lines |= {"\n".join(sorted(each)) for each in directives_of.values()}
    scans += (file.scan for file in files.values())
    if any(scan.knows_paths for scan in scans):
        lines |= {f"path {Path(path).absolute()}" for path in files}
    complete = not pending and not any(scan.opaque for scan in scans)
    return Includes(
        tuple(files),
        tuple(sorted(lines)) if complete else None,
        tuple(file.version for file in files.values()),
    )


def version(status: os.stat_result) -> tuple[int, ...]:
    """Return the device, inode, size and times of a file, which change whenever it is written to."""
    # Programs set the time of modification back; the time of the last change is the system's own.
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


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


def spliced(text: bytes) -> bytes:
    """Return *text* with the lines joined that end in a backslash."""
    return _SPLICE.sub(b"", text) if b"\\" in text else text


def encoded(text: str) -> bytes:
    """
    Return *text* as NVRTC reads it.

    Raises:
        LinkError: It has a NUL, where NVRTC would stop reading, or half of a character.
    """
    try:
        code = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise LinkError(f"{text[:80]!r} for NVRTC is not valid Unicode ({error}); correct it.") from error
    if b"\0" in code:
        raise LinkError(f"{text[:80]!r} for NVRTC has a NUL character; remove it.")
    return code


def _scan(text: bytes) -> _Scan:
    whole = spliced(text)
    literals = [_LITERAL.match(each) for each in _NAMED.findall(whole) if not _BARE.match(each)]
    named = [match for match in (*literals, *_IN_MACRO.finditer(whole)) if match]
    return _Scan(
        digest=hashlib.sha256(text).hexdigest(),
        names=tuple(dict.fromkeys(os.fsdecode(match[match.lastindex or 0]) for match in named)),
        opaque=None in literals or any(word in whole for word in (*_DIGRAPHS, *_TIMES)),
        knows_paths=any(word in whole for word in _PATHS),
    )


def _scan_file(path: str) -> _File | None:
    """Return the file at *path*, whose scan is remembered; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - four times faster
        # Two changes at one tick of the clock look the same.
        settled = time.time_ns() - status.st_ctime_ns > _SETTLED
        scan = _scan_unchanged if settled else _scan_unchanged.__wrapped__
        return _File(scan(path, *version(status)), version(status))
    except OSError:
        return None


@functools.cache
def _scan_unchanged(path: str, *_: int) -> _Scan:
    return _scan(Path(path).read_bytes())


def standard_headers(
    log: str, include_dirs: Sequence[Path | str], headers: Mapping[str, str]
) -> dict[str, str]:
    """
    Return the standard headers, by name; none if the lack of one is not why NVRTC refused a source.

    What a directory has comes before them. What NVRTC takes without them, such as a source that tests for
    them, is never given them.

    Args:
        log: NVRTC's log.
        include_dirs: The include directories, in search order.
        headers: Headers in memory, by name.
    """
    missing = _NO_FILE.search(log)
    places = [Path(path) for path in include_dirs]
    texts = dict(_WITHOUT_LIBRARY)
    for path in (path for place in places for path in (place / "cuda" / "std").glob("[a-z]*")):
        text = f"#include <cuda/std/{path.name}>\n"
        texts[path.name] = f"{_MATH if path.name == 'cmath' else ''}{text}{_USED}"
        if path.name.startswith("c"):
            texts.setdefault(f"{path.name[1:]}.h", text)
    # CUDA's C++ library includes <version>, the host's, in the middle of its own configuration.
    texts["version"] = ""
    if missing is None or missing[1] not in texts:
        return {}
    own = {name for name in texts if name in headers or any((place / name).is_file() for place in places)}
    return {name: f"#pragma once\n{text}" for name, text in texts.items() if name not in own}


def cure(log: str) -> str:
    """Return how to correct what NVRTC refused for want of a header or the host, "" if that is not why."""
    if missing := _NO_FILE.search(log):
        return (
            f"Name the folder of {missing[1]} by include_dirs, or -I; of a file of link= its own alone "
            "is searched. Of the standard library NVRTC has what CUDA's C++ library has, which "
            f"{find.package('nvidia-cuda-cccl')} installs: compile a file that needs more of the host with "
            f"{_BY_NVCC}."
        )
    if "invalid value for --std" in log:
        return 'Give the C++ standard as text, such as cxx_standard="c++20".'
    if "--gpu-architecture" in log:
        return f"This NVRTC generates no code for that GPU; CUDA 12's knows older ones: `{find.install(12)}`."
    if _HOST_CODE in log:
        return (
            "NVRTC compiles code of the GPU alone: mark functions that it calls with __device__, and compile "
            f"a file that has code of the host, such as main, with {_BY_NVCC}. Of headers that declare it, "
            "such as cuda.h, nvrtc_flags=['-default-device'] makes code of the GPU."
        )
    return ""
