"""The kinds of code that can be linked: a row for each, and how a file or its content is recognised."""

from __future__ import annotations

import struct
from typing import NamedTuple

PTX, LTOIR, CUBIN, OBJECT = "ptx", "ltoir", "cubin", "object"
FATBIN, ARCHIVE, CU = "fatbin", "archive", "cu"

KERNELS, LAUNCHER = "kernels", "launcher"
"""What an export writes beside code that is linked: a fat binary that a driver loads, and C++ around it."""

EM_CUDA = 190
THIN_ARCHIVE = b"!<thin>\n"
"""What an archive begins with that has the paths of its members in their place."""
_ELF = b"\x7fELF"


class Kind(NamedTuple):
    """
    A kind of code.

    Args:
        name: What options and messages call it.
        extensions: The extensions of its files, the usual one first.
        magic: What its content begins with, b"" where that does not tell.
        nvjitlink: nvJitLink's name for it as an `nvJitLinkInputType`, "" for what it does not link.
        artifact: Whether an export writes it.
    """

    name: str
    extensions: tuple[str, ...]
    magic: bytes = b""
    nvjitlink: str = ""
    artifact: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        Kind(PTX, (".ptx",), nvjitlink="PTX", artifact=True),
        Kind(LTOIR, (".ltoir",), b"\xedCN\x7f", "LTOIR", artifact=True),
        Kind(CUBIN, (".cubin",), nvjitlink="CUBIN", artifact=True),
        Kind(OBJECT, (".o", ".obj"), nvjitlink="OBJECT"),
        Kind(FATBIN, (".fatbin",), b"\x50\xed\x55\xba", "FATBIN", artifact=True),
        Kind(ARCHIVE, (".a", ".lib"), b"!<arch>\n", "LIBRARY"),
        Kind(CU, (".cu",)),
    )
}
EXTENSIONS = {extension: kind.name for kind in KINDS.values() for extension in kind.extensions}
ARTIFACTS = tuple(kind.name for kind in KINDS.values() if kind.artifact)


def recognise(code: bytes) -> str | None:
    """Return the kind of *code* by its content, None for one that is none of `KINDS`."""
    if code.startswith(_ELF):
        machine = struct.unpack_from("<H", code, 18)[0] if len(code) >= 20 else 0
        return CUBIN if machine == EM_CUDA else OBJECT
    if code.startswith(THIN_ARCHIVE):
        return ARCHIVE
    for kind in KINDS.values():
        if kind.magic and code.startswith(kind.magic):
            return kind.name
    from . import texts
    from .ptx.header import begins_module

    # Compilers of PTX take any bytes in comments and strings.
    stripped = b"" if code.startswith(b"\0") else code.rstrip(b"\0")
    if not stripped.strip() or b"\0" in stripped:
        return None
    text = stripped.decode(errors="surrogateescape")
    if begins_module(text):
        return PTX
    return CU if texts.is_utf_8(code) and texts.is_cxx(text) else None
