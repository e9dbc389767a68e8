"""Compile CUDA C++ with NVRTC, which `find` loads and `isolated` calls: its options and errors."""

from __future__ import annotations

import ctypes
import functools
import logging
import platform
import re
from pathlib import Path
from typing import NamedTuple

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch
from numba_ptxlink._formats.kinds import CUBIN, KINDS, LTOIR, PTX
from numba_ptxlink.errors import LinkError

from . import find, includes, isolated, standard_headers

log = logging.getLogger(__name__)

INCLUDE_DIR = Path(__file__).parents[1] / "include"
"""This package's own headers, which those of exports include."""

NOWHERE = Path("/")
"""The folder of source that is no file and searches the include directories alone."""

_LINES = ("--generate-line-info", "-lineinfo", "--device-debug", "-G")
# Options that change what NVRTC compiles in the same process later, except to LTO-IR; "-opt=0" for -Xnvvm.
_ALTERING_FLAGS = re.compile("-G$|--device-debug$|--Ofast-compile|-Ofc|-Xnvvm")
# NVRTC lowers addresses: the name of a kernel is one, that of a variable is its value.
_NAME = re.compile(r"\s*(?!\w+_cast\b)(?:::)?[A-Za-z_]")
# Options that read or write files that a key does not cover, or that report the time.
_BEYOND_KEYS = re.compile("-I|--?[a-z-]*(include|pch|time)")


def version() -> tuple[int, int]:
    """Return NVRTC's version as (major, minor)."""
    return find.version("nvrtc", "nvrtcVersion")


@functools.cache
def supported_archs() -> tuple[Arch, ...]:
    """Return the architectures that NVRTC generates code for, without variants, in ascending order."""
    library, count = find.loaded("nvrtc"), ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    return tuple(Arch(*divmod(number, 10)) for number in sorted(numbers))


def archs_of(release: tuple[int, int]) -> tuple[Arch, ...]:
    """Return the architectures that CUDA *release* knows, none where NVRTC is of another one or missing."""
    try:
        return supported_archs() if version() == release else ()
    except LinkError:
        return ()


def toolkit_include_dirs() -> tuple[Path, ...]:
    """Return the include directories of the CUDA toolkit and of CCCL installed beside NVRTC."""
    locate = find.pathfinder().locate_nvidia_header_directory
    found = filter(None, map(locate, ("cudart", "cccl")))
    return tuple(dict.fromkeys(Path(each.abs_path) for each in found))


class SourceOptions(NamedTuple):
    """
    The options for compiling CUDA C++.

    Args:
        include_dirs: Directories that `#include` searches, in order.
        headers: Headers held in memory, as pairs of the name that `#include` uses and the text.
        defines: Macros, as pairs of name and value; None defines without a value.
        cxx_standard: The C++ standard, such as "c++20"; None for NVRTC's default.
        name_expressions: Names of kernels and variables, also of template instances, whose symbols to return.
        flags: Further NVRTC options.
    """

    include_dirs: tuple[Path | str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    defines: tuple[tuple[str, str | None], ...] = ()
    cxx_standard: str | None = None
    name_expressions: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def arguments(self) -> tuple[str, ...]:
        """Return the options for NVRTC, without include directories."""
        return (
            *((f"--std={self.cxx_standard}",) if self.cxx_standard else ()),
            *(
                f"--define-macro={name}" + ("" if value is None else f"={value}")
                for name, value in self.defines
            ),
            *self.flags,
        )

    def included(self, source: bytes, folder: Path) -> includes.Includes:
        """Return what *source* in *folder* can include."""
        texts = (*self.arguments(), *self.name_expressions)
        return includes.find_includes(source, folder, self.include_dirs, dict(self.headers), texts)

    def content_of(self, source: bytes, folder: Path) -> tuple[bytes, tuple[str, ...]] | None:
        """Return *source* in *folder*, and all that it includes; None where that is unknown."""
        included = self.included(source, folder).key
        return None if included is None else (source, included)


def compile_source(
    source: str | bytes,
    name: str,
    arch: Arch,
    options: SourceOptions = SourceOptions(),  # noqa: B008 - it cannot be changed
    *,
    output: str = PTX,
    folder: Path | None = None,
) -> cache.Entry:
    """
    Compile CUDA C++ to relocatable code with NVRTC. Needs no driver; thread-safe.

    What fails for want of a header of the standard library is compiled again with that of CUDA's C++ library.

    Args:
        source: One translation unit.
        name: The name of the source in the log.
        arch: The GPU to generate code for.
        options: How to compile it.
        output: "ptx", "ltoir" or "cubin".
        folder: The directory the source was read from, which `#include "..."` searches first and `__FILE__`
            shows; None for source that is no file, where that is the directory in *name*: the working one if
            there is none.

    Returns:
        The code; NVRTC's "log", of warnings and remarks; and "lowered_names", the symbols of the expressions.

    Raises:
        LinkError: NVRTC refused the source or an option. Carries its log.
    """
    if isinstance(source, str):
        source = source.encode(errors="surrogateescape")
    _refuse_binary(source, name)
    unit = _Unit(source, name, arch, options, output, folder)
    try:
        return _cached(unit)
    except LinkError as error:
        standard = standard_headers.standard_headers(error.log, options.include_dirs, dict(options.headers))
        if not standard:
            raise
    headers = (*options.headers, *standard.items())
    return _cached(unit._replace(options=options._replace(headers=headers)))


class _Unit(NamedTuple):
    """One translation unit: the arguments of `compile_source` with their meanings."""

    source: bytes
    name: str
    arch: Arch
    options: SourceOptions
    output: str
    folder: Path | None

    @property
    def program_name(self) -> str:
        # NVRTC searches the directory in the program's name. On the include path it would also serve <...>.
        return self.name if self.folder is None else str(self.folder / self.name)

    def included(self) -> includes.Includes:
        """Return what the source can include now."""
        return self.options.included(self.source, Path(self.program_name).parent)

    def arguments(self) -> tuple[str, ...]:
        """Return the options for NVRTC, without the include directories."""
        return (
            f"--gpu-architecture={self.arch.sm if self.output == CUBIN else self.arch.compute}",
            "--relocatable-device-code=true",
            *(("-dlto",) if self.output == LTOIR else ()),
            # On Arm a plain `char` would have no sign, as in C++ there: one source, two programs.
            *(("-Xcudafe=--signed_chars",) if platform.machine() == "aarch64" else ()),
            *self.options.arguments(),
        )


class _HeadersChanged(Exception):  # noqa: N818 - it carries a result
    """Headers were changed between the computation of the key and the end of the compilation."""

    def __init__(self, entry: cache.Entry) -> None:
        super().__init__()
        self.entry = entry


def _cached(unit: _Unit) -> cache.Entry:
    included = unit.included()
    key = _key(unit, included)
    if key is None:
        return _compile(unit)

    def make() -> cache.Entry:
        entry = _compile(unit)
        # NVRTC reads headers after the key was computed. A header that is edited meanwhile would be stored
        # under the key of its old content, for all who share the cache.
        if unit.included() != included:
            raise _HeadersChanged(entry)
        return entry

    try:
        return cache.cached(key, make)
    except _HeadersChanged as changed:
        log.info("cache: %s is not kept: headers were changed while it was compiled", unit.name)
        return changed.entry


def _refuse_binary(source: bytes, name: str) -> None:
    # NVRTC would stop reading there, and succeed.
    at = source.rstrip(b"\0").find(0)
    if at >= 0:
        line = source.count(b"\n", 0, at) + 1
        raise LinkError(
            f"{name} has a NUL character in line {line}; remove it, or save text in UTF-16 as UTF-8.",
            inputs=(name,),
        )


def _key(unit: _Unit, included: includes.Includes) -> cache.Key | None:
    """Return everything the result depends on, None if that cannot be determined."""
    arguments = unit.arguments()
    if included.key is None or any(map(_BEYOND_KEYS.match, arguments)):
        return None
    paths: list[str] = []
    # Line information contains the paths of the files.
    if any(argument in _LINES for argument in arguments):
        try:
            folder = Path(unit.program_name).parent.absolute()
        except FileNotFoundError:  # the working directory was removed, and has no path
            return None
        paths = [str(folder), *map(str, unit.options.include_dirs)]
    return cache.Key.of(
        "nvrtc",
        {
            "package": cache.package_version(),
            "tool": ("NVRTC", find.build_of("nvrtc")),
            "flags": arguments,
            "output": unit.output,
            "source": unit.source,
            "name": unit.program_name,
            "name expressions": unit.options.name_expressions,
            "includes": included.key,
            "paths": paths,
        },
    )


def _compile(unit: _Unit) -> cache.Entry:
    options = unit.options
    flags = (*(f"--include-path={path}" for path in options.include_dirs), *unit.arguments())
    find.loaded("nvrtc")
    step, _, given = isolated.call(
        "nvrtc",
        find.library("nvrtc"),
        flags,
        [(unit.program_name, unit.source, KINDS[unit.output].nvjitlink)],
        list(dict(options.headers).items()),
        tuple(f"&{name}" if _NAME.match(name) else name for name in options.name_expressions),
        alters_later_calls=unit.output != LTOIR and any(map(_ALTERING_FLAGS.match, flags)),
    )
    nvrtc_log = given["log"]
    if unit.folder == NOWHERE:
        nvrtc_log = nvrtc_log.replace(unit.program_name, unit.name)
    if step:
        cure = standard_headers.cure(nvrtc_log)
        raise LinkError(
            f"NVRTC could not compile {unit.name}: {given['reason']}\n{nvrtc_log.strip()}\n"
            f"Flags: {' '.join(flags)}.{cure and f' {cure}'}",
            flags=flags,
            inputs=(unit.name,),
            log=nvrtc_log,
        )
    lowered = dict(zip(options.name_expressions, given["symbols"], strict=True))
    meta = {"log": nvrtc_log.strip(), "lowered_names": lowered}
    return cache.Entry(meta, given["code"].rstrip(b"\0") if unit.output == PTX else given["code"])
