"""What a cubin holds: kernels by their Python names, and digests of the machine code."""

from __future__ import annotations

import hashlib
import re

from numba_ptxlink._formats import elf

_PART = re.compile(r"\.(text|nv\.constant\d+|nv\.global\.init|nv\.global|nv\.shared|nv\.local)(?=\.|$)")


def kernels(cubin: bytes) -> list[str]:
    """Return the names of the kernels."""
    return sorted(symbol.name for symbol in elf.read(cubin).symbols if symbol.kind == "entry")


def code(cubin: bytes) -> dict[str, str]:
    """
    Return a digest of the bytes of each kind of section that a launch depends on, without any symbol's name.

    Text, constants, initialised globals; of what occupies no bytes in the file, the size.
    """
    parts: dict[str, list[str]] = {}
    for section in elf.read(cubin).sections:
        if match := _PART.match(section.name):
            digest = hashlib.sha256(section.content).hexdigest()[:12]
            parts.setdefault(match[1], []).append(f"{section.size}:{digest}")
    return {name: " ".join(sorted(found)) for name, found in sorted(parts.items())}


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
