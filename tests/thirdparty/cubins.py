"""Whether two cubins hold the same machine code, and by which rule they may differ."""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

# NOBITS, and what ptxas of CUDA 13.3 and later uses in its place.
_NO_BYTES = (8, 0x70000007, 0x7000000A)
_CODE = re.compile(r"\.(text|nv\.constant\d+|nv\.global\.init|nv\.global|nv\.shared)(?=\.|$)")
_SYMTAB = 2


class Section(NamedTuple):
    """One section of an ELF file."""

    name: str
    kind: int
    size: int
    link: int
    content: bytes


def sections(cubin: bytes) -> list[Section]:
    """Return the sections of a 64-bit little-endian ELF file (System V ABI, chapter 4)."""
    (start,) = struct.unpack_from("<Q", cubin, 40)
    count, names = struct.unpack_from("<HH", cubin, 60)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + 64 * number) for number in range(count)]
    table = headers[names][4]
    return [
        Section(
            cubin[table + name : cubin.index(b"\0", table + name)].decode(),
            kind,
            size,
            link,
            b"" if kind in _NO_BYTES else cubin[at : at + size],
        )
        for name, kind, _, _, at, size, link, *_ in headers
    ]


def code(cubin: bytes) -> dict[str, list[tuple[int, bytes]]]:
    """Return what a launch depends on by its kind of section, without the names of functions."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for section in sections(cubin):
        if match := _CODE.match(section.name):
            found.setdefault(match[1], []).append((section.size, section.content))
    return {kind: sorted(parts) for kind, parts in found.items()}


def initialised(cubin: bytes) -> Counter[tuple[str, bytes]]:
    """Return the initialised variables with their values; a linker numbers those of one name, `name$5`."""
    found = sections(cubin)
    variables: Counter[tuple[str, bytes]] = Counter()
    for table in found:
        if table.kind != _SYMTAB:
            continue
        names = found[table.link].content
        for at, _, _, home, start, size in struct.iter_unpack("<IBBHQQ", table.content):
            if home < len(found) and found[home].name.startswith(".nv.global.init") and size:
                name = names[at : names.index(b"\0", at)].decode()
                value = found[home].content[start : start + size]
                variables[re.sub(r"\$\d+$", "", name), value] += 1
    return variables


def explain(stock: Path, plugin: Path) -> str:
    """
    Return the name of the rule by which the machine code is equal or differs, "" where none holds.

    - "equal": the same bytes, the names of symbols left out.
    - "order of variables": equal but for where initialised variables lie. nvJitLink lays them out in the
      order of its inputs, and stock hands over its link files in the order of a set.
    """
    cubins = stock.read_bytes(), plugin.read_bytes()
    one, other = (code(each) for each in cubins)
    if one == other:
        return "equal"
    variables = "nv.global.init"
    same = _without(one, variables) == _without(other, variables)
    return "order of variables" if same and initialised(cubins[0]) == initialised(cubins[1]) else ""


def _without(found: dict[str, list[tuple[int, bytes]]], kind: str) -> dict[str, list[tuple[int, bytes]]]:
    return {name: parts for name, parts in found.items() if name != kind}


def assembled(ptx: Path, arch: str, beside: Path) -> Path:
    """Return the cubin that the ptxas of the toolkit makes of a PTX file, as a file *beside* another."""
    from cuda import pathfinder

    made, text = beside.with_suffix(".ptxas"), beside.with_suffix(".ptx")
    # Warp ends its files with a NUL, which ptxas reads as part of the text.
    text.write_bytes(ptx.read_bytes().rstrip(b"\0"))
    tool = pathfinder.find_nvidia_binary_utility("ptxas")
    subprocess.run([tool, f"-arch={arch}", str(text), "-o", str(made)], check=True, capture_output=True)
    return made
