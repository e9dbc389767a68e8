"""
LTO-IR inside fat binaries, host objects and archives: whether a link uses it, and what may replace it.

nvJitLink takes it only where it optimises at link time, and refuses it where it is newer than itself. The
machine code or PTX beside it, of the same source, links without that.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._arch import dotted
from numba_ptxlink._formats import containers, elf
from numba_ptxlink._formats.kinds import CU, LTOIR
from numba_ptxlink.errors import LinkError

from . import backends
from .device_runtime import is_runtime
from .explain import LAST_OF_CUDA_12, NEWER
from .inputs import Input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.containers import FatbinEntry

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reason:
    """
    Why inputs are optimised at link time without being asked for.

    Args:
        text: The reason, "" where they are not.
        needed: Whether there is no other way to link them.
    """

    text: str = ""
    needed: bool = False


def reason_for_lto(inputs: Sequence[Input], arch: Arch, *, python: bool = False) -> Reason:
    """
    Return why *inputs* are optimised at link time without being asked for, or that they are not.

    They are where LTO-IR in one of them meets other code that can be LTO-IR, or is all in it that fits.
    PTX and machine code call what is in LTO-IR no faster, and nvJitLink may take that for unused.

    Args:
        inputs: The inputs of the link, CUDA C++ included.
        arch: The architecture of the link.
        python: Whether Python functions are linked, too.
    """
    packed = [(source, held) for source in inputs if (held := _held(source, arch))]
    if not packed:
        return Reason()
    meets = python or any(source.kind == CU for source in inputs)
    meets |= len(packed) == len(inputs) and sum(len(held) for _, held in packed) > 1
    needed = any(other is None for _, held in packed for _, other in held)
    if not (meets or needed):
        return Reason()
    installed = backends.installed()
    for source, held in packed:
        for entry, _ in held:
            # NVIDIA promises that tools read LTO-IR of their own major release alone.
            if not needed and installed and (entry.version > LAST_OF_CUDA_12) != (installed[1][0] > 12):
                log.info("%s: the LTO-IR in it is of another major release of CUDA", source.name)
                return Reason()
    return Reason(f"LTO-IR in {', '.join(source.name for source, _ in packed)}", needed)


@dataclass(frozen=True)
class Replaced:
    """
    The inputs of a link with other code in place of LTO-IR.

    Args:
        inputs: The inputs.
        lto: Whether there is other LTO-IR among them.
        reason: What was replaced, and why.
    """

    inputs: tuple[Input, ...]
    lto: bool
    reason: str


def replaced(inputs: Sequence[Input], arch: Arch, failure: str) -> Replaced | None:
    """
    Return *inputs* with other code in place of the LTO-IR that nvJitLink does not read.

    Args:
        inputs: The inputs of a link with link-time optimisation.
        arch: The architecture of the link.
        failure: nvJitLink's log of that link.

    Returns:
        None where that is not why it failed, or nothing else is in such a container.
    """
    if NEWER not in failure:
        return None
    packed = {number: held for number, source in enumerate(inputs) if (held := _held(source, arch))}
    newest = max((entry.version for held in packed.values() for entry, _ in held), default=None)
    links: list[Input] = []
    said = []
    for number, source in enumerate(inputs):
        held = packed.get(number, [])
        if newest is None or all(entry.version < newest for entry, _ in held):
            links.append(source)
            continue
        others = [other for _, other in held if other is not None]
        contents = [(other.kind, other.content()) for other in others]
        pieces = [Input(kind, source.name, content) for kind, content in contents if content is not None]
        if len(pieces) < len(held) or len(held) < len(_fatbins(source)):
            return None
        links += pieces
        kinds = " and ".join(dict.fromkeys(piece.kind for piece in pieces))
        said.append(f"{kinds} of {source.name}, whose LTO-IR {dotted(newest)} nvJitLink does not read")
    lto = any(source.kind == LTOIR or _held(source, arch) for source in links)
    return Replaced(tuple(links), lto, "; ".join(said)) if said else None


def _held(source: Input, arch: Arch) -> list[tuple[FatbinEntry, FatbinEntry | None]]:
    """Return the LTO-IR that a link takes of each fat binary in *source*, and what it takes without LTO."""
    if source.kind not in containers.CONTAINERS or is_runtime(source):
        return []
    chosen = [
        (containers.chosen(entries, arch, lto=True), containers.chosen(entries, arch, lto=False))
        for entries in _fatbins(source)
    ]
    return [(ltoir, other) for ltoir, other in chosen if ltoir is not None and ltoir.kind == LTOIR]


def _fatbins(source: Input) -> list[tuple[FatbinEntry, ...]]:
    try:
        return containers.fatbins(source.code, source.kind, source.name)
    except (elf.UnfamiliarError, LinkError):
        # Whatever is wrong with it, the link tells.
        return []
