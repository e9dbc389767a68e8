"""PTX to machine code, in this process; the only caller of nvPTXCompiler."""

from __future__ import annotations

import functools
import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import _build_id, _keys, cache
from ._locks import in_tool
from ._options import AssembleOptions
from ._target import Arch, PtxVersion
from .errors import AssembleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ._native._nvptxcompiler import _Ffi, _Lib
    from ._target import ArchLike

    _Getter = Callable[[object, object], int]

__all__ = [
    "Cubin",
    "assemble",
    "compiler_version",
    "supported_archs",
    "supported_ptx_versions",
]

_LINE = re.compile(r"\bline (\d+)")
_EPILOGUE = "Ptx assembly aborted due to errors"
_WORKING_SET = 16 << 20
_MOST_LINES = 10
_WIDEST_LINE = 160

_UPGRADE = (
    "upgrade numba-ptxlink, or build it from source with a newer nvidia-nvptxcompiler: "
    "python -m pip install --upgrade numba-ptxlink"
)

# What the compiler says, and what helps; the first that occurs in the log counts.
_CURES = (
    ("Unknown option", "Correct or remove that flag in extra_flags."),
    ("could not be opened", "Each string in extra_flags is one flag or its value; remove what is neither."),
    ("argument expected after", "Add the value that flag needs to extra_flags."),
    ("for option '", "Correct the value of that option."),
    (
        "cannot be compiled for architecture",
        "Assemble for the architecture the PTX names as its .target, or generate the PTX for this one.",
    ),
    (
        "Unresolved extern",
        "Link the PTX with the definition, or assemble it with relocatable=True and link later.",
    ),
    (
        "requires PTX ISA .version",
        "Generate the PTX with a newer toolkit, or raise its .version.",
    ),
    (
        "does not support .target",
        "Generate the PTX with a newer toolkit, or raise its .version.",
    ),
    ("Missing .version directive", "Begin the PTX with a .version and a .target directive."),
)
_CURE = "Correct the PTX; if a tool wrote it, correct that tool's input."


@dataclass(frozen=True)
class Cubin:
    """
    Machine code for one architecture.

    Args:
        code: The ELF image.
        arch: The architecture it is for.
        relocatable: Whether it is to be linked before it can be loaded.
        info_log: What the compiler said while it succeeded: warnings, and the resource usage
            if extra_flags had "-v".
        flags: The exact arguments the compiler was given.
    """

    code: bytes = field(repr=False)
    arch: Arch
    relocatable: bool
    info_log: str
    flags: tuple[str, ...] = ()


def assemble(
    ptx: str | bytes,
    arch: ArchLike,
    *,
    relocatable: bool = False,
    opt_level: int = 3,
    debug: bool = False,
    lineinfo: bool = False,
    max_registers: int | None = None,
    extra_flags: Sequence[str] = (),
) -> Cubin:
    """
    Compile *ptx* to a cubin in this process, without a driver or a device.

    Thread-safe; other Python threads run meanwhile.

    Args:
        ptx: One PTX module.
        arch: The GPU to generate code for, such as "sm_90".
        relocatable: Keep calls and variables open for a later link.
        opt_level: 0 to 3. Under *debug* the default means 0.
        debug: Emit full debug information; the code is not optimised.
        lineinfo: Emit line numbers. Included in *debug*.
        max_registers: The most registers a thread may use, 1 to 255.
        extra_flags: Further ptxas flags, one string each, passed on as they are.

    Raises:
        AssembleError: The compiler refused *ptx* or an option. Carries its log and the PTX lines it names.
        ConfigError: An option or *arch* has a value this package does not know.
    """
    target = Arch.of(arch)
    options = AssembleOptions(
        relocatable=relocatable,
        opt_level=opt_level,
        debug=debug,
        lineinfo=lineinfo,
        max_registers=max_registers,
        extra_flags=extra_flags,
    )
    flags = options.arguments(target)
    text = _encode(ptx)
    key = cache.Key.of(
        "assemble",
        {"package": _keys.package_version(), "tool": identity(), "flags": flags, "ptx": text},
    )
    made = cache.cached(key, lambda: _compile(text, target, flags))
    return Cubin(made.code, target, relocatable, made.log, flags)


@functools.cache
def _keep_memory() -> None:
    """
    Let the C library keep what one compilation frees for the next one, up to twice this size.

    glibc learns from the largest block that was freed. Otherwise the 9 MB of a small kernel go back to the
    system and come again page by page, in up to a fifth of its time. Limits that the process has set stay.
    """
    bytes(_WORKING_SET)


@in_tool()
def _compile(text: bytes, target: Arch, flags: tuple[str, ...]) -> cache.Entry:
    ffi, lib = _load()
    _keep_memory()
    # The array holds bare pointers: the strings have to outlive it.
    strings = [ffi.new("char[]", flag.encode()) for flag in flags]
    with _compiler(ffi, lib, text) as handle:
        result = lib.nvPTXCompilerCompile(handle, len(strings), ffi.new("char *[]", strings))
        if result != lib.NVPTXCOMPILE_SUCCESS:
            log = _log(ffi, handle, lib.nvPTXCompilerGetErrorLogSize, lib.nvPTXCompilerGetErrorLog)
            raise _refusal(text, target, flags, log, result)
        code = _read(
            ffi, handle, lib.nvPTXCompilerGetCompiledProgramSize, lib.nvPTXCompilerGetCompiledProgram
        )
        info_log = _log(ffi, handle, lib.nvPTXCompilerGetInfoLogSize, lib.nvPTXCompilerGetInfoLog)
    return cache.Entry({"log": info_log}, code)


def identity() -> tuple[str, ...]:
    """
    Return what tells this nvPTXCompiler from every other: its name, version and build.

    Raises:
        AssembleError: The package is not built.
    """
    version = "{}.{}".format(*compiler_version())
    from ._native import _nvptxcompiler

    return ("nvPTXCompiler", version, _build_id.build_id(_nvptxcompiler.__file__))


def compiler_version() -> tuple[int, int]:
    """
    Return the version of the nvPTXCompiler inside this package, as (major, minor).

    Raises:
        AssembleError: The package is not built.
    """
    ffi, lib = _load()
    major, minor = ffi.new("unsigned int *"), ffi.new("unsigned int *")
    _check("nvPTXCompilerGetVersion", lib.nvPTXCompilerGetVersion(major, minor))
    return (major[0], minor[0])


def supported_archs() -> tuple[Arch, ...]:
    """
    Return the architectures that `assemble` generates code for, in ascending order.

    The library lists no variants. It takes "a" from 9.0 on, and "f" from 10.0 on.

    Raises:
        AssembleError: The package is not built.
    """
    ffi, lib = _load()
    count = ffi.new("int *")
    _check("nvPTXCompilerGetNumSupportedArchs", lib.nvPTXCompilerGetNumSupportedArchs(count))
    numbers = ffi.new("int[]", count[0])
    _check("nvPTXCompilerGetSupportedArchs", lib.nvPTXCompilerGetSupportedArchs(numbers))
    return tuple(Arch(*divmod(number, 10)) for number in sorted(numbers))


def supported_ptx_versions() -> tuple[PtxVersion, ...]:
    """
    Return the versions of the PTX ISA that `assemble` reads, in ascending order.

    Raises:
        AssembleError: The package is not built.
    """
    ffi, lib = _load()
    count = ffi.new("int *")
    _check("nvPTXCompilerGetNumSupportedVersions", lib.nvPTXCompilerGetNumSupportedVersions(count))
    versions = ffi.new("int[][2]", count[0])
    _check("nvPTXCompilerGetSupportedVersions", lib.nvPTXCompilerGetSupportedVersions(versions))
    return tuple(sorted(PtxVersion(major, minor) for major, minor in versions))


def _load() -> tuple[_Ffi, _Lib]:
    try:
        from ._native._nvptxcompiler import ffi, lib
    except ImportError as error:
        raise AssembleError(
            f"The compiled part of numba-ptxlink cannot be imported ({error}); "
            "install the package instead of importing its source tree: python -m pip install numba-ptxlink, "
            "or python -m pip install -e . in a checkout."
        ) from error
    return ffi, lib


def _encode(ptx: object) -> bytes:
    if isinstance(ptx, str):
        try:
            text = ptx.encode()
        except UnicodeEncodeError as error:
            raise AssembleError(f"The PTX is not valid Unicode ({error}); pass it as bytes.") from error
    elif isinstance(ptx, bytes):
        text = ptx
    else:
        raise AssembleError(
            f"PTX is a str or bytes, and this is a {type(ptx).__name__}; pass its text, "
            "for a file path.read_bytes()."
        )
    # NVRTC and the driver's tools count the final NUL as part of the text.
    text = text.rstrip(b"\0")
    if not text.strip():
        raise AssembleError("The PTX is empty; pass a module that begins with a .version directive.")
    if (position := text.find(0)) >= 0:
        # The compiler would stop reading there, and succeed.
        line = text.count(b"\n", 0, position) + 1
        raise AssembleError(
            f"The PTX has a NUL character in line {line}; remove it, or pass text, not a binary."
        )
    return text


@contextmanager
def _compiler(ffi: _Ffi, lib: _Lib, ptx: bytes) -> Iterator[object]:
    handle = ffi.new("nvPTXCompilerHandle *")
    _check("nvPTXCompilerCreate", lib.nvPTXCompilerCreate(handle, len(ptx), ptx))
    try:
        yield handle[0]
    finally:
        lib.nvPTXCompilerDestroy(handle)


def _check(function: str, result: int) -> None:
    if result:
        raise AssembleError(
            f"{function} failed with status {result}; free memory and try again, "
            "or report it with the PTX at the issue tracker of numba-ptxlink."
        )


def _read(ffi: _Ffi, handle: object, get_size: _Getter, get_bytes: _Getter) -> bytes:
    size = ffi.new("size_t *")
    _check("nvPTXCompiler", get_size(handle, size))
    if not size[0]:
        return b""
    content = ffi.new("char[]", size[0])
    _check("nvPTXCompiler", get_bytes(handle, content))
    return bytes(ffi.buffer(content))


def _log(ffi: _Ffi, handle: object, get_size: _Getter, get_bytes: _Getter) -> str:
    return _read(ffi, handle, get_size, get_bytes).rstrip(b"\0").decode(errors="replace")


def _refusal(ptx: bytes, arch: Arch, flags: tuple[str, ...], log: str, result: int) -> AssembleError:
    _, lib = _load()
    name = "nvPTXCompiler {}.{}".format(*compiler_version())
    if result == lib.NVPTXCOMPILE_ERROR_UNSUPPORTED_PTX_VERSION:
        newest = supported_ptx_versions()[-1]
        message = (
            f"The PTX is of a newer ISA than {name} reads, which is {newest} at most.\n{_excerpt(ptx, log)}"
            f"Generate it with an older toolkit, or {_UPGRADE}."
        )
    elif f"'{arch.sm}' is not defined for option" in log:
        archs = supported_archs()
        known = ", ".join(each.sm for each in archs)
        cure = _UPGRADE if arch.number > archs[-1].number else "choose one of these"
        message = (
            f'{name} does not know {arch.sm}; it knows {known}, the variant "a" from sm_90 on and '
            f'"f" from sm_100 on; {cure}.'
        )
    else:
        cure = next((cure for said, cure in _CURES if said in log), _CURE)
        reason = log or f"status {result}\n"
        message = f"{name} refused the PTX for {arch.sm}:\n{_excerpt(ptx, reason)}{cure}"
    return AssembleError(message, flags=flags, log=log)


def _excerpt(ptx: bytes, log: str) -> str:
    """Return what *log* says, followed by the PTX lines it names, indented."""
    said = [line for line in log.splitlines() if _EPILOGUE not in line]
    source = ptx.decode(errors="replace").split("\n")
    numbers = sorted({int(match[1]) for line in said[:_MOST_LINES] for match in _LINE.finditer(line)})
    numbers = [number for number in numbers if 0 < number <= len(source)]
    shown = said[:_MOST_LINES]
    if len(said) > _MOST_LINES:
        shown.append(f"... and {len(said) - _MOST_LINES} more, in the attribute log")
    if numbers:
        width = len(str(numbers[-1]))
        shown += [f"{number:>{width}} | {source[number - 1].rstrip()[:_WIDEST_LINE]}" for number in numbers]
    return "".join(f"    {line}\n" for line in shown)
