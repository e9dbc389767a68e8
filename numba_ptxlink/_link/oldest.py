"""
Which toolkit and driver an artifact needs at least.

A linker reads PTX, LTO-IR and machine code of its own release and of older ones. A driver compiles PTX of its
own release and of older ones, and loads machine code of all releases of its major version.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._formats.containers import ZSTD, fatbin_entries, ltoir_header
from numba_ptxlink._formats.kinds import CUBIN, FATBIN, KERNELS, LAUNCHER, LTOIR, PTX
from numba_ptxlink._formats.ptx import read_header
from numba_ptxlink._formats.ptx.header import OLDEST, arch_since, first_release, release_of
from numba_ptxlink._tools import nvvm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Release = tuple[int, int]

# The version of the IR in the head of LTO-IR, as NVRTC and nvcc of each release write it. It grows with the
# release; that of a release which is not listed counts as the next one's.
_LTOIR_SINCE = {
    (2, 51): (12, 0),
    (2, 63): (12, 3),
    (2, 71): (12, 4),
    (2, 84): (12, 6),
    (2, 89): (12, 8),
    (2, 93): (12, 9),
    (2, 98): (13, 0),
    (2, 107): (13, 1),
    (2, 114): (13, 2),
    (2, 115): (13, 3),
    (2, 120): (13, 4),
    (2, 131): (13, 5),
}

ZSTD_SINCE = (12, 4)
"""The first release that reads fat binaries with zstd in them: nvJitLink 12.3 refuses them."""


@dataclass(frozen=True)
class Oldest:
    """
    The oldest CUDA releases that an artifact can be used with; None where it is not used with one.

    Args:
        toolkit: The release of the linker.
        driver: The CUDA version of the driver that loads it, or what is linked of it alone.
    """

    toolkit: Release | None
    driver: Release | None

    def described(self) -> dict[str, str | None]:
        """Return it as manifests have it."""
        return {name: release and dotted(release) for name, release in vars(self).items()}


def of_code(kind: str, arch: Arch, code: bytes, tool: str) -> Oldest:
    """
    Return what one piece of code needs.

    Args:
        kind: "ptx", "ltoir" or "cubin".
        arch: The GPU it is for.
        code: The code.
        tool: Name and release of what compiled a cubin.
    """
    if kind == PTX:
        version = read_header(code.decode()).version
        release = first_release(version or OLDEST)
        return Oldest(release, release)
    if kind == LTOIR:
        return Oldest(_written_by(code) or ltoir_release(arch), None)
    major, minor = map(int, tool.rpartition(" ")[2].split("."))
    known = arch_since(arch.sm)
    return Oldest((major, minor), max((major, 0), first_release(known) if known else (major, minor)))


def _written_by(ltoir: bytes) -> Release | None:
    """Return the release of the tool that wrote *ltoir*, None for one that is not known yet."""
    head = ltoir_header(ltoir)
    return next((release for version, release in _LTOIR_SINCE.items() if head and head.ir <= version), None)


def ltoir_release(arch: Arch) -> Release | None:
    """Return the CUDA release of the LTO-IR that this environment's NVVM writes, None where it is unknown."""
    emitted = nvvm.emitted_isa(arch)
    return None if emitted is None else release_of(emitted)


def of_fatbin(members: Iterable[tuple[str, Oldest]], code: bytes | None, *, linkable: bool = True) -> Oldest:
    """
    Return what a fat binary needs, so that it is linked or loaded for the architectures it is for.

    Args:
        members: The kind of each member, and what this needs.
        code: The fat binary, None for what has one in it.
        linkable: Whether its code is relocatable.
    """
    members = list(members)
    entries = fatbin_entries(code) if code else ()
    packed = [ZSTD_SINCE] if any(entry.flags & ZSTD for entry in entries) else []
    # PTX is compiled where there is no machine code for the device.
    loaded = [oldest for kind, oldest in members if kind == CUBIN] or [
        oldest for kind, oldest in members if kind == PTX
    ]
    driver = _newest([*packed, *(oldest.driver for oldest in loaded)])
    toolkit = _newest([*packed, *(oldest.toolkit for _, oldest in members)])
    return Oldest(toolkit if linkable else None, driver)


def of_artifacts(
    files: Mapping[tuple[str, str], bytes],
    packed: Iterable[tuple[str, Arch, str, bytes]],
    tool: str,
    executable: Oldest | None,
) -> dict[tuple[str, str], Oldest]:
    """
    Return what each artifact of an export needs, by kind and architecture.

    Args:
        files: The artifacts.
        packed: The code for each architecture, as (kind, arch, name, code).
        tool: Name and release of what compiled the cubins.
        executable: What the code that a driver loads needs, None without such.
    """
    needs = {(kind, arch.sm): of_code(kind, arch, code, tool) for kind, arch, _, code in packed}
    members = [(kind, need) for (kind, _), need in needs.items()]
    for key, code in files.items():
        if key[0] == FATBIN:
            needs[key] = of_fatbin(members, code)
        elif executable and key[0] in (KERNELS, LAUNCHER):
            needs[key] = executable
        elif key not in needs and key[1]:
            needs[key] = of_code(key[0], Arch.of(key[1]), code, tool)
        elif key not in needs:
            needs[key] = of_fatbin(members, None)
    return needs


def _newest(releases: Sequence[Release | None]) -> Release | None:
    return max((release for release in releases if release), default=None)
