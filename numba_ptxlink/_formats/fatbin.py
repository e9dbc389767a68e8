"""
Read the PTX in fat binaries, compressed or not.

NVIDIA does not document the format. The fields were found by comparing the fat binaries that nvcc and
nvFatbin of CUDA 13.0 and 13.5 write, with each value of --compress-mode.
"""

from __future__ import annotations

import ctypes
import struct
from typing import NamedTuple

from numba_ptxlink.errors import LinkError

MAGIC = 0xBA55ED50
"""The first four bytes of a fat binary."""
WRAPPER_MAGIC = 0x466243B1
"""The first four bytes of CUDA's `__fatBinC_Wrapper_t`, which has the address of a fat binary at byte 8."""
HEADER = struct.Struct("<IHHQ")
"""The header of a fat binary: magic, version, size of the header, and size of all members after it."""
# The header of a member: kind, version, size of the header, size of the content with padding, size of
# compressed content without padding, compute capability, flags, and size of the content when decompressed.
# The meaning of the other fields (`8x`) is not known.
_MEMBER = struct.Struct("<HHIQI8xI8xQ8xQ")
_PTX_KIND = 1
# Bits of the flags of a member: how its content is compressed.
_LZ4_FLAG, _ZSTD_FLAG = 0x2000, 0x8000
_CURE = "or build it with nvcc --no-compress."


class PtxMember(NamedTuple):
    """
    PTX in a fat binary.

    Args:
        arch: The compute capability that the PTX is for, such as 90.
        ptx: The text.
    """

    arch: int
    ptx: bytes


def ptx_members(code: bytes) -> list[PtxMember]:
    """
    Return the PTX in the fat binary *code*; machine code and LTO-IR are skipped.

    Raises:
        LinkError: The fat binary is damaged, or the library that decompresses its PTX is missing.
    """
    try:
        _, _, offset, size = HEADER.unpack_from(code)
        end = offset + size
        members = []
        while offset < end:
            kind, _, header_size, stored_size, compressed_size, arch, flags, plain_size = _MEMBER.unpack_from(
                code, offset
            )
            content = code[offset + header_size : offset + header_size + stored_size]
            if kind == _PTX_KIND:
                if flags & (_LZ4_FLAG | _ZSTD_FLAG):
                    # A size of 0 means that the compressed content has no padding.
                    content = _decompress(content[: compressed_size or None], plain_size, flags)
                members.append(PtxMember(arch, content.rstrip(b"\0")))
            offset += header_size + stored_size
    except struct.error as error:
        raise LinkError(f"The fat binary is damaged ({error}); build it again.") from error
    return members


def _decompress(content: bytes, size: int, flags: int) -> bytes:
    """Decompress the content of a member to *size* bytes, by libzstd or liblz4."""
    target = ctypes.create_string_buffer(size)
    try:
        if flags & _ZSTD_FLAG:
            decompress = ctypes.CDLL("libzstd.so.1").ZSTD_decompress
            decompress.restype = ctypes.c_size_t
            count = decompress(target, ctypes.c_size_t(size), content, ctypes.c_size_t(len(content)))
        else:
            decompress = ctypes.CDLL("liblz4.so.1").LZ4_decompress_safe
            count = decompress(content, target, len(content), size)
    except OSError as error:
        raise LinkError(
            f"The PTX of the fat binary is compressed, and the library that decompresses it cannot be "
            f"loaded ({error}); install the system's package libzstd1 or liblz4-1, {_CURE}"
        ) from error
    if count != size:
        raise LinkError(f"The PTX of the fat binary cannot be decompressed; build it again, {_CURE}")
    return target.raw
