"""
Read the header of LTO-IR.

NVIDIA does not document it. The fields were found by comparing the output of NVRTC 12.4, 12.9 and 13.5 for
the architectures from compute_75 to compute_120 that each supports: bytes 4 to 7 change with the release
only, and the halfword at byte 26 is ten times the compute capability in every one.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from .kinds import KINDS, LTOIR

_HEADER = struct.Struct("<4x4B18xH")


class LtoirHeader(NamedTuple):
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


def read_header(code: bytes) -> LtoirHeader | None:
    """Return the header of *code*, None if it is not LTO-IR or is truncated."""
    if not code.startswith(KINDS[LTOIR].magic) or len(code) < _HEADER.size:
        return None
    major, minor, ir_major, ir_minor, tenfold = _HEADER.unpack_from(code)
    return LtoirHeader((major, minor), (ir_major, ir_minor), tenfold // 10)
