"""Compile PTX with the nvPTXCompiler that is linked into this package; no other module calls it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import _native
from numba_ptxlink.errors import AssembleError

from . import find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch, PtxVersion
    from numba_ptxlink._native._nvptxcompiler import _Ffi, _Lib

# More than a small kernel takes, see `_keep_memory`; glibc ignores blocks of more than 32 MiB.
_WORKING_SET_BYTES = 16 << 20


def version() -> tuple[int, int]:
    """
    Return the version of the nvPTXCompiler inside this package, as (major, minor).

    Raises:
        AssembleError: The package is not built.
    """
    ffi, lib = load()
    major, minor = ffi.new("unsigned int *"), ffi.new("unsigned int *")
    _check("Version", lib.nvPTXCompilerGetVersion(major, minor))
    return (major[0], minor[0])


def identity() -> tuple[str, ...]:
    """
    Return the name and build ID of this nvPTXCompiler, for cache keys. Does not load it.

    Raises:
        AssembleError: The package is not built.
    """
    path = _native.location()
    if path is None:
        raise AssembleError(f"{_native.not_loadable_reason()}.")
    return ("nvPTXCompiler", find.build_id(path))


class Facts(NamedTuple):
    """
    The version of nvPTXCompiler, and the targets that it supports.

    Args:
        release: The version, as (major, minor).
        archs: The architectures that it generates code for.
        newest_ptx: The newest PTX ISA that it reads.
    """

    release: tuple[int, int]
    archs: frozenset[Arch]
    newest_ptx: PtxVersion


@functools.cache
def facts() -> Facts:
    """
    Return the facts about the compiler, from the cache if possible: loading the compiler takes longer.

    Raises:
        AssembleError: The package is not built.
    """
    from numba_ptxlink import cache
    from numba_ptxlink._arch import Arch, PtxVersion

    key = cache.Key.of("nvptxcompiler", {"package": cache.package_version(), "tool": identity()})
    values = cache.default().memoize(
        key,
        lambda: {
            "release": version(),
            "archs": [arch.cc for arch in supported_archs()],
            "ptx": supported_ptx_versions()[-1],
        },
    )
    major, minor = values["release"]
    archs = frozenset(Arch(*cc) for cc in values["archs"])
    return Facts((major, minor), archs, PtxVersion(*values["ptx"]))


def supported_archs() -> tuple[Arch, ...]:
    """
    Return the architectures that `compile_ptx` generates code for, in ascending order.

    The library does not list variants: it also compiles for the suffix "a" from 9.0 on, and "f" from 10.0 on.

    Raises:
        AssembleError: The package is not built.
    """
    from numba_ptxlink._arch import Arch

    # The number 103 is compute capability 10.3.
    return tuple(Arch(*divmod(number, 10)) for number in sorted(_supported_list("Archs", "int[]")))


def supported_ptx_versions() -> tuple[PtxVersion, ...]:
    """
    Return the versions of the PTX ISA that `compile_ptx` reads, in ascending order.

    Raises:
        AssembleError: The package is not built.
    """
    from numba_ptxlink._arch import PtxVersion

    return tuple(sorted(PtxVersion(major, minor) for major, minor in _supported_list("Versions", "int[][2]")))


def _supported_list(list_name: str, ctype: str) -> Any:
    """Return the compiler's list "Archs" or "Versions" of what it supports, as an array of C type *ctype*."""
    ffi, lib = load()
    count = ffi.new("int *")
    _check(list_name, getattr(lib, f"nvPTXCompilerGetNumSupported{list_name}")(count))
    array = ffi.new(ctype, count[0])
    _check(list_name, getattr(lib, f"nvPTXCompilerGetSupported{list_name}")(array))
    return array


def compile_ptx(text: bytes, flags: Sequence[str]) -> tuple[int, bytes, str]:
    """
    Compile the PTX *text*. Needs no driver; thread-safe.

    Returns:
        The `nvPTXCompileResult`: 0, or another number if the compiler rejected the PTX or a flag; the cubin,
        empty after a rejection; and the info log, or the error log of a rejection.

    Raises:
        AssembleError: The package is not built, or the compiler failed for another reason than its input.
    """
    ffi, lib = load()
    _keep_memory()
    # The array contains bare pointers, which do not keep the strings alive.
    strings = [ffi.new("char[]", flag.encode()) for flag in flags]
    handle_pointer = ffi.new("nvPTXCompilerHandle *")
    _check("Create", lib.nvPTXCompilerCreate(handle_pointer, len(text), text))
    try:
        handle = handle_pointer[0]
        status = lib.nvPTXCompilerCompile(handle, len(strings), ffi.new("char *[]", strings))
        code = b"" if status else _read(handle, "CompiledProgram")
        log = _read(handle, "ErrorLog" if status else "InfoLog")
        return status, code, log.rstrip(b"\0").decode(errors="replace")
    finally:
        lib.nvPTXCompilerDestroy(handle_pointer)


@functools.cache
def _keep_memory() -> None:
    """
    Make the C library keep the memory that one compilation frees, so that the next one reuses it.

    Otherwise the 9 MB that a small kernel takes are returned to the system and faulted in again page by page,
    which takes up to a fifth of the compilation's time. glibc keeps as much as twice the largest block that
    was ever allocated by mmap and freed (mallopt(3), M_MMAP_THRESHOLD); so free one of `_WORKING_SET_BYTES`.
    Thresholds that the process has set remain in effect.
    """
    # Python frees this unused object, a block of that size, at once.
    bytes(_WORKING_SET_BYTES)


def load() -> tuple[_Ffi, _Lib]:
    """
    Return the cffi module's `ffi` and `lib`.

    Raises:
        AssembleError: The cffi module is not built or cannot be loaded, or cffi is not installed.
    """
    try:
        from numba_ptxlink._native._nvptxcompiler import ffi, lib
    except ImportError as error:
        raise AssembleError(f"{_native.not_loadable_reason() or _native.load_failure(error)}.") from error
    return ffi, lib


def _check(step: str, result: int) -> None:
    """Raise an AssembleError that names the call *step*, unless *result*, an nvPTXCompileResult, is 0."""
    if result:
        raise AssembleError(
            f"nvPTXCompiler failed with status {result} ({step}); free memory and try again, "
            "or report it with the PTX at the issue tracker of numba-ptxlink."
        )


def _read(handle: object, output: str) -> bytes:
    """Return an output of a compilation: "CompiledProgram", "ErrorLog" or "InfoLog"."""
    ffi, lib = load()
    size = ffi.new("size_t *")
    _check(output, getattr(lib, f"nvPTXCompilerGet{output}Size")(handle, size))
    content = ffi.new("char[]", size[0])
    if size[0]:
        _check(output, getattr(lib, f"nvPTXCompilerGet{output}")(handle, content))
    return bytes(ffi.buffer(content))
