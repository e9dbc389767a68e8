"""Whether two cubins hold the same machine code, and by which rule they may differ."""

from __future__ import annotations

import io
import re
import subprocess
from collections import Counter
from typing import TYPE_CHECKING

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

if TYPE_CHECKING:
    from pathlib import Path

# Section types of ptxas since CUDA 13.3 that occupy no bytes in the file, like NOBITS.
_NO_BYTES = ("SHT_NOBITS", 0x70000007, 0x7000000A)
_CODE = re.compile(r"\.(text|nv\.constant\d+|nv\.global\.init|nv\.global|nv\.shared)(?=\.|$)")


def code(cubin: bytes) -> dict[str, list[tuple[int, bytes]]]:
    """Return the code and data that a launch depends on by kind of section, without names of functions."""
    parts_by_kind: dict[str, list[tuple[int, bytes]]] = {}
    for section in ELFFile(io.BytesIO(cubin)).iter_sections():
        if match := _CODE.match(section.name):
            content = b"" if section["sh_type"] in _NO_BYTES else section.data()
            parts_by_kind.setdefault(match[1], []).append((section["sh_size"], content))
    return {kind: sorted(parts) for kind, parts in parts_by_kind.items()}


def initialised(cubin: bytes) -> Counter[tuple[str, bytes]]:
    """Return the initialised variables with their values; a linker numbers equal names, `name$5`."""
    elf, variables = ELFFile(io.BytesIO(cubin)), Counter[tuple[str, bytes]]()
    for table in elf.iter_sections():
        for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
            home, start, size = symbol["st_shndx"], symbol["st_value"], symbol["st_size"]
            if isinstance(home, int) and size and elf.get_section(home).name.startswith(".nv.global.init"):
                value = elf.get_section(home).data()[start : start + size]
                variables[re.sub(r"\$\d+$", "", symbol.name), value] += 1
    return variables


def explain(stock: Path, plugin: Path) -> str:
    """
    Return the name of the rule by which the machine code is equal or differs, "" if none holds.

    - "equal": the same bytes, the names of symbols left out.
    - "order of variables": equal but for where initialised variables lie. nvJitLink lays them out in the
      order of its inputs, and stock hands over its link files in the order of a set.
    """
    cubins = stock.read_bytes(), plugin.read_bytes()
    one, other = (code(cubin) for cubin in cubins)
    if one == other:
        return "equal"
    moved = [parts.pop("nv.global.init", []) for parts in (one, other)]
    same = one == other and all(moved) and initialised(cubins[0]) == initialised(cubins[1])
    return "order of variables" if same else ""


def assembled(ptx: Path, arch: str, beside: Path) -> Path:
    """Return the cubin that the ptxas of the toolkit makes of a PTX file, as a file *beside* another."""
    from cuda import pathfinder

    cubin, text = beside.with_suffix(".ptxas"), beside.with_suffix(".ptx")
    # Warp ends its files with a NUL, which ptxas reads as part of the text.
    text.write_bytes(ptx.read_bytes().rstrip(b"\0"))
    tool = pathfinder.find_nvidia_binary_utility("ptxas")
    subprocess.run([tool, f"-arch={arch}", str(text), "-o", str(cubin)], check=True, capture_output=True)
    return cubin
