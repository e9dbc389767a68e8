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

_HEAD = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_ABI_SINCE_13 = 0x41
_ACCELERATORS_BEFORE, _ACCELERATORS = 0x800, 0x8
# A record of .nv.compat, each of which has a multiple of four bytes: what has the number 9 is 1.
_ACCELERATED = b"\x02\x09\x01"
# STO_CUDA_ENTRY in st_other, the sixth byte of a symbol; also in cuda-gdb's cuda-tdep.c.
_OTHER_AT, _ENTRY = 5, 0x10
# pyelftools calls STT_CUDA_OBJECT so.
_KINDS = {"STT_FUNC": "func", "STT_OBJECT": "variable", "STT_LOPROC": "variable"}
_PUBLIC = ("STB_GLOBAL", "STB_WEAK")
# Section types of NVIDIA's without bytes in the file: SHT_CUDA_GLOBAL, SHT_CUDA_SHARED and
# SHT_CUDA_RESERVED_SHARED.
_EMPTY = (0x70000007, 0x7000000A, 0x70000015)
# Symbols that the tools add to every relocatable image.
_OWN = re.compile(r"__U[DF]T\w*|\.nv\..*|\$.*")


@dataclass(frozen=True)
class Section:
    """
    A section of an ELF image.

    Args:
        name: Its name.
        size: Its size in memory in bytes, even if it has no bytes in the file.
        content: Its bytes in the file.
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
        kind: "entry" for a kernel, "func" for a device function, "variable" for data, "" for others.
        defined: Whether the image defines it, rather than references it.
        public: Whether other code can see it.
        size: Its size in bytes.
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
        sections: Its sections, in order.
        all_symbols: All symbols of its table, in order.
    """

    sm: int
    relocatable: bool
    sections: tuple[Section, ...] = field(repr=False)
    all_symbols: tuple[ElfSymbol, ...] = field(repr=False)

    @property
    def symbols(self) -> tuple[ElfSymbol, ...]:
        """Its functions and variables that other code can see, in order."""
        visible = (each for each in self.all_symbols if each.public and each.kind)
        return tuple(each for each in visible if not _OWN.fullmatch(each.name))

    def section(self, name: str) -> Section | None:
        """Return the section *name*, None if there is none."""
        return next((section for section in self.sections if section.name == name), None)


def machine(code: bytes) -> int | None:
    """Return the compute capability of a GPU's ELF image, such as 90; None for what is not known here."""
    if len(code) < _HEAD.size:
        return None
    identity, _, number, _, _, _, _, flags, *_ = _HEAD.unpack_from(code)
    if identity[:4] != b"\x7fELF" or number != EM_CUDA:
        return None
    return int(flags >> 8 if identity[7] == _ABI_SINCE_13 else flags) & 0xFF


def is_accelerated(code: bytes) -> bool:
    """
    Return whether a GPU's ELF image is for one architecture with its own features, such as sm_90a.

    CUDA 12 has a flag for it, CUDA 13 a record in .nv.compat; both were read beside images of sm_90, sm_100
    and their variants. The flags are EF_CUDA_ACCELERATORS_V1 and EF_CUDA_ACCELERATORS in LLVM's
    llvm/BinaryFormat/ELF.h.
    """
    identity, _, _, _, _, _, _, flags, *_ = _HEAD.unpack_from(code)
    if flags & (_ACCELERATORS if identity[7] == _ABI_SINCE_13 else _ACCELERATORS_BEFORE):
        return True
    records = _content(code, b".nv.compat")
    return any(records.startswith(_ACCELERATED, start) for start in range(0, len(records), 4))


def _content(code: bytes, name: bytes) -> bytes:
    """Return the content of the section *name*, b"" without one or where the image is damaged."""
    _, _, _, _, _, _, start, _, _, _, _, size, count, names = _HEAD.unpack_from(code)
    try:
        sections = [_SECTION.unpack_from(code, start + size * number) for number in range(count)]
        texts = sections[names][4]
    except (struct.error, IndexError):
        return b""
    for named, _, _, _, offset, length, *_ in sections:
        if code.startswith(name + b"\0", texts + named):
            return code[offset:][:length]
    return b""


def read(code: bytes, name: str = "cubin") -> Image:
    """
    Read a GPU's ELF image.

    Args:
        code: The image.
        name: Its name in messages.

    Raises:
        LinkError: It is damaged, or of no GPU.
    """
    # Deferred: a link reads no image.
    from elftools.common.exceptions import ELFError

    try:
        return _read(code)
    # What damaged bytes lead to in the library.
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
        raise ValueError("its header is of something else")
    file = ELFFile(io.BytesIO(code))
    sections = []
    symbols: list[ElfSymbol] = []
    for each in file.iter_sections():
        held = each["sh_type"] not in (*_EMPTY, "SHT_NOBITS", "SHT_NULL")
        content = code[each["sh_offset"] :][: each["sh_size"]] if held else b""
        sections.append(Section(each.name, each["sh_size"], content))
        if isinstance(each, SymbolTableSection):
            symbols += (
                _symbol(symbol, content[number * each["sh_entsize"] + _OTHER_AT])
                for number, symbol in enumerate(each.iter_symbols())
            )
    return Image(sm, file["e_type"] == "ET_REL", tuple(sections), tuple(symbols))


def _symbol(symbol: Any, other: int) -> ElfSymbol:
    kind = _KINDS.get(symbol["st_info"]["type"], "")
    size, place = symbol["st_size"], symbol["st_shndx"]
    return ElfSymbol(
        name=symbol.name,
        kind="entry" if kind == "func" and other & _ENTRY else kind,
        # Dynamic shared memory has a section in some images, but a size in none.
        defined=place != "SHN_UNDEF" and (kind != "variable" or size > 0),
        public=symbol["st_info"]["bind"] in _PUBLIC,
        size=size,
    )
