"""
Read the headers of a fat binary and of LTO-IR.

NVIDIA does not document fat binaries. The fields agree with the public reverse-engineered header
fatbin-decompress.h (github.com/n-eiling/cuda-fatbin-decompression). The flags of the variants "a" and "f"
were found by packing the same code in the ways that the tools of CUDA 12.4 to 13.5 offer.

Nor does it document LTO-IR. The fields of its header were found by comparing the output of NVRTC 12.4, 12.9
and 13.5 for the architectures from compute_75 to compute_120 that each supports: bytes 4 to 7 change with the
release only, and the halfword at byte 26 is ten times the compute capability in every one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink.errors import LinkError

from .kinds import CUBIN, FATBIN, KINDS, LTOIR, PTX

if TYPE_CHECKING:
    from collections.abc import Iterator

_FATBIN = struct.Struct("<IHHQ")
_MAGIC = 0xBA55ED50
# Kind, version, size of this header, size of the content, two sizes and a version, architecture, offset and
# length of the name, flags.
_ENTRY = struct.Struct("<HHIQIIIIQQ")
_ENTRY_KINDS = {1: PTX, 2: CUBIN, 8: LTOIR}
_OWN_ARCH, _FAMILY = 0x100000, 0x200000
_VERSIONS = struct.Struct("<8B")
_ARCH_AT = 26
ZSTD = 0x8000
"""The flag of what is compressed by zstd."""


@dataclass(frozen=True)
class FatbinEntry:
    """
    One piece of code in a fat binary.

    Args:
        kind: "ptx", "cubin", "ltoir", or the number that the container has for another kind.
        arch: The architecture it is for.
        size: Its size in the container in bytes, None where it is not known.
        flags: The flags of its header, which have the compression.
    """

    kind: str
    arch: str
    size: int | None
    flags: int = field(default=0, repr=False)


def fatbin_entries(code: bytes, name: str = FATBIN) -> tuple[FatbinEntry, ...]:
    """
    Return the entries of a fat binary.

    Raises:
        LinkError: It is damaged, or of a form that is not known here.
    """
    try:
        return tuple(_entries(code))
    except (struct.error, OverflowError, ValueError) as error:
        raise LinkError(
            f"{name} is not a whole fat binary ({error}); generate or copy it again.", inputs=(name,)
        ) from error


def _entries(code: bytes) -> Iterator[FatbinEntry]:
    magic, _, at, size = _FATBIN.unpack_from(code)
    end = at + size
    if magic != _MAGIC or at < _FATBIN.size or end > len(code):
        raise ValueError(f"it says it has {end} bytes, and has {len(code)}")
    while at < end:
        number, _, header, size, _, _, _, sm, _, flags = _ENTRY.unpack_from(code, at)
        if header < _ENTRY.size or at + header + size > end:
            raise ValueError(f"the entry at byte {at} ends past its end")
        variant = "a" if flags & _OWN_ARCH else "f" if flags & _FAMILY else ""
        yield FatbinEntry(_ENTRY_KINDS.get(number, str(number)), f"sm_{sm}{variant}", size, flags)
        at += header + size


@dataclass(frozen=True)
class LtoirHeader:
    """
    The header of an LTO-IR container.

    Args:
        container: Version of the container's format.
        ir: Version of the NVVM IR in it.
        sm: The compute capability it was compiled for, as one number such as 90.
    """

    container: tuple[int, int]
    ir: tuple[int, int]
    sm: int


def ltoir_header(code: bytes) -> LtoirHeader | None:
    """Return the header of *code*, None if it is not LTO-IR or is truncated."""
    if not code.startswith(KINDS[LTOIR].magic) or len(code) < _ARCH_AT + 2:
        return None
    major, minor, ir_major, ir_minor, *_ = _VERSIONS.unpack_from(code, len(KINDS[LTOIR].magic))
    (tenfold,) = struct.unpack_from("<H", code, _ARCH_AT)
    return LtoirHeader((major, minor), (ir_major, ir_minor), tenfold // 10)
