"""
Read the header of an LTO-IR container.

Undocumented. The magic number is the one that numba-cuda's tests check. The fields were found by comparing
the output of NVRTC 12.4, 12.9 and 13.5 for the architectures from compute_75 to compute_120 that each
supports: bytes 4 to 7 change with the release only, and the halfword at byte 26 is ten times the compute
capability in every one.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .kinds import KINDS, LTOIR

_MAGIC = KINDS[LTOIR].magic
_VERSIONS = struct.Struct("<8B")
_ARCH_AT = 26


@dataclass(frozen=True)
class Header:
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


def read(code: bytes) -> Header | None:
    """Return the header of *code*, None if it is not LTO-IR or is truncated."""
    if not code.startswith(_MAGIC) or len(code) < _ARCH_AT + 2:
        return None
    major, minor, ir_major, ir_minor, *_ = _VERSIONS.unpack_from(code, len(_MAGIC))
    (tenfold,) = struct.unpack_from("<H", code, _ARCH_AT)
    return Header((major, minor), (ir_major, ir_minor), tenfold // 10)
