"""Report the versions of all tools in this environment."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from numba_ptxlink._arch import dotted
from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink.errors import PtxlinkError

from . import driver, nvfatbin, nvjitlink, nvptxcompiler, nvrtc, nvvm

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba_ptxlink._arch import Arch, PtxVersion

_PACKAGES = (
    "numba-ptxlink",
    "numba",
    *FRONT_ENDS,
    "numpy",
    "cuda-core",
    "cuda-bindings",
    "nvidia-nvvm",
    "nvidia-nvjitlink",
    "nvidia-cuda-nvrtc",
    "nvidia-nvfatbin",
    # CUDA 12's, where nvcc's package has NVVM.
    "nvidia-cuda-nvcc-cu12",
    "nvidia-nvjitlink-cu12",
    "nvidia-cuda-nvrtc-cu12",
    "nvidia-nvfatbin-cu12",
)


@dataclass(frozen=True)
class Toolchain:
    """
    The tools of this environment, with the versions they report.

    Args:
        nvptxcompiler: Version of the PTX compiler inside this package, None if it cannot be loaded.
        archs: The architectures it generates code for, as listed by the library; none if it cannot be loaded.
        ptx_versions: The PTX ISA versions it reads; none if it cannot be loaded.
        nvjitlink: nvJitLink's version, None if it cannot be loaded.
        nvrtc: NVRTC's version, None if it cannot be loaded.
        nvvm: The CUDA release of libNVVM, None if it cannot be loaded.
        nvfatbin: nvFatbin's version, None if it cannot be loaded.
        driver: The newest CUDA version the driver supports, None without a driver.
        packages: The versions of the installed packages involved.
    """

    nvptxcompiler: tuple[int, int] | None
    archs: tuple[Arch, ...]
    ptx_versions: tuple[PtxVersion, ...]
    nvjitlink: tuple[int, int] | None
    nvrtc: tuple[int, int] | None
    nvvm: tuple[int, int] | None
    nvfatbin: tuple[int, int] | None
    driver: tuple[int, int] | None
    packages: dict[str, str]


def toolchain() -> Toolchain:
    """Return the version of every tool, as the tool reports it. Needs neither a GPU nor a driver."""
    own = _if_there(nvptxcompiler.version)
    return Toolchain(
        nvptxcompiler=own,
        archs=nvptxcompiler.supported_archs() if own else (),
        ptx_versions=nvptxcompiler.supported_ptx_versions() if own else (),
        nvjitlink=_if_there(nvjitlink.version),
        nvrtc=_if_there(nvrtc.version),
        nvvm=_if_there(nvvm.version),
        nvfatbin=_if_there(nvfatbin.version),
        driver=driver.version(),
        packages=dict(filter(None, map(_installed, _PACKAGES))),
    )


def used(*, merged: bool, packed: bool) -> dict[str, str]:
    """
    Return the releases of the libraries that an export calls, by their names.

    Args:
        merged: Whether nvJitLink merged link files.
        packed: Whether nvFatbin packed a fat binary.
    """
    releases = {
        "nvvm": _if_there(nvvm.version),
        "nvrtc": _if_there(nvrtc.version),
        "nvjitlink": _if_there(nvjitlink.version) if merged else None,
        "nvfatbin": _if_there(nvfatbin.version) if packed else None,
    }
    return {name: dotted(release) for name, release in releases.items() if release}


def _if_there(version: Callable[[], tuple[int, int] | None]) -> tuple[int, int] | None:
    try:
        return version()
    except PtxlinkError:
        return None


def _installed(package: str) -> tuple[str, str] | None:
    try:
        return (package, metadata.version(package))
    except metadata.PackageNotFoundError:
        return None
