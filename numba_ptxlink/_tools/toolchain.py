"""Query all tools of this environment: their versions, and the architectures for "native" and "all"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from numba_ptxlink._arch import Arch, ArchLike, dotted, isa_introducing
from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink.errors import ConfigError, LaunchError, PtxlinkError

from . import driver, find, nvfatbin, nvjitlink, nvptxcompiler, nvrtc, nvvm

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._arch import PtxVersion

_TOOLS: dict[str, Any] = {
    "nvptxcompiler": nvptxcompiler,
    "nvjitlink": nvjitlink,
    "nvrtc": nvrtc,
    "nvvm": nvvm,
    "nvfatbin": nvfatbin,
    "driver": driver,
}
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
    "pynvjitlink-cu12",
    # Packages of CUDA 12, where NVVM is in nvcc's package.
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
        nvptxcompiler: Version of the PTX compiler inside this package; None if it cannot be loaded.
        archs: The architectures that nvPTXCompiler generates code for, as listed by the library; empty if it
            cannot be loaded.
        ptx_versions: The PTX ISA versions that nvPTXCompiler reads; empty if it cannot be loaded.
        nvjitlink: nvJitLink's version; None if it cannot be loaded.
        nvrtc: NVRTC's version; None if it cannot be loaded.
        nvvm: The CUDA release of libNVVM; None if it cannot be loaded.
        nvfatbin: nvFatbin's version; None if it cannot be loaded.
        driver: The newest CUDA version that the driver supports; None without a driver.
        packages: The versions of the installed packages that are involved, by name.
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
    """Return the versions that the tools report. Needs neither a GPU nor a driver."""
    versions = {name: _version(name) for name in _TOOLS}
    has_compiler = versions["nvptxcompiler"] is not None
    return Toolchain(
        archs=nvptxcompiler.supported_archs() if has_compiler else (),
        ptx_versions=nvptxcompiler.supported_ptx_versions() if has_compiler else (),
        packages=find.installed_versions(_PACKAGES),
        **versions,
    )


def releases(names: Iterable[str]) -> dict[str, str]:
    """Return the releases, such as "13.0", of those libraries of *names* that are installed, by name."""
    return {name: dotted(release) for name in names if (release := _version(name))}


def _version(name: str) -> tuple[int, int] | None:
    """Return the version of one of `_TOOLS`; None if it cannot be loaded."""
    try:
        version: tuple[int, int] | None = _TOOLS[name].version()
    except PtxlinkError:
        return None
    return version


def parse_archs(archs: ArchLike | Iterable[ArchLike], newest: PtxVersion | None = None) -> tuple[Arch, ...]:
    """
    Return the architectures that *archs* names, each once, in order.

    Args:
        archs: An architecture or several, or text with commas. As for nvcc, "native" means the architectures
            of the devices of this machine, "all" those that the installed toolkit supports, and "all-major"
            the oldest of these and the first of each generation.
        newest: The newest PTX version to write: "all" and "all-major" skip architectures that need a newer
            one.

    Raises:
        ConfigError: A word is neither an architecture nor one of these three, or there is no driver or device
            for "native".
        LinkError: The toolkit cannot be loaded.
    """
    parsed: list[Arch] = []
    for arch in _as_list(archs):
        if not isinstance(arch, str):
            parsed.append(Arch.of(arch))
            continue
        for word in map(str.strip, arch.split(",")):
            parsed += _archs_of_word(word, newest)
    return tuple(dict.fromkeys(parsed))


def _as_list(archs: ArchLike | Iterable[ArchLike]) -> Iterable[ArchLike]:
    """Return the items of *archs*, or *archs* itself as the only item if it is one architecture or text."""
    if isinstance(archs, str) or not hasattr(archs, "__iter__"):
        return [archs]
    arch_list = tuple(archs)
    # A compute capability, such as (9, 0), is one architecture.
    if arch_list and isinstance(arch_list[0], int):
        return [cast("ArchLike", arch_list)]
    return cast("Iterable[ArchLike]", arch_list)


def _archs_of_word(word: str, newest: PtxVersion | None) -> Sequence[Arch]:
    """Return the architectures that *word* means: "native", "all", "all-major" or one architecture."""
    if word == "native":
        try:
            return driver.archs()
        except LaunchError as error:
            raise ConfigError(
                f'"native" needs a driver with a device, and there is none ({error.__cause__ or error}); '
                'pass an architecture, such as "sm_90", or export on a machine with the device.'
            ) from error
    if word not in ("all", "all-major"):
        return [Arch.of(word)]
    # Supported by NVRTC, for CUDA C++, and by libNVVM, for Python.
    supported = [arch for arch in nvrtc.supported_archs() if nvvm.emitted_isa(arch) is not None]
    if newest is not None:
        supported = [
            arch for arch in supported if (since := isa_introducing(arch.sm)) is not None and since <= newest
        ]
    if word == "all":
        return supported
    # "all-major": the oldest, and the first of each generation, which has the minor version 0.
    return [arch for arch in supported if arch == supported[0] or not arch.minor]
