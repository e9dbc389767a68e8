"""Assemble PTX to cubins in this process, with a cache and errors that name the cause and the cure."""

from __future__ import annotations

import codecs
import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import cache
from ._arch import Arch, dotted
from ._config import config
from ._tools import nvptxcompiler
from ._tools.nvptxcompiler import supported_archs, supported_ptx_versions
from ._tools.nvptxcompiler import version as compiler_version
from ._tools.options import PTXAS, Options, assembler_flags
from .errors import AssembleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._arch import ArchLike

__all__ = [
    "Cubin",
    "assemble",
    "compiler_version",
    "supported_archs",
    "supported_ptx_versions",
]

log = logging.getLogger(__name__)

# A declaration of a variable, such as `.extern .global .u32 n;`, but not of dynamic shared memory, whose size
# the launch passes, such as `.extern .shared .b8 cache[];`.
_VARIABLE_DECLARATION = rb"\.extern\b(?!\s*\.func\b|\s*\.shared\b[^;,]*\[\s*\]\s*;)"
# In a message of the compiler, such as "ptxas application ptx input, line 7; error : ...".
_LINE_NUMBER = r"\bline (\d+)"
# The last line of the compiler's log, which adds nothing to the errors before.
_EPILOGUE = "Ptx assembly aborted due to errors"
_MAX_LISTED_LINES = 10
_MAX_LINE_CHARS = 160

_UPGRADE = (
    "upgrade numba-ptxlink, or build it from source with a newer nvidia-nvptxcompiler: "
    "python -m pip install --upgrade numba-ptxlink"
)

UNDEFINED_SYMBOL_CURE = (
    "Link the PTX with the definition, or assemble it with relocatable=True and link later."
)
"""The cure of `assemble` for undefined symbols; `_link.explain` replaces it in errors of a link."""

# Parts of the compiler's messages, and the cure for each; the first part that occurs in the log counts.
_CURES = {
    "Unknown option": "Correct or remove that flag in extra_flags.",
    "could not be opened": "Each string in extra_flags is a flag or its value; remove other strings.",
    "argument expected after": "Add the value that flag needs to extra_flags.",
    "for option '": "Correct the value of that option.",
    "': expected ": "Correct the value of that option.",
    "cannot be compiled for architecture": (
        "Assemble for the architecture in the .target of the PTX, or generate the PTX for this one."
    ),
    "SM version specified by .target is higher": (
        "Assemble for the architecture in the .target of the PTX, or generate the PTX for this one."
    ),
    "Unresolved extern": UNDEFINED_SYMBOL_CURE,
    "requires PTX ISA .version": "Generate the PTX with a newer toolkit, or raise its .version.",
    "does not support .target": "Generate the PTX with a newer toolkit, or raise its .version.",
    "Missing .version directive": (
        "Begin the PTX with .version and .target; compile CUDA C++ by link(), and Python by export()."
    ),
    "Optimized debugging not supported": (
        "Pass debug=True in place of a flag; if the .target of the PTX has debug, leave opt_level out."
    ),
    "too much global constant data": (
        "Constant memory, with global arrays of Python functions, has 64 KiB; pass large arrays as arguments."
    ),
}
_DEFAULT_CURE = "Correct the PTX; if a tool wrote it, correct that tool's input."


@dataclass(frozen=True)
class Cubin:
    """
    Machine code for one architecture.

    Args:
        code: The ELF image.
        arch: The architecture of the code.
        relocatable: Whether the code has to be linked before it can be loaded.
        info_log: The compiler's info log: warnings, and the resource usage if extra_flags had "-v".
        flags: The exact arguments of the compiler.
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
    fma: bool | None = None,
    extra_flags: Sequence[str] = (),
) -> Cubin:
    """
    Compile *ptx* to a cubin in this process, without a driver or a device.

    Thread-safe; other Python threads run meanwhile. As with ptxas and the driver, a variable that *ptx*
    declares and does not define is defined by the compiler, and a warning is logged. The variable contains
    zeros, except in shared memory, where its content is undefined. With *relocatable*, the variable is left
    for a later link.

    Args:
        ptx: A PTX module.
        arch: The GPU to generate code for, such as "sm_90".
        relocatable: Leave external calls and variables for a later link.
        opt_level: 0 to 3. With *debug*, and for PTX whose `.target` has debug, the default means 0.
        debug: Emit full debug information; the code is not optimised.
        lineinfo: Emit line numbers. Included in *debug*.
        max_registers: Limit of registers per thread, 1 to 255. In place of a number below the architecture's
            minimum, the compiler uses the minimum, with a message in its log.
        fma: Whether multiplications and additions without a rounding mode are contracted to fused ones, as
            the compiler does by default. Other arithmetic is fixed by the instructions of the PTX: pass its
            options to the tool that makes the PTX.
        extra_flags: Further ptxas flags, one string each, passed on unchanged. A flag for which there is a
            parameter here is refused.

    Raises:
        AssembleError: The compiler rejected *ptx* or an option. The error has the log and the PTX lines that
            it names.
        ConfigError: An option or *arch* has an unknown value.
    """
    # The first call in a process sets up logging.
    config()
    options = Options(
        relocatable=relocatable,
        opt_level=opt_level,
        debug=debug,
        lineinfo=lineinfo,
        max_registers=max_registers,
        fma=fma,
        extra_flags=assembler_flags(extra_flags),
    )
    target = Arch.of(arch)
    ptx_bytes = _encode_ptx(ptx)
    flags = (f"--gpu-name={target.sm}", *options.checked().to_flags(PTXAS, ptx_bytes))
    entry = compile_ptx(ptx_bytes, target, flags)
    if not relocatable:
        warn_of_undefined_variables(ptx_bytes)
    return Cubin(entry.code, target, relocatable, entry.log, flags)


def compile_ptx(ptx: str | bytes, arch: Arch, flags: tuple[str, ...]) -> cache.Entry:
    """
    Compile *ptx* with the arguments *flags*, as `assemble` does, but do not warn of undefined variables.

    Args:
        ptx: A PTX module.
        arch: The architecture, for messages; *flags* have it, too.
        flags: All arguments of the compiler.

    Raises:
        AssembleError: The compiler rejected *ptx* or an option.
    """
    ptx_bytes = _encode_ptx(ptx)
    key = cache.Key.of(
        "assemble",
        {
            "package": cache.package_version(),
            "tool": nvptxcompiler.identity(),
            "flags": flags,
            "ptx": ptx_bytes,
        },
    )
    return cache.cached(key, lambda: _compile(ptx_bytes, arch, flags))


def may_have_undefined_variables(ptx: bytes) -> bool:
    """
    Return whether PTX may declare a variable that it does not define, by a quick search for declarations.

    False is certain. With True, the PTX may still contain the definition, or only a comment that looks like a
    declaration.

    In whole-program mode ptxas, nvPTXCompiler and the driver define a variable that is only declared, and
    only warn; a linker rejects it. The variable contains zeros, except in shared memory, where its content is
    undefined. Observed with nvPTXCompiler 13.5 and a driver of CUDA 13.0.
    """
    return b".extern" in ptx and re.search(_VARIABLE_DECLARATION, ptx) is not None


def warn_of_undefined_variables(ptx: bytes) -> None:
    """Log a warning that names the variables that PTX only declares: nvPTXCompiler has defined them."""
    if not may_have_undefined_variables(ptx):
        return
    from ._formats.ptx import parse

    names = parse(ptx.decode(errors="replace")).undefined_variables
    if names:
        log.warning(
            "nvPTXCompiler defined variables that the PTX only declares: %s. %s",
            ", ".join(names),
            UNDEFINED_SYMBOL_CURE,
        )


def _compile(ptx: bytes, target: Arch, flags: tuple[str, ...]) -> cache.Entry:
    """Call nvPTXCompiler; return its log and the cubin, as an entry of the cache."""
    status, code, compiler_log = nvptxcompiler.compile_ptx(ptx, flags)
    if status:
        raise _rejection_error(compiler_log or f"status {status}\n", ptx, target, flags)
    return cache.Entry({"log": compiler_log}, code)


def _encode_ptx(ptx: object) -> bytes:
    """Return PTX as bytes, without final NULs and byte order mark; raise AssembleError if it is no text."""
    if isinstance(ptx, str):
        try:
            # Bytes in comments that were decoded with "surrogateescape" become the same bytes again.
            ptx_bytes = ptx.encode(errors="surrogateescape")
        except UnicodeEncodeError as error:
            raise AssembleError(f"The PTX is not valid Unicode ({error}); pass it as bytes.") from error
    elif isinstance(ptx, bytes):
        ptx_bytes = ptx
    else:
        raise AssembleError(
            f"The PTX is a {type(ptx).__name__}; pass a str or bytes, such as path.read_bytes() of a file."
        )
    # NVRTC and the driver's tools include the final NUL in the size of the text.
    ptx_bytes = ptx_bytes.rstrip(b"\0").removeprefix(codecs.BOM_UTF8)
    if not ptx_bytes.strip():
        raise AssembleError("The PTX is empty; pass a module that begins with a .version directive.")
    if (position := ptx_bytes.find(0)) >= 0:
        # The compiler would stop reading at a NUL, and succeed.
        raise AssembleError(
            f"The PTX has a NUL character at byte {position}; remove it, pass text instead of a binary, or "
            "save UTF-16 text as UTF-8."
        )
    return ptx_bytes


def _rejection_error(compiler_log: str, ptx: bytes, arch: Arch, flags: tuple[str, ...]) -> AssembleError:
    """Return the error for PTX that the compiler rejected."""
    compiler = f"nvPTXCompiler {dotted(compiler_version())}"
    if "Unsupported .version" in compiler_log:
        newest = supported_ptx_versions()[-1]
        message = (
            f"The PTX has a newer version than {newest}, the newest that {compiler} reads:\n"
            f"{_excerpt(ptx, compiler_log)}"
            f"Generate the PTX with an older toolkit, or {_UPGRADE}."
        )
    elif f"'{arch.sm}' is not defined for option" in compiler_log:
        names = ", ".join(supported_arch.sm for supported_arch in supported_archs())
        # An upgrade does not help for architectures older than the oldest supported one.
        upgrade = "" if arch.cc < supported_archs()[0].cc else f", or {_UPGRADE}"
        message = (
            f'{compiler} does not support {arch.sm}; choose one of {names}, with the variant "a" from sm_90 '
            f'on and "f" from sm_100 on, or link the PTX with the nvJitLink of a toolkit that supports '
            f"{arch.sm}{upgrade}."
        )
    else:
        cure = next((cure for part, cure in _CURES.items() if part in compiler_log), _DEFAULT_CURE)
        message = f"{compiler} rejected the PTX for {arch.sm}:\n{_excerpt(ptx, compiler_log)}{cure}"
    return AssembleError(message, flags=flags, log=compiler_log)


def _excerpt(ptx: bytes, compiler_log: str) -> str:
    """Return the messages in *compiler_log*, followed by the lines of the PTX that they name, indented."""
    messages = [line for line in compiler_log.splitlines() if _EPILOGUE not in line]
    listed_messages = messages[:_MAX_LISTED_LINES]
    ptx_lines = ptx.decode(errors="replace").split("\n")
    named_lines = {
        int(match[1]) for message in listed_messages for match in re.finditer(_LINE_NUMBER, message)
    }
    line_numbers = sorted(number for number in named_lines if 0 < number <= len(ptx_lines))
    excerpt = [*listed_messages]
    if len(messages) > _MAX_LISTED_LINES:
        excerpt.append(f"... and {len(messages) - _MAX_LISTED_LINES} more, in the attribute log")
    if line_numbers:
        width = len(str(line_numbers[-1]))
        excerpt += [
            f"{number:>{width}} | {ptx_lines[number - 1].rstrip()[:_MAX_LINE_CHARS]}"
            for number in line_numbers
        ]
    return "".join(f"    {line}\n" for line in excerpt)
