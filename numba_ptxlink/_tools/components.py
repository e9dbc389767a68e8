"""List the tools of this environment: of which version each is, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink import _native
from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._formats.ptx.isa import newest_isa, release_of
from numba_ptxlink.errors import PtxlinkError

from . import build_id, nvvm, packages, pynvjitlink
from .nvdisasm import find_tool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .toolchain import Toolchain


@dataclass(frozen=True)
class Component:
    """
    One tool or library.

    Args:
        name: The name of the tool or library.
        version: Its version, "" if it is missing.
        where: The file it was loaded from, or its provider.
    """

    name: str
    version: str
    where: str


def components(tools: Toolchain, nvvm_release: tuple[int, int] | None) -> Iterator[Component]:
    """
    Yield every tool that takes part, and the packages that are installed.

    Args:
        tools: The versions that the tools report.
        nvvm_release: What `nvvm_version` says.
    """
    yield Component("nvPTXCompiler", dotted(tools.nvptxcompiler), _native.location() or "")
    for name, library, version in (
        ("nvJitLink", "nvJitLink", tools.nvjitlink),
        ("NVRTC", "nvrtc", tools.nvrtc),
        ("nvFatbin", "nvfatbin", tools.nvfatbin),
        ("NVVM", "nvvm", nvvm_release),
    ):
        yield Component(name, dotted(version), _library(library))
    try:
        yield Component("pynvjitlink", dotted(pynvjitlink.version()), pynvjitlink.package())
    except PtxlinkError:
        there = pynvjitlink.is_installed()
        where = f"{pynvjitlink.package()}: {pynvjitlink.NEEDS_DRIVER}" if there else "optional, for CUDA 12"
        yield Component("pynvjitlink", "present" if there else "", where)
    yield Component("driver", dotted(tools.driver), "libcuda.so.1" if tools.driver else "")
    nvdisasm = find_tool("nvdisasm")
    yield Component("nvdisasm", "present" if nvdisasm else "", nvdisasm or "")
    for package, number in tools.packages.items():
        yield Component(package, number, "installed package")


def nvvm_version(tools: Toolchain) -> tuple[int, int] | None:
    """Return the CUDA release of libNVVM, which does not report it; None if libNVVM cannot be loaded."""
    try:
        emitted = nvvm.emitted_isa(Arch(9, 0))
    except PtxlinkError:
        return None
    folder, library = packages.location("nvidia-nvvm"), _library("nvvm")
    if folder is not None and library and Path(library).resolve().is_relative_to(folder):
        release = _package_version(tools, packages.package("nvidia-nvvm"))
        # A folder may have packages of two major versions.
        if release is not None and newest_isa(release) in (emitted, None):
            return release
    # Another one is loaded than the package's; its PTX tells.
    return None if emitted is None else release_of(emitted)


def _package_version(tools: Toolchain, package: str) -> tuple[int, int] | None:
    try:
        major, minor = tools.packages[package].split(".")[:2]
        return (int(major), int(minor))
    except (KeyError, ValueError):
        return None


def _library(name: str) -> str:
    try:
        return build_id.library_path(name)
    except Exception:  # noqa: BLE001 - pathfinder raises a different type for each way of not finding it
        return ""
