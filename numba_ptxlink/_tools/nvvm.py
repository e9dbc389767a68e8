"""
Compile LLVM IR with libNVVM, for exports and for the compilers themselves; ask what it compiles to.

Beside the libNVVM of this environment there may be those of other toolkits, whose LTO-IR the linkers of older
releases read. They have one name for the loader of libraries, so that they are called in child processes.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch, dotted, release_of
from numba_ptxlink._formats.ptx_header import read_header
from numba_ptxlink.errors import ExportError, LinkError

from . import find, isolated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import PtxVersion

    from .child import Answer

log = logging.getLogger(__name__)

# In the folder of a toolkit: by NVIDIA's installers, conda and the wheels of CUDA 12; by those of CUDA 13.
_LIBRARIES = ("nvvm/lib64/libnvvm.so", "lib/libnvvm.so.4")
_LIBDEVICE = "nvvm/libdevice/libdevice.10.bc"
# The versions of the IR, and of the debug information in it: releases refuse one that is newer than theirs.
_VERSIONS = re.compile(r"(?<=\{)( ?)i32 2, i32 0, i32 \d+, i32 \d+(?= ?\}$)", re.MULTILINE)
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
    return _asked(arch)[0]


def version() -> tuple[int, int] | None:
    """
    Return the CUDA release of libNVVM, as its PTX tells; None where that does not tell.

    Raises:
        LinkError: libNVVM cannot be loaded.
    """
    emitted = emitted_isa(Arch(9, 0))
    return release_of(emitted) if emitted else None


@functools.cache
def _asked(arch: Arch, library: str = "") -> tuple[PtxVersion | None, tuple[int, ...]]:
    """Return the version of PTX that libNVVM emits, and the versions of IR and debug information it reads."""
    step, _, given = run([("", _EMPTY_MODULE.encode(), "whole")], [f"-arch={arch.compute}"], library)
    return None if step else read_header(given["code"].decode()).version, given["ir"]


class Nvvm(NamedTuple):
    """
    The libNVVM of a toolkit beside this environment's.

    Args:
        path: The library.
        libdevice: The file of mathematical functions that it compiles with.
        release: The CUDA release.
        versions: Those of the IR that it reads, and of the debug information.
    """

    path: str
    libdevice: str
    release: tuple[int, int]
    versions: tuple[int, ...]

    def __str__(self) -> str:
        return f"NVVM {dotted(self.release)}"

    def compile_ir(self, modules: Sequence[str], options: Sequence[str]) -> bytes:
        """
        Compile LLVM IR, as the function `compile_ir` does, in a child process.

        Raises:
            ExportError: It refused the program. Carries its log.
            LinkError: It cannot be loaded.
        """
        versions = ", ".join(f"i32 {number}" for number in self.versions)
        texts = [_VERSIONS.sub(rf"\g<1>{versions}", module) for module in modules]
        return compile_ir(texts, options, Path(self.libdevice).read_bytes(), self.path)


def toolkits() -> list[Nvvm]:
    """Return the libNVVMs of the toolkits that are found, each once, but not this environment's."""
    own = os.path.realpath(find.library("nvvm"))
    places = ((root / name, root / _LIBDEVICE) for root in find.toolkits() for name in _LIBRARIES)
    found = {os.path.realpath(place[0]): place for place in places if all(map(Path.is_file, place))}
    asked = (_nvvm(*map(str, place)) for real, place in found.items() if real != own)
    return [each for each in asked if each]


@functools.cache
def _nvvm(library: str, libdevice: str) -> Nvvm | None:
    """Return the libNVVM of a toolkit, None where it cannot be loaded or does not tell its release."""
    try:
        emitted, versions = _asked(Arch(9, 0), library)
    except LinkError as error:
        log.warning("%s is not used: %s", library, "; ".join(str(error.log or error).splitlines()[-2:]))
        return None
    release = release_of(emitted) if emitted else None
    return Nvvm(library, libdevice, release, versions) if release else None


def newest(max_release: tuple[int, int]) -> Nvvm | None:
    """Return the newest of `toolkits` that is not newer than CUDA *max_release*, None without one."""
    return max(
        (each for each in toolkits() if each.release <= max_release),
        key=lambda each: each.release,
        default=None,
    )


def compile_ir(modules: Sequence[str], options: Sequence[str], libdevice: bytes, library: str = "") -> bytes:
    """
    Compile the LLVM IR of one program to PTX or LTO-IR, or read it from the cache. Needs no driver.

    Its warnings are logged.

    Args:
        modules: The program.
        options: libNVVM's options, such as "-arch=compute_90".
        libdevice: The bitcode of the mathematical functions that the program may call.
        library: The file of another toolkit's libNVVM, "" for this environment's.

    Raises:
        ExportError: libNVVM refused the program. Carries its log.
        LinkError: libNVVM cannot be loaded.
    """
    parts: dict[str, Any] = {
        "package": cache.package_version(),
        "tool": ("NVVM", find.build_id(library or find.library("nvvm"))),
        "libdevice": libdevice,
        "flags": list(options),
        **{f"module {i}": module for i, module in enumerate(modules, start=1)},
    }

    def make() -> cache.Entry:
        # A name would be noted in LTO-IR; the front ends give none.
        steps = [("", text.encode(), "whole") for text in modules]
        # Not all releases verify their own libdevice.
        steps += [("", b"", "verify"), *([("libdevice", libdevice, "lazy")] if libdevice else [])]
        step, _, given = run(steps, options, library)
        said = given["log"].strip()
        if step:
            raise ExportError(" ".join(said.split()) or given["reason"], flags=tuple(options), log=said)
        return cache.Entry({"log": said}, given["code"])

    entry = cache.cached(cache.Key.of("nvvm", parts), make)
    if entry.log:
        log.warning("libNVVM: %s", entry.log)
    return entry.code


def run(steps: Sequence[tuple[str, bytes, str]], options: Sequence[str], library: str = "") -> Answer:
    """
    Call libNVVM, apart from this process if that changes what libNVVM compiles later.

    Args:
        steps: The modules and when they are verified, as for `child.nvvm`.
        options: libNVVM's options.
        library: The file of another toolkit's libNVVM, "" for this environment's.

    Raises:
        LinkError: libNVVM cannot be loaded or be called so.
    """
    apart = bool(library) or alters_later_calls(options)
    if not library:
        find.loaded("nvvm")
    return isolated.call("nvvm", library or find.library("nvvm"), options, steps, alters_later_calls=apart)


def alters_later_calls(options: Sequence[str]) -> bool:
    """Return whether a call with *options* would change what libNVVM compiles in the same process later."""
    return "-opt=0" in options and "-gen-lto" not in options


@functools.cache
def accepts(options: tuple[str, ...]) -> bool:
    """Return whether libNVVM knows *options*; raises as `run` does."""
    return not run([("", _EMPTY_MODULE.encode(), "whole"), ("", b"", "verify")], options)[0]
