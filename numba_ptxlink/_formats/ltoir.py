"""What the project reads out of LTO-IR: the header of its container; the rest is the tools' own."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_MAGIC = b"\xedCN\x7f"
_VERSIONS = struct.Struct("<8B")
_ARCH_AT = 26


@dataclass(frozen=True)
class Header:
    """
    The header of an LTO-IR container.

    Args:
        container: Version of the container's format.
        ir: Version of NVVM IR in it.
        sm: The compute capability it was made for as one number, such as 90.
    """

    container: tuple[int, int]
    ir: tuple[int, int]
    sm: int


def read(code: bytes) -> Header | None:
    """Return the header of *code*, None where it is no LTO-IR or not a whole one."""
    if not code.startswith(_MAGIC) or len(code) < _ARCH_AT + 2:
        return None
    major, minor, ir_major, ir_minor, *_ = _VERSIONS.unpack_from(code, len(_MAGIC))
    (tenfold,) = struct.unpack_from("<H", code, _ARCH_AT)
    return Header((major, minor), (ir_major, ir_minor), tenfold // 10)
