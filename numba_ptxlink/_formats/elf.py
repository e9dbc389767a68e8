"""
Read GPU ELF images (cubins): architecture, sections and symbols.

pyelftools reads the parts that all ELF files have. NVIDIA does not document its own parts: the numbers of
symbol types and st_other bits were found by comparing cubins of CUDA 12.4 to 13.5 with the names that
`cuobjdump -elf` prints. EM_CUDA and the bits of e_flags are also in LLVM's llvm/BinaryFormat/ELF.h.
"""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass, field
from typing import Any

from numba_ptxlink.errors import LinkError

from .kinds import EM_CUDA

# Elf64_Ehdr: e_ident, e_type, e_machine, e_version, e_entry, e_phoff, e_shoff, e_flags, e_ehsize,
# e_phentsize, e_phnum, e_shentsize, e_shnum and e_shstrndx.
_FILE_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
# Elf64_Shdr: sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size and four more.
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
# e_ident[EI_OSABI] is 0x41 in cubins of CUDA 13, and 0x33 in those of CUDA 12.
_OS_ABI_INDEX, _OS_ABI_CUDA_13 = 7, 0x41
# EF_CUDA_ACCELERATORS_V1 and EF_CUDA_ACCELERATORS in e_flags.
_ACCELERATORS_FLAG_CUDA_12, _ACCELERATORS_FLAG_CUDA_13 = 0x800, 0x8
# A record of the section .nv.compat with the number 9 (second byte) and the value 1. Records begin at
# multiples of four bytes.
_ACCELERATED_RECORD = b"\x02\x09\x01"
# STO_CUDA_ENTRY marks kernels in st_other, the sixth byte of a symbol. Its value is also in the source of
# cuda-gdb, cuda-tdep.c.
_OTHER_OFFSET, _ENTRY_BIT = 5, 0x10
# pyelftools has no name for STT_CUDA_OBJECT, and calls its number STT_LOPROC.
_KINDS = {"STT_FUNC": "func", "STT_OBJECT": "variable", "STT_LOPROC": "variable"}
_PUBLIC_BINDINGS = ("STB_GLOBAL", "STB_WEAK")
# NVIDIA's section types that have no bytes in the file: SHT_CUDA_GLOBAL, SHT_CUDA_SHARED and
# SHT_CUDA_RESERVED_SHARED.
_SECTION_TYPES_WITHOUT_BYTES = (0x70000007, 0x7000000A, 0x70000015)
# Symbols that NVIDIA's tools add to relocatable images, such as __UFT_OFFSET and .nv.reservedSmem.offset0.
_TOOL_SYMBOL = re.compile(r"__U[DF]T\w*|\.nv\..*|\$.*")


@dataclass(frozen=True)
class Section:
    """
    A section of an ELF image.

    Args:
        name: The name.
        size: The size in memory in bytes, also if the file has no bytes of the section.
        content: The bytes in the file; b"" if there are none.
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
        defined: Whether the image defines the symbol, rather than only refers to it.
        public: Whether other code can see the symbol.
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
        relocatable: Whether the image can be linked further.
        sections: The sections, in order.
        all_symbols: All symbols of the symbol tables, in order.
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
    """Return the compute capability of the cubin *code*, such as 90; None if *code* is no cubin."""
    if len(code) < _FILE_HEADER.size:
        return None
    identity, _, machine_number, _, _, _, _, flags, *_ = _FILE_HEADER.unpack_from(code)
    if identity[:4] != b"\x7fELF" or machine_number != EM_CUDA:
        return None
    # The compute capability is in the second byte of the flags since CUDA 13, and in the first byte before.
    return int(flags >> 8 if identity[_OS_ABI_INDEX] == _OS_ABI_CUDA_13 else flags) & 0xFF


def is_accelerated(code: bytes) -> bool:
    """
    Return whether the cubin *code* runs on one architecture alone, such as sm_90a.

    Compilers of CUDA 12 set a flag in such cubins. Compilers of CUDA 13 write the value 1 into a record of
    .nv.compat; LLVM's header has a flag for CUDA 13 as well. The flag of CUDA 12 and the record were found by
    comparing cubins of sm_90, sm_100 and their variants.
    """
    identity, _, _, _, _, _, _, flags, *_ = _FILE_HEADER.unpack_from(code)
    is_cuda_13 = identity[_OS_ABI_INDEX] == _OS_ABI_CUDA_13
    if flags & (_ACCELERATORS_FLAG_CUDA_13 if is_cuda_13 else _ACCELERATORS_FLAG_CUDA_12):
        return True
    records = _section_content(code, b".nv.compat")
    return any(records.startswith(_ACCELERATED_RECORD, start) for start in range(0, len(records), 4))


def _section_content(code: bytes, name: bytes) -> bytes:
    """Return the content of the section *name*; b"" if there is none or the image is damaged."""
    *_, table_offset, _, _, _, _, header_size, count, names_index = _FILE_HEADER.unpack_from(code)
    try:
        headers = [
            _SECTION_HEADER.unpack_from(code, table_offset + header_size * index) for index in range(count)
        ]
        _, _, _, _, names_offset, *_ = headers[names_index]
    except (struct.error, IndexError):
        return b""
    for name_offset, _, _, _, offset, size, *_ in headers:
        if code.startswith(name + b"\0", names_offset + name_offset):
            return code[offset:][:size]
    return b""


def read(code: bytes, name: str = "cubin") -> Image:
    """
    Read a GPU's ELF image.

    Args:
        code: The image.
        name: The name of the image in messages.

    Raises:
        LinkError: The image is damaged, or not for a GPU.
    """
    # Deferred: most links read no image.
    from elftools.common.exceptions import ELFError

    try:
        return _read(code)
    # pyelftools raises any of these exceptions for damaged bytes.
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
                _symbol(symbol, content[index * section["sh_entsize"] + _OTHER_OFFSET])
                for index, symbol in enumerate(section.iter_symbols())
            )
    return Image(sm, file["e_type"] == "ET_REL", tuple(sections), tuple(symbols))


def _symbol(symbol: Any, other: int) -> ElfSymbol:
    """Convert a symbol of pyelftools, whose st_other is *other*."""
    kind = _KINDS.get(symbol["st_info"]["type"], "")
    size, section_index = symbol["st_size"], symbol["st_shndx"]
    return ElfSymbol(
        name=symbol.name,
        kind="entry" if kind == "func" and other & _ENTRY_BIT else kind,
        # Images only declare dynamic shared memory, although some give it a section: its size is 0.
        defined=section_index != "SHN_UNDEF" and (kind != "variable" or size > 0),
        public=symbol["st_info"]["bind"] in _PUBLIC_BINDINGS,
        size=size,
    )
