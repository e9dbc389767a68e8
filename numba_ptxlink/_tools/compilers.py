"""List the architectures and PTX versions of each compiler and linker, as it tells them itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._arch import Arch
from numba_ptxlink._formats.ptx import read_header
from numba_ptxlink._formats.ptx.isa import newest_isa
from numba_ptxlink.errors import PtxlinkError

from . import nvjitlink, nvptxcompiler, nvrtc, nvvm

if TYPE_CHECKING:
    from collections.abc import Iterator

# For NVVM, which has no list of its own: every compute capability that could be one, from Maxwell on.
_CANDIDATES = tuple(Arch(major, minor) for major in range(5, 16) for minor in range(10))


@dataclass(frozen=True)
class Compiler:
    """
    What one compiler or linker can generate code for.

    Args:
        name: The name of the tool.
        archs: The architectures it accepts, without variants, in ascending order; empty where nothing tells.
        ptx: The newest version of the PTX ISA that it reads or writes, "" if it is not known.
        writes: Whether it writes that version, rather than reads it and all before.
    """

    name: str
    archs: tuple[str, ...]
    ptx: str
    writes: bool


def compilers() -> Iterator[Compiler]:
    """Yield the tools that can be loaded. Needs neither a GPU nor a driver."""
    for find in (_nvptxcompiler, _nvrtc, _nvjitlink, _nvvm):
        try:
            yield find()
        except PtxlinkError:
            continue


def _nvptxcompiler() -> Compiler:
    newest = nvptxcompiler.supported_ptx_versions()[-1]
    return Compiler("nvPTXCompiler", _names(nvptxcompiler.supported_archs()), str(newest), writes=False)


def _nvrtc() -> Compiler:
    archs = nvrtc.supported_archs()
    ptx = nvrtc.compile_source("", "empty.cu", archs[-1]).code.decode()
    return Compiler("NVRTC", _names(archs), str(read_header(ptx).version or ""), writes=True)


def _nvjitlink() -> Compiler:
    # It has no function for its PTX versions, which are those of its release.
    release = nvjitlink.version()
    newest = newest_isa(release)
    return Compiler(
        "nvJitLink", _names(nvjitlink.supported_archs(release) or ()), str(newest or ""), writes=False
    )


def _nvvm() -> Compiler:
    versions = {arch: version for arch in _CANDIDATES if (version := nvvm.emitted_isa(arch)) is not None}
    newest = max(versions.values(), default="")
    return Compiler("NVVM", _names(tuple(versions)), str(newest), writes=True)


def _names(archs: tuple[Arch, ...]) -> tuple[str, ...]:
    return tuple(arch.sm for arch in archs)
