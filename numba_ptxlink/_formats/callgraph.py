"""
Read out of a GPU's ELF image which calls are left in its code.

NVIDIA documents neither `.nv.callgraph` nor the names of subroutines. Both were found by comparing the images
that nvPTXCompiler and nvJitLink make of one source with nvdisasm's view of their instructions: the section is
pairs of symbol numbers, caller and callee, up to a pair whose second number is -2; what follows -3 are the
functions that call through pointers, each with a prototype. Code that is not linked any further has its
functions within the section of each kernel, as `$kernel$function`, and only those of elsewhere in the call
graph. Parts of the compilers' own library, such as a division, are `$__internal_0_$function`.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import elf

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAIR = struct.Struct("<II")
_TEXT = ".text."
# What begins a section in nvdisasm's text, and a call by a register: an address relative to that section.
# One of a function that the driver brings, such as vprintf, is absolute.
_OWNER = re.compile(r"^\.text\.(\S+):")
_BY_REGISTER = re.compile(r"\bCALL\.REL\S*\s+U?R\d+\s")
_INTERNAL = re.compile(r"^\$__internal_\d+_\$")
# The second number of the pairs that begin the parts.
_DIRECT, _ADDRESSES, _INDIRECT, _END = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD, 0xFFFFFFFC


@dataclass(frozen=True)
class Calls:
    """
    The calls that are left in the code of one function.

    Args:
        names: The functions it calls, in order of their names.
        indirect: Whether it calls through a pointer, where the image records that.
    """

    names: tuple[str, ...] = ()
    indirect: bool = False


def calls(image: elf.Image) -> dict[str, Calls]:
    """
    Return the calls of each global function of *image* that has some.

    Those of private functions count as their callers', after their own names. Code that is linked no further
    records no calls through pointers; see `by_pointer`.
    """
    names = elf.symbol_names(image)
    direct: dict[str, set[str]] = {}
    indirect: set[str] = set()
    part = 0
    for caller, callee in _pairs(image):
        if callee >= _END:
            part = callee
        elif part == _INDIRECT and caller < len(names):
            indirect.add(names[caller])
        elif part == _DIRECT and max(caller, callee) < len(names):
            direct.setdefault(names[caller], set()).add(names[callee])
    for owner, name in _subroutines(image, names):
        direct.setdefault(owner, set()).add(name)
    public = {symbol.name for symbol in image.symbols}
    found = {}
    for name in public & (direct.keys() | indirect):
        reached = _reached(name, direct, public)
        pointers = not indirect.isdisjoint({name, *(reached - public)})
        found[name] = Calls(tuple(sorted({_INTERNAL.sub("", callee) for callee in reached})), pointers)
    return found


def by_pointer(sass: str) -> set[str]:
    """Return which global functions call through pointers in code that is linked no further, by its text."""
    found: set[str] = set()
    owner = ""
    for line in sass.splitlines():
        if section := _OWNER.match(line):
            owner = section[1]
        elif _BY_REGISTER.search(line):
            found.add(owner)
    return found


def _pairs(image: elf.Image) -> Iterator[tuple[int, int]]:
    section = image.section(".nv.callgraph")
    content = section.content if section else b""
    return _PAIR.iter_unpack(content[: len(content) // _PAIR.size * _PAIR.size])


def _subroutines(image: elf.Image, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the functions within the code of others, after the name of the section's own."""
    table = image.section(".symtab")
    entries = elf.SYMBOL.iter_unpack(table.content) if table else ()
    for name, (_, info, _, section, _, _) in zip(names, entries, strict=False):
        if info & 0xF != elf.FUNCTION or section >= len(image.sections):
            continue
        owner = image.sections[section].name.removeprefix(_TEXT)
        if name.startswith("$"):
            yield owner, name.removeprefix(f"${owner}$")


def _reached(name: str, direct: dict[str, set[str]], public: set[str]) -> set[str]:
    """Return what *name* calls, and what the private functions among that call."""
    reached: set[str] = set()
    pending = [name]
    while pending:
        for callee in direct.get(pending.pop(), set()) - reached:
            reached.add(callee)
            if callee not in public:
                pending.append(callee)
    return reached
