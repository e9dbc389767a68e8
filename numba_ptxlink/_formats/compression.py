"""
Decompress entries of fat binaries: LZ4 from older toolkits and for speed, otherwise zstd.

Undocumented. LZ4 and its flag agree with github.com/n-eiling/cuda-fatbin-decompression; zstd and its flag
were found by comparing what the tools of CUDA 12.4 to 13.5 write with each of their compression options.
"""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

LZ4, ZSTD = 0x2000, 0x8000
"""The flags of an entry that is compressed with LZ4 or zstd."""

# More than any code; an entry that declares more is damaged, or not worth the memory.
_LARGEST = 1 << 30
# The largest compression ratio of the LZ4 block format.
_BEST_OF_LZ4 = 255


def unpack(packed: bytes, flags: int, size: int) -> bytes | None:
    """
    Decompress the content of a fat binary's entry.

    Args:
        packed: Its compressed bytes, without padding.
        flags: The entry's flags.
        size: The decompressed size in its header.

    Returns:
        The content, None if it is damaged, compressed in another way, or the library for it is missing.
    """
    if not 0 < size <= _LARGEST:
        return None
    try:
        content = _lz4(packed, size) if flags & LZ4 else _zstd(packed, size) if flags & ZSTD else None
    except Exception as error:  # noqa: BLE001 - each library has exceptions of its own
        log.debug("an entry of a fat binary cannot be decompressed: %s", error)
        return None
    return content if content is not None and len(content) == size else None


def _lz4(packed: bytes, size: int) -> bytes | None:
    import lz4.block

    # The library allocates the declared size before it reads.
    if size > _BEST_OF_LZ4 * len(packed):
        return None
    content: bytes = lz4.block.decompress(packed, uncompressed_size=size)
    return content


def _zstd(packed: bytes, size: int) -> bytes | None:
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    reader = zstd.ZstdDecompressor()
    content: bytes = reader.decompress(packed, max_length=size)
    return content if reader.eof else None
