"""Compile LLVM IR with libNVVM, for exports and for the compilers themselves; ask what it compiles to."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch
from numba_ptxlink._formats.ptx import read_header
from numba_ptxlink._formats.ptx.header import release_of
from numba_ptxlink.errors import ExportError

from . import find, isolated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import PtxVersion

# The target and the version of the IR that the NVVM IR specification asks every module for.
_EMPTY_MODULE = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64\
:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
define void @f() { ret void }
!nvvmir.version = !{!0}
!0 = !{i32 2, i32 0}
"""


def emitted_isa(arch: Arch) -> PtxVersion | None:
    """
    Return the version of the PTX ISA that libNVVM emits for *arch*, None if it does not compile for it.

    Raises:
        LinkError: libNVVM cannot be loaded.
    """
    try:
        return read_header(_compile([_EMPTY_MODULE], [f"-arch={arch.compute}"], b"").decode()).version
    except ExportError:
        return None


def version() -> tuple[int, int] | None:
    """
    Return the CUDA release of libNVVM, as its PTX tells; None where that does not tell.

    Raises:
        LinkError: libNVVM cannot be loaded.
    """
    emitted = emitted_isa(Arch(9, 0))
    return release_of(emitted) if emitted else None


def compile_ir(modules: Sequence[str], options: Sequence[str], libdevice: bytes) -> bytes:
    """
    Compile the LLVM IR of one program to PTX or LTO-IR, or read it from the cache. Needs no driver.

    Args:
        modules: The program.
        options: libNVVM's options, such as "-arch=compute_90".
        libdevice: The bitcode of the mathematical functions that the program may call.

    Raises:
        ExportError: libNVVM refused the program. Carries its log.
        LinkError: libNVVM cannot be loaded.
    """
    parts: dict[str, Any] = {
        "package": cache.package_version(),
        "tool": ("NVVM", find.build_of("nvvm")),
        "libdevice": libdevice,
        "flags": list(options),
        **{f"module {i}": module for i, module in enumerate(modules, start=1)},
    }
    key = cache.Key.of("nvvm", parts)
    return cache.cached(key, lambda: cache.Entry({}, _compile(modules, list(options), libdevice))).code


def _compile(modules: Sequence[str], options: list[str], libdevice: bytes) -> bytes:
    steps = [(f"module{number}", text.encode(), "whole") for number, text in enumerate(modules)]
    # Not all releases verify their own libdevice.
    steps += [("", b"", "verify"), *([("libdevice", libdevice, "lazy")] if libdevice else [])]
    step, status, given = run(steps, options)
    if step:
        error, said = _binding().nvvmError(status), given["log"].strip()
        raise ExportError(" ".join(said.split()) or str(error), flags=tuple(options), log=said) from error
    return bytes(given["code"])


def run(steps: Sequence[tuple[str, bytes, str]], options: Sequence[str]) -> isolated.Answer:
    """
    Call libNVVM, apart from this process if that changes what libNVVM compiles later.

    Args:
        steps: The modules and when they are verified, as for `isolated.nvvm`.
        options: libNVVM's options.

    Raises:
        LinkError: libNVVM cannot be loaded or be called so.
    """
    _binding()
    return isolated.call("nvvm", find.library("nvvm"), options, steps, spoils=spoils(options))


def spoils(options: Sequence[str]) -> bool:
    """Return whether a call with *options* would change what libNVVM compiles in the same process later."""
    return "-opt=0" in options and "-gen-lto" not in options


@functools.cache
def accepts(options: tuple[str, ...]) -> bool:
    """Return whether libNVVM knows *options*; raises as `run` does."""
    return not run([("", _EMPTY_MODULE.encode(), "whole"), ("", b"", "verify")], options)[0]


def _binding() -> Any:
    return find.binding("nvvm")
