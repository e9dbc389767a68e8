"""
Read the header of LTO-IR.

NVIDIA does not document it. The fields were found by comparing the output of NVRTC 12.4, 12.9 and 13.5 for
the architectures from compute_75 to compute_120 that each supports: bytes 4 to 7 change with the release
only, and the halfword at byte 26 is ten times the compute capability in every one.
"""

from __future__ import annotations

import struct

from .kinds import KINDS, LTOIR

_HEADER = struct.Struct("<6x2B18xH")


def read_header(code: bytes) -> tuple[tuple[int, int], int] | None:
    """Return the version of the NVVM IR and the compute capability, such as 90; None without LTO-IR."""
    if not code.startswith(KINDS[LTOIR].magic) or len(code) < _HEADER.size:
        return None
    major, minor, tenfold = _HEADER.unpack_from(code)
    return (major, minor), tenfold // 10
