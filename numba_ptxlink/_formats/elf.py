"""
Read GPU ELF images (cubins): architecture, sections and symbols.

The generic parts are read by pyelftools. NVIDIA documents no ABI of its own: the names of symbol types and
st_other bits are those that `cuobjdump -elf` prints, and their numbers were read beside that output, in
cubins of CUDA 12.4 to 13.5. EM_CUDA, OS ABI 0x33, the ABI versions 7 and 8 and where the flags hold the
compute capability are also in LLVM's llvm/BinaryFormat/ELF.h.
"""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass, field
from typing import Any

from numba_ptxlink.errors import LinkError

from .kinds import EM_CUDA

_FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_ABI_SINCE_13 = 0x41
_ACCELERATORS_FLAG_12, _ACCELERATORS_FLAG = 0x800, 0x8
# The record 9 of .nv.compat, with the value 1. Records begin at multiples of four bytes.
_ACCELERATED_RECORD = b"\x02\x09\x01"
# STO_CUDA_ENTRY in st_other, the sixth byte of a symbol; also in cuda-gdb's cuda-tdep.c.
_OTHER_OFFSET, _ENTRY_BIT = 5, 0x10
# STT_LOPROC is pyelftools' name for STT_CUDA_OBJECT.
_KINDS = {"STT_FUNC": "func", "STT_OBJECT": "variable", "STT_LOPROC": "variable"}
_PUBLIC_BINDINGS = ("STB_GLOBAL", "STB_WEAK")
# Section types of NVIDIA's without bytes in the file: SHT_CUDA_GLOBAL, SHT_CUDA_SHARED and
# SHT_CUDA_RESERVED_SHARED.
_SECTION_TYPES_WITHOUT_BYTES = (0x70000007, 0x7000000A, 0x70000015)
# Symbols that the tools add to every relocatable image.
_TOOL_SYMBOL = re.compile(r"__U[DF]T\w*|\.nv\..*|\$.*")


@dataclass(frozen=True)
class Section:
    """
    A section of an ELF image.

    Args:
        name: The name.
        size: The size in memory in bytes, also if it has no bytes in the file.
        content: The bytes in the file.
    """

    name: str
    size: int
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class ElfSymbol:
    """
    A symbol of an ELF image.

    Args:
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data, otherwise "".
        defined: Whether the image defines it, rather than references it.
        public: Whether other code can see it.
        size: The size in bytes.
    """

    name: str
    kind: str
    defined: bool
    public: bool
    size: int


@dataclass(frozen=True)
class Image:
    """
    An ELF image for a GPU.

    Args:
        sm: The compute capability as one number, such as 90.
        relocatable: Whether it can be linked further.
        sections: The sections, in order.
        all_symbols: All symbols of its table, in order.
    """

    sm: int
    relocatable: bool
    sections: tuple[Section, ...] = field(repr=False)
    all_symbols: tuple[ElfSymbol, ...] = field(repr=False)

    @property
    def symbols(self) -> tuple[ElfSymbol, ...]:
        """The functions and variables that other code can see, in order."""
        visible = (symbol for symbol in self.all_symbols if symbol.public and symbol.kind)
        return tuple(symbol for symbol in visible if not _TOOL_SYMBOL.fullmatch(symbol.name))

    def section(self, name: str) -> Section | None:
        """Return the section *name*; None if there is none."""
        return next((section for section in self.sections if section.name == name), None)


def machine(code: bytes) -> int | None:
    """Return the compute capability of a cubin, such as 90; None for another file."""
    if len(code) < _FILE_HEADER.size:
        return None
    identity, _, machine_number, _, _, _, _, flags, *_ = _FILE_HEADER.unpack_from(code)
    if identity[:4] != b"\x7fELF" or machine_number != EM_CUDA:
        return None
    return int(flags >> 8 if identity[7] == _ABI_SINCE_13 else flags) & 0xFF


def is_accelerated(code: bytes) -> bool:
    """
    Return whether a cubin uses the features of one architecture, such as sm_90a.

    CUDA 12 marks it by a flag, CUDA 13 by a record in .nv.compat; both were found by comparing cubins of
    sm_90, sm_100 and their variants. The flags are EF_CUDA_ACCELERATORS_V1 and EF_CUDA_ACCELERATORS in LLVM's
    llvm/BinaryFormat/ELF.h.
    """
    identity, _, _, _, _, _, _, flags, *_ = _FILE_HEADER.unpack_from(code)
    if flags & (_ACCELERATORS_FLAG if identity[7] == _ABI_SINCE_13 else _ACCELERATORS_FLAG_12):
        return True
    records = _section_content(code, b".nv.compat")
    return any(records.startswith(_ACCELERATED_RECORD, start) for start in range(0, len(records), 4))


def _section_content(code: bytes, name: bytes) -> bytes:
    """Return the content of the section *name*; b"" if there is none or the image is damaged."""
    _, _, _, _, _, _, start, _, _, _, _, size, count, names = _FILE_HEADER.unpack_from(code)
    try:
        sections = [_SECTION_HEADER.unpack_from(code, start + size * number) for number in range(count)]
        name_table = sections[names][4]
    except (struct.error, IndexError):
        return b""
    for name_offset, _, _, _, offset, length, *_ in sections:
        if code.startswith(name + b"\0", name_table + name_offset):
            return code[offset:][:length]
    return b""


def read(code: bytes, name: str = "cubin") -> Image:
    """
    Read a GPU's ELF image.

    Args:
        code: The image.
        name: The name in messages.

    Raises:
        LinkError: The image is damaged, or not for a GPU.
    """
    # Deferred: most links read no image.
    from elftools.common.exceptions import ELFError

    try:
        return _read(code)
    # pyelftools raises any of these for damaged bytes.
    except (
        ELFError,
        struct.error,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
    ) as error:
        raise LinkError(
            f"{name} is not a whole ELF image for a GPU ({error}); generate or copy it again.", inputs=(name,)
        ) from error


def _read(code: bytes) -> Image:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    sm = machine(code)
    if sm is None:
        raise ValueError("the header is not of a cubin")
    file = ELFFile(io.BytesIO(code))
    sections = []
    symbols: list[ElfSymbol] = []
    for section in file.iter_sections():
        has_bytes = section["sh_type"] not in (*_SECTION_TYPES_WITHOUT_BYTES, "SHT_NOBITS", "SHT_NULL")
        content = code[section["sh_offset"] :][: section["sh_size"]] if has_bytes else b""
        sections.append(Section(section.name, section["sh_size"], content))
        if isinstance(section, SymbolTableSection):
            symbols += (
                _symbol(symbol, content[number * section["sh_entsize"] + _OTHER_OFFSET])
                for number, symbol in enumerate(section.iter_symbols())
            )
    return Image(sm, file["e_type"] == "ET_REL", tuple(sections), tuple(symbols))


def _symbol(symbol: Any, other: int) -> ElfSymbol:
    kind = _KINDS.get(symbol["st_info"]["type"], "")
    size, index = symbol["st_size"], symbol["st_shndx"]
    return ElfSymbol(
        name=symbol.name,
        kind="entry" if kind == "func" and other & _ENTRY_BIT else kind,
        # Dynamic shared memory has a section in some images, but never a size.
        defined=index != "SHN_UNDEF" and (kind != "variable" or size > 0),
        public=symbol["st_info"]["bind"] in _PUBLIC_BINDINGS,
        size=size,
    )
