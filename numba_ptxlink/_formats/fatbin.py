"""
Read the PTX in fat binaries, compressed or not.

NVIDIA does not document the format. The fields were found in what nvcc and nvFatbin of CUDA 13.0 and 13.5
write, with each value of --compress-mode.
"""

from __future__ import annotations

import ctypes
import struct
from typing import NamedTuple

from numba_ptxlink.errors import LinkError

MAGIC = 0xBA55ED50
WRAPPER_MAGIC = 0x466243B1
"""Begins `__fatBinC_Wrapper_t` of fatbinary_section.h; the address of a fat binary follows after 8 bytes."""
HEADER = struct.Struct("<IHHQ")
"""Magic, version, bytes of the header, and bytes of the members after it."""
# Kind, version, bytes of the header, of the stored and of the compressed content, arch, flags, plain bytes.
_MEMBER = struct.Struct("<HHIQI8xI8xQ8xQ")
_PTX_KIND = 1
_IS_LZ4, _IS_ZSTD = 0x2000, 0x8000
_CURE = "or build it with nvcc --no-compress."


class PtxMember(NamedTuple):
    """
    PTX in a fat binary.

    Args:
        arch: The compute capability that it is for, such as 90.
        ptx: The text.
    """

    arch: int
    ptx: bytes


def ptx_members(code: bytes) -> list[PtxMember]:
    """
    Return the PTX of a fat binary; machine code and LTO-IR are skipped.

    Raises:
        LinkError: The fat binary is damaged, or the library that it is compressed with is missing.
    """
    try:
        _, _, offset, size = HEADER.unpack_from(code)
        end, members = offset + size, []
        while offset < end:
            kind, _, header_size, stored_size, compressed_size, arch, flags, plain_size = _MEMBER.unpack_from(
                code, offset
            )
            content = code[offset + header_size : offset + header_size + stored_size]
            if kind == _PTX_KIND:
                if flags & (_IS_LZ4 | _IS_ZSTD):
                    content = _decompress(content[: compressed_size or None], plain_size, flags)
                members.append(PtxMember(arch, content.rstrip(b"\0")))
            offset += header_size + stored_size
    except struct.error as error:
        raise LinkError(f"The fat binary is damaged ({error}); build it again.") from error
    return members


def _decompress(content: bytes, size: int, flags: int) -> bytes:
    """Return the content of a member, by the C library of the compression."""
    target = ctypes.create_string_buffer(size)
    try:
        if flags & _IS_ZSTD:
            function = ctypes.CDLL("libzstd.so.1").ZSTD_decompress
            function.restype = ctypes.c_size_t
            count = function(target, ctypes.c_size_t(size), content, ctypes.c_size_t(len(content)))
        else:
            function = ctypes.CDLL("liblz4.so.1").LZ4_decompress_safe
            count = function(content, target, len(content), size)
    except OSError as error:
        raise LinkError(
            f"The PTX of the fat binary is compressed, and its library is missing ({error}); install the "
            f"system's package libzstd1 or liblz4-1, {_CURE}"
        ) from error
    if count != size:
        raise LinkError(f"The PTX of the fat binary cannot be decompressed; build it again, {_CURE}")
    return target.raw
