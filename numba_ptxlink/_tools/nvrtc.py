"""Compile CUDA C++ with NVRTC: its arguments, cache keys and errors; `isolated` calls it."""

from __future__ import annotations

import ctypes
import functools
import logging
import platform
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch
from numba_ptxlink._formats.kinds import CUBIN, KINDS, LTOIR, PTX
from numba_ptxlink.errors import LinkError

from . import find, isolated, standard_headers
from .source_options import SourceOptions

if TYPE_CHECKING:
    from .includes import Includes

log = logging.getLogger(__name__)

INCLUDE_DIR = Path(__file__).parents[1] / "include"
"""The headers of this package, which the headers of exports include."""

NOWHERE = Path("/")
"""The *folder* of `compile_source` for source that is no file and has no headers beside it."""

# Flags for line information, which contains the paths of files.
_LINE_FLAGS = ("--generate-line-info", "-lineinfo", "--device-debug", "-G")
# With one of these options, a compilation to PTX or a cubin changes the results of later compilations in the
# process; a compilation to LTO-IR does not.
_ALTERING_FLAGS = re.compile("-G$|--device-debug$|--Ofast-compile|-Ofc|-Xnvvm")
# Matches a name, such as "f", "::n::x" or "f<int>", and no cast, such as "static_cast<void (*)()>(f)". NVRTC
# returns the symbol of an expression that is an address. So a name gets an "&", without which the name of a
# function would be an address, but not the name of a variable.
_NAME_EXPRESSION = re.compile(r"\s*(?!\w+_cast\b)(?:::)?[A-Za-z_]")
# Options that read or write files that a key does not cover, such as "-include", or that print the time: with
# one of them, the result is not cached.
_UNKEYED_FLAGS = re.compile("-I|--?[a-z-]*(include|pch|time)")


def version() -> tuple[int, int]:
    """Return NVRTC's version as (major, minor)."""
    return find.version("nvrtc", "nvrtcVersion")


@functools.cache
def supported_archs() -> tuple[Arch, ...]:
    """Return the architectures that NVRTC generates code for, without variants such as sm_90a, ascending."""
    library, count = find.load_library("nvrtc"), ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    # The number 103 is compute capability 10.3.
    return tuple(Arch(*divmod(number, 10)) for number in sorted(numbers))


def archs_of(release: tuple[int, int]) -> tuple[Arch, ...]:
    """Return the architectures of CUDA *release*; () if NVRTC is missing, or of another release."""
    try:
        return supported_archs() if version() == release else ()
    except LinkError:
        return ()


def toolkit_include_dirs() -> tuple[Path, ...]:
    """Return the include directories of the CUDA toolkit and of CCCL installed beside NVRTC."""
    locate = find.pathfinder().locate_nvidia_header_directory
    directories = filter(None, map(locate, ("cudart", "cccl")))
    return tuple(dict.fromkeys(Path(directory.abs_path) for directory in directories))


def compile_source(
    source: str | bytes,
    name: str,
    arch: Arch,
    options: SourceOptions = SourceOptions(),  # noqa: B008 - tuples cannot be changed
    *,
    output: str = PTX,
    folder: Path | None = None,
) -> cache.Entry:
    """
    Compile CUDA C++ to relocatable code with NVRTC. Needs no driver; thread-safe.

    If NVRTC rejects the source for the lack of a standard header, the source is compiled again with the
    headers of CUDA's C++ library.

    Args:
        source: A translation unit.
        name: The name of the source in the log.
        arch: The GPU to generate code for.
        options: The include directories, headers, macros and further options.
        output: "ptx", "ltoir" or "cubin".
        folder: The directory of the source file, which `#include "..."` searches first and `__FILE__`
            contains. For source that is no file: None to search the directory in *name*, which may be the
            working directory, or NOWHERE to search only the include directories.

    Returns:
        The code; and as metadata "log", NVRTC's warnings and remarks, and "lowered_names", the symbol of each
        name expression.

    Raises:
        LinkError: NVRTC rejected the source or an option. The error has the log.
    """
    if isinstance(source, str):
        source = source.encode(errors="surrogateescape")
    _check_text(source, name)
    unit = _Unit(source, name, arch, options, output, folder)
    try:
        return _compile_cached(unit)
    except LinkError as error:
        std_headers = standard_headers.standard_headers(
            error.log, options.include_dirs, dict(options.headers)
        )
        if not std_headers:
            raise
    headers = (*options.headers, *std_headers.items())
    return _compile_cached(unit._replace(options=options._replace(headers=headers)))


class _Unit(NamedTuple):
    """A translation unit: the arguments of `compile_source`."""

    source: bytes
    name: str
    arch: Arch
    options: SourceOptions
    output: str
    folder: Path | None

    @property
    def program_name(self) -> str:
        """
        The name of the program for NVRTC: the path of the source, if it is a file.

        NVRTC searches the directory in this name for #include "..." only. An include directory would be
        searched for #include <...> as well.
        """
        return self.name if self.folder is None else str(self.folder / self.name)

    def find_includes(self) -> Includes:
        """Return the files that the source can include now."""
        return self.options.find_includes(self.source, Path(self.program_name).parent)

    def arguments(self) -> tuple[str, ...]:
        """Return the options for NVRTC, without the include directories."""
        return (
            f"--gpu-architecture={self.arch.sm if self.output == CUBIN else self.arch.compute}",
            "--relocatable-device-code=true",
            *(("-dlto",) if self.output == LTOIR else ()),
            # On Arm, `char` would be unsigned as in host code, so that one source would give two kernels.
            *(("-Xcudafe=--signed_chars",) if platform.machine() == "aarch64" else ()),
            *self.options.arguments(),
        )


class _HeadersChanged(Exception):  # noqa: N818 - it carries a result
    """Headers were changed during the compilation; *entry* is its result, which must not be cached."""

    def __init__(self, entry: cache.Entry) -> None:
        super().__init__()
        self.entry = entry


def _compile_cached(unit: _Unit) -> cache.Entry:
    """Return the result of *unit* from the cache; compile it on a miss, or if it has no cache key."""
    includes = unit.find_includes()
    key = _key(unit, includes)
    if key is None:
        return _compile(unit)

    def make() -> cache.Entry:
        entry = _compile(unit)
        # NVRTC reads headers after the key was computed. If a header is edited in between, the code of its
        # new content would be stored under the key of the old one, for all users of the cache.
        if unit.find_includes() != includes:
            raise _HeadersChanged(entry)
        return entry

    try:
        return cache.cached(key, make)
    except _HeadersChanged as changed:
        log.info("cache: %s is not kept: headers were changed while it was compiled", unit.name)
        return changed.entry


def _check_text(source: bytes, name: str) -> None:
    """Refuse a NUL before the end of *source*: NVRTC would stop reading there, and succeed."""
    position = source.rstrip(b"\0").find(0)
    if position >= 0:
        line = source.count(b"\n", 0, position) + 1
        raise LinkError(
            f"{name} has a NUL character in line {line}; remove it, or save text in UTF-16 as UTF-8.",
            inputs=(name,),
        )


def _key(unit: _Unit, includes: Includes) -> cache.Key | None:
    """Return the cache key of the result; None if its inputs cannot be determined."""
    arguments = unit.arguments()
    if includes.key is None or any(map(_UNKEYED_FLAGS.match, arguments)):
        return None
    paths: list[str] = []
    # Line information contains the paths of the files.
    if any(argument in _LINE_FLAGS for argument in arguments):
        try:
            folder = Path(unit.program_name).parent.absolute()
        except FileNotFoundError:  # the working directory was removed, and has no path
            return None
        paths = [str(folder), *map(str, unit.options.include_dirs)]
    return cache.Key.of(
        "nvrtc",
        {
            "package": cache.package_version(),
            "tool": ("NVRTC", find.library_build_id("nvrtc")),
            "flags": arguments,
            "output": unit.output,
            "source": unit.source,
            "name": unit.program_name,
            "name expressions": unit.options.name_expressions,
            "includes": includes.key,
            "paths": paths,
        },
    )


def _compile(unit: _Unit) -> cache.Entry:
    options = unit.options
    flags = (*(f"--include-path={path}" for path in options.include_dirs), *unit.arguments())
    alters_later_calls = unit.output != LTOIR and any(map(_ALTERING_FLAGS.match, flags))
    # Called for its error, which names the missing package; `isolated` then uses the loaded library.
    find.load_library("nvrtc")
    step, _, outputs = isolated.call(
        "nvrtc",
        find.library("nvrtc"),
        flags,
        # nvJitLink's name of a kind of code, such as "PTX", is NVRTC's name of the output.
        [(unit.program_name, unit.source, KINDS[unit.output].nvjitlink)],
        # If two headers have the same name, the last one counts.
        list(dict(options.headers).items()),
        tuple(f"&{name}" if _NAME_EXPRESSION.match(name) else name for name in options.name_expressions),
        in_child=alters_later_calls,
    )
    nvrtc_log = outputs["log"]
    # In NOWHERE, the name of the program is "/a.cu" for the source "a.cu".
    if unit.folder == NOWHERE:
        nvrtc_log = nvrtc_log.replace(unit.program_name, unit.name)
    if step:
        cure = standard_headers.cure(nvrtc_log)
        advice = f" {cure}" if cure else ""
        raise LinkError(
            f"NVRTC could not compile {unit.name}: {outputs['reason']}\n{nvrtc_log.strip()}\n"
            f"Flags: {' '.join(flags)}.{advice}",
            flags=flags,
            inputs=(unit.name,),
            log=nvrtc_log,
        )
    lowered = dict(zip(options.name_expressions, outputs["symbols"], strict=True))
    meta = {"log": nvrtc_log.strip(), "lowered_names": lowered}
    return cache.Entry(meta, outputs["code"].rstrip(b"\0") if unit.output == PTX else outputs["code"])
