"""
Compile LLVM IR with libNVVM, for exports and for the front ends.

Linkers of older releases read only the LTO-IR of an older libNVVM, which another toolkit may contain. The
loader does not distinguish libraries of one name, so such a library is called in a child process.
"""

from __future__ import annotations

import functools
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch, dotted, last_release_emitting
from numba_ptxlink._formats.ptx_header import read_header
from numba_ptxlink.errors import ExportError, LinkError

from . import find, isolated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import PtxVersion

    from .child import Answer

log = logging.getLogger(__name__)

# Paths of libNVVM in the folder of a toolkit: the first is that of NVIDIA's installers, conda and the wheels
# of CUDA 12, the second that of the wheels of CUDA 13.
_LIBRARY_PATHS = ("nvvm/lib64/libnvvm.so", "lib/libnvvm.so.4")
_LIBDEVICE_PATH = "nvvm/libdevice/libdevice.10.bc"
# The versions of the IR (2.0) and of its debug information (3.2) in a module: the numbers in the line
# `!1 = !{i32 2, i32 0, i32 3, i32 2}`, with or without blanks inside the braces. A release rejects versions
# newer than its own.
_MODULE_VERSIONS = re.compile(r"(?<=\{)( ?)i32 2, i32 0, i32 \d+, i32 \d+(?= ?\}$)", re.MULTILINE)
# A module with one function; the NVVM IR specification requires the target and the version of the IR.
_SMALLEST_MODULE = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64\
:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
define void @f() { ret void }
!nvvmir.version = !{!0}
!0 = !{i32 2, i32 0}
"""


# An architecture that all releases of CUDA 12 and 13 support.
_PROBED_ARCH = Arch(9, 0)


def emitted_isa(arch: Arch) -> PtxVersion | None:
    """
    Return the version of the PTX ISA that libNVVM emits for *arch*; None if it does not support *arch*.

    Raises:
        LinkError: libNVVM cannot be loaded.
    """
    return _probe(arch)[0]


def version() -> tuple[int, int] | None:
    """
    Return the CUDA release of libNVVM, by the version of its PTX; None if that version is unknown.

    Raises:
        LinkError: libNVVM cannot be loaded.
    """
    emitted = emitted_isa(_PROBED_ARCH)
    return last_release_emitting(emitted) if emitted else None


@functools.cache
def _probe(arch: Arch, library: str = "") -> tuple[PtxVersion | None, tuple[int, ...]]:
    """
    Return the version of PTX that libNVVM emits for *arch*, and the versions of the IR that it reads.

    The version of PTX is None if libNVVM does not support *arch*. The versions of the IR are those that
    `child.nvvm` returns as "ir": (major, minor) of the IR, then of its debug information.
    """
    step, _, outputs = run([("", _SMALLEST_MODULE.encode(), "whole")], [f"-arch={arch.compute}"], library)
    isa = None if step else read_header(outputs["code"].decode()).version
    return isa, outputs["ir"]


class Nvvm(NamedTuple):
    """
    The libNVVM of another toolkit than this environment's.

    Args:
        path: The file of the library.
        libdevice: The file of the toolkit's mathematical functions, in bitcode.
        release: The CUDA release.
        versions: The newest versions of the IR and of its debug information that the library reads, as
            (major, minor, major, minor).
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
            ExportError: libNVVM rejected the program. The error has the log.
            LinkError: libNVVM cannot be loaded.
        """
        # The front ends write the versions of this environment's libNVVM, which may be newer than *versions*.
        versions = ", ".join(f"i32 {number}" for number in self.versions)
        texts = [_MODULE_VERSIONS.sub(rf"\g<1>{versions}", module) for module in modules]
        return compile_ir(texts, options, Path(self.libdevice).read_bytes(), self.path)


def toolkits() -> list[Nvvm]:
    """Return the libNVVM of each toolkit on this machine, except this environment's."""
    own_path = os.path.realpath(find.library("nvvm"))
    # The files of each libNVVM, by its real path, since several paths may lead to one library.
    paths: dict[str, tuple[Path, Path]] = {}
    for root in find.toolkits():
        for name in _LIBRARY_PATHS:
            library, libdevice = root / name, root / _LIBDEVICE_PATH
            if library.is_file() and libdevice.is_file():
                paths[os.path.realpath(library)] = (library, libdevice)
    paths.pop(own_path, None)
    libraries = (_probe_library(str(library), str(libdevice)) for library, libdevice in paths.values())
    return [*filter(None, libraries)]


@functools.cache
def _probe_library(library: str, libdevice: str) -> Nvvm | None:
    """Return the libNVVM of a toolkit; None if it cannot be loaded, or if its release is unknown."""
    try:
        emitted_ptx, versions = _probe(_PROBED_ARCH, library)
    except LinkError as error:
        # If the library has ended its child process, the last two lines of the log are the library's last
        # message and the exit status.
        log.warning("%s is not used: %s", library, "; ".join(str(error.log or error).splitlines()[-2:]))
        return None
    release = last_release_emitting(emitted_ptx) if emitted_ptx else None
    return Nvvm(library, libdevice, release, versions) if release else None


def newest(max_release: tuple[int, int]) -> Nvvm | None:
    """Return the newest libNVVM of `toolkits` up to CUDA *max_release*; None if there is none."""
    return max(
        (nvvm for nvvm in toolkits() if nvvm.release <= max_release),
        key=lambda nvvm: nvvm.release,
        default=None,
    )


def compile_ir(modules: Sequence[str], options: Sequence[str], libdevice: bytes, library: str = "") -> bytes:
    """
    Compile the LLVM IR of one program to PTX or LTO-IR, or read it from the cache. Needs no driver.

    Warnings of libNVVM are logged.

    Args:
        modules: The texts of the modules of the program.
        options: libNVVM's options, such as "-arch=compute_90".
        libdevice: The bitcode of the mathematical functions that the program may call; b"" if it calls none.
        library: The file of another toolkit's libNVVM; "" for this environment's.

    Raises:
        ExportError: libNVVM rejected the program. The error has the log.
        LinkError: libNVVM cannot be loaded.
    """
    key_parts: dict[str, Any] = {
        "package": cache.package_version(),
        "tool": ("NVVM", find.build_id(library or find.library("nvvm"))),
        "libdevice": libdevice,
        "flags": list(options),
        **{f"module {i}": module for i, module in enumerate(modules, start=1)},
    }

    def make() -> cache.Entry:
        # Modules get no names: LTO-IR would contain them.
        steps = [("", text.encode(), "whole") for text in modules]
        # Verify the program before libdevice is added: some releases of libNVVM reject libdevice.
        steps += [("", b"", "verify"), *([("libdevice", libdevice, "lazy")] if libdevice else [])]
        step, _, outputs = run(steps, options, library)
        nvvm_log = outputs["log"].strip()
        if step:
            raise ExportError(
                " ".join(nvvm_log.split()) or outputs["reason"], flags=tuple(options), log=nvvm_log
            )
        return cache.Entry({"log": nvvm_log}, outputs["code"])

    entry = cache.cached(cache.Key.of("nvvm", key_parts), make)
    if entry.log:
        log.warning("libNVVM: %s", entry.log)
    return entry.code


def run(steps: Sequence[tuple[str, bytes, str]], options: Sequence[str], library: str = "") -> Answer:
    """
    Call libNVVM; in a child process for *library*, or if the call would change the results of later ones.

    Args:
        steps: The inputs of `child.nvvm`: modules, and verifications of the modules before.
        options: libNVVM's options.
        library: The file of another toolkit's libNVVM; "" for this environment's.

    Raises:
        LinkError: libNVVM cannot be loaded, or no child process can be started.
    """
    in_child = bool(library) or alters_later_calls(options)
    if not library:
        # Called for its error, which names the missing package; `isolated` then uses the loaded library.
        find.load_library("nvvm")
    path = library or find.library("nvvm")
    return isolated.call("nvvm", path, options, steps, in_child=in_child)


def alters_later_calls(options: Sequence[str]) -> bool:
    """Return whether a call with *options* changes the results of later ones: if it makes unoptimised PTX."""
    return "-opt=0" in options and "-gen-lto" not in options


@functools.cache
def accepts(options: tuple[str, ...]) -> bool:
    """Return whether libNVVM accepts *options*; raises as `run` does."""
    return not run([("", _SMALLEST_MODULE.encode(), "whole"), ("", b"", "verify")], options)[0]
