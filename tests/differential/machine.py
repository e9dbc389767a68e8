"""Contents of a cubin, read without this project's own readers: kernels, and digests of the machine code."""

from __future__ import annotations

import hashlib
import re
import struct
from typing import NamedTuple

_NO_BYTES = (8, 0x70000007, 0x7000000A)
_SYMTAB = 2
_FUNCTION = 2
_ENTRY = 0x10
_PART = re.compile(r"\.(text|nv\.constant\d+|nv\.global\.init|nv\.global|nv\.shared|nv\.local)(?=\.|$)")


class Section(NamedTuple):
    """A section: its name, type, size and bytes."""

    name: str
    kind: int
    size: int
    code: bytes
    link: int


def sections(cubin: bytes) -> list[Section]:
    """Return the sections of the 64-bit little-endian ELF file *cubin* (System V ABI, chapter 4)."""
    start, count, names = *struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<HH", cubin, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + 64 * i) for i in range(count)]
    strings = headers[names][4]

    def text(offset: int) -> str:
        return cubin[strings + offset : cubin.index(b"\0", strings + offset)].decode()

    return [
        Section(text(name), kind, size, b"" if kind in _NO_BYTES else cubin[at : at + size], link)
        for name, kind, _, _, at, size, link, *_ in headers
    ]


def kernels(cubin: bytes) -> list[str]:
    """Return the names of the kernels, which are the functions that NVIDIA's tools mark as entries."""
    return functions(cubin, mark=_ENTRY)


def functions(cubin: bytes, mark: int = 0) -> list[str]:
    """Return the names of all functions that are defined, or of those with *mark* in their symbols."""
    all_sections = sections(cubin)
    names = []
    for table in all_sections:
        if table.kind != _SYMTAB:
            continue
        strings = all_sections[table.link].code
        for name, info, other, section, *_ in struct.iter_unpack("<IBBHQQ", table.code):
            if info & 15 == _FUNCTION and section and other & mark == mark:
                names.append(strings[name : strings.index(b"\0", name)].decode())
    return sorted(names)


def code(cubin: bytes) -> dict[str, str]:
    """
    Return a digest of the bytes of each kind of section that a launch depends on, without any symbol's name.

    Text, constants, initialised globals; of what occupies no bytes in the file, the size.
    """
    parts: dict[str, list[str]] = {}
    for section in sections(cubin):
        match = _PART.match(section.name)
        if match:
            digest = hashlib.sha256(section.code).hexdigest()[:12] if section.code else ""
            parts.setdefault(match[1], []).append(f"{section.size}:{digest}")
    return {name: " ".join(sorted(digests)) for name, digests in sorted(parts.items())}


def plain_name(symbol: str) -> str:
    """
    Return the Python name in a mangled *symbol*, `module.outer.inner`, without counters and types.

    Numba mangles as the Itanium C++ ABI: `_ZN`, parts with their length before them, each with ABI tags.
    """
    if not symbol.startswith("_ZN"):
        return symbol
    parts, at = [], 3
    while match := re.compile(r"(B?)(\d+)").match(symbol, at):
        end = match.end() + int(match[2])
        if not match[1]:
            parts.append(symbol[match.end() : end])
        at = end
    return ".".join(parts)
