"""
Read GPU ELF images (cubins): architecture, sections, symbols and their prototypes.

The generic structures are those of the System V gABI, "Object Files". NVIDIA documents no ABI of its own, so
its parts come from two sources. The names of its section types, symbol types and st_other bits are those that
`cuobjdump -elf` and `nvdisasm` print, and their numbers were read beside that output. The rest was observed
in cubins that the tools of CUDA 12.4 to 13.5 write for sm_75 to sm_121. EM_CUDA, OS
ABI 0x33, the ABI versions 7 and 8 and where the flags hold the compute capability are also in LLVM's
llvm/BinaryFormat/ELF.h.
"""

from __future__ import annotations

import logging
import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink.errors import LinkError

from .kinds import EM_CUDA

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger(__name__)

RELOCATABLE = 1
EXECUTABLE = 2
_SHARED = 3

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")
_PROTOTYPE = struct.Struct("<II")
_SYMBOL_TABLE = 2
# SHT_CUDA_PROTOTYPE, section .nv.prototype: pairs of a symbol's number and an offset in the string table.
_PROTOTYPES = 0x70000002
# SHT_RELA and SHT_REL, with the number of eight-byte words of an entry; the upper half of the second word is
# the number of the symbol.
_RELOCATIONS = {4: 3, 9: 2}
_RESERVED = 0xFF00
_COMMON = 0xFFF2
_EXTENDED = 0xFFFF
# Section types without bytes in the file: SHT_NULL, SHT_NOBITS, SHT_CUDA_GLOBAL, SHT_CUDA_SHARED and
# SHT_CUDA_RESERVED_SHARED. CUDA 12.4 and later write NVIDIA's, the last for sm_110.
_EMPTY = frozenset((0, 8, 0x70000007, 0x7000000A, 0x70000015))
# Section types with bytes in the file: those of the gABI, and SHT_CUDA_INFO, _CALLGRAPH, _PROTOTYPE,
# _GLOBAL_INIT, _RELOCINFO and _CONSTANT_B0 to _B17. Of other types it is not known whether the file holds
# their bytes.
_HELD = frozenset(
    (
        *(1, 2, 3, 4, 5, 6, 7, 9, 11, 14, 15, 16, 17, 18),
        *(0x70000000, 0x70000001, 0x70000002, 0x70000008, 0x7000000B),
        *range(0x70000064, 0x70000076),
    )
)
# SHT_CUDA_GLOBAL, section .nv.global: variables without a value.
_BLANK = 0x70000007
_GLOBAL, _WEAK = 1, 2
# STT_CUDA_OBJECT is 13.
FUNCTION, _OBJECT, _CUDA_OBJECT = 2, 1, 13
# STO_CUDA_ENTRY in st_other; also in cuda-gdb's cuda-tdep.c.
_ENTRY = 0x10
# STO_CUDA_MANAGED, and STO_CUDA_GLOBAL, which is beside it, _SHARED and _CONSTANT; of references too.
_MANAGED = 0x04
_SPACES = {0x20: "global", 0x40: "shared", 0x80: "const"}
# The OS ABI and its version, which determine the layout of flags and notes: up to CUDA 12, and since CUDA 13.
_ABIS = ((0x33, 7), (0x41, 8))
_ABI_SINCE_13 = 0x41
# In the note of the tool that made it.
_RELEASE = re.compile(rb"Cuda compilation tools, release (\d+)\.(\d+)")


class UnfamiliarError(LinkError):
    """The input may be valid, but has an unknown form, such as that of a newer tool."""


@dataclass(frozen=True)
class Section:
    """
    A section of an ELF image.

    Args:
        name: Its name.
        size: Its size in memory in bytes, even if it has no bytes in the file.
        content: Its bytes in the file.
        link: sh_link, the number of the section it refers to.
        info: sh_info, which depends on the type; for code, the upper byte is the number of registers.
    """

    name: str
    size: int
    content: bytes = field(repr=False)
    link: int
    info: int


@dataclass(frozen=True)
class ElfSymbol:
    """
    A global or weak symbol of an ELF image.

    Args:
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether the image defines it, rather than references it.
        weak: Whether another definition may replace this one.
        size: Its size in bytes.
        signature: The compiler's encoding of result and parameters, such as "#ii", "" if there is none.
        common: Whether it is a common symbol; None for a variable without a value, which a relocatable link
            makes of one.
        space: Where a variable lies: "global", "managed", "const" or "shared", "" where it does not tell.
    """

    name: str
    kind: str
    defined: bool
    weak: bool
    size: int
    signature: str
    common: bool | None = False
    space: str = ""


@dataclass(frozen=True)
class Image:
    """
    An ELF image for a GPU.

    Args:
        sm: The compute capability as one number, such as 90.
        relocatable: Whether it can be linked further.
        symbols: Its global and weak symbols, in order.
        code: Its bytes.
        headers: The headers of its sections, in order.
        names: The string table of the sections' names.
    """

    sm: int
    relocatable: bool
    symbols: tuple[ElfSymbol, ...]
    code: bytes = field(repr=False)
    headers: tuple[tuple[int, ...], ...] = field(repr=False)
    names: bytes = field(repr=False)
    _read: list[tuple[Section, ...]] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def sections(self) -> tuple[Section, ...]:
        """Its sections, in order."""
        # Not a cached_property: before Python 3.12 its lock could be held for ever in a forked child.
        if not self._read:
            self._read.append(self._sections())
        return self._read[0]

    def _sections(self) -> tuple[Section, ...]:
        return tuple(
            Section(
                _string(self.names, header[0]) if self.names else "",
                header[5],
                _content(self.code, header),
                header[6],
                header[7],
            )
            for header in self.headers
        )

    @property
    def toolkit(self) -> tuple[int, int] | None:
        """The release of CUDA whose tools made it, None where it does not say so."""
        note = self.section(".note.nv.tkinfo")
        said = _RELEASE.search(note.content) if note else None
        return (int(said[1]), int(said[2])) if said else None

    def section(self, name: str) -> Section | None:
        """Return the section *name*, None if there is none."""
        return next((section for section in self.sections if section.name == name), None)


def read(code: bytes, name: str = "cubin") -> Image:
    """
    Read a GPU's ELF image.

    Args:
        code: The image.
        name: Its name in messages.

    Raises:
        LinkError: It is damaged.
        UnfamiliarError: Its form is unknown.
    """
    try:
        return _read(code, name)
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise LinkError(
            f"{name} is not a whole ELF image for a GPU ({reason(error, code)}); generate or copy it again.",
            inputs=(name,),
        ) from error


def _read(code: bytes, name: str) -> Image:
    header = _HEADER.unpack_from(code)
    identity, kind, machine, flags = header[0], header[1], header[2], header[7]
    if machine != EM_CUDA or tuple(identity[7:9]) not in _ABIS:
        raise _unfamiliar(name, f"machine {machine} and ABI {identity[7]:#x}, version {identity[8]}")
    headers, strings = _headers(code, name)
    for number, section in enumerate(headers):
        past = section[4] + section[5] - len(code)
        if past > 0 and section[1] in _HELD:
            raise ValueError(f"section {number} ends {past} bytes past its end")
        if past > 0 and section[1] not in _EMPTY:
            log.debug("%s: section %d, of type %#x, is not read: not known here", name, number, section[1])
    _check_references(code, headers, name)
    if strings and max(section[0] for section in headers) > strings.rfind(0):
        raise ValueError("a section's name lies past the names")
    since_13 = identity[7] == _ABI_SINCE_13
    return Image(
        sm=(flags >> 8 if since_13 else flags) & 0xFF,
        relocatable=kind == RELOCATABLE,
        symbols=tuple(_symbols(code, headers)),
        code=code,
        headers=tuple(headers),
        names=strings,
    )


def _headers(code: bytes, name: str) -> tuple[list[tuple[int, ...]], bytes]:
    """Return the section headers of an ELF image of any machine, and the sections' names."""
    header = _HEADER.unpack_from(code)
    identity, table_at, entry_size, count, names_at = header[0], header[6], header[11], header[12], header[13]
    if identity[:4] != b"\x7fELF":
        raise ValueError("its header is of something else")
    if identity[4:6] != b"\x02\x01" or (table_at and entry_size != _SECTION.size):
        raise _unfamiliar(name, f"class {identity[4]}, with section headers of {entry_size} bytes")
    if not table_at:
        return [], b""
    if table_at + _SECTION.size > len(code):
        raise ValueError("its section headers lie past its end")
    first = _SECTION.unpack_from(code, table_at)
    # gABI: if e_shnum or e_shstrndx overflow, their values are in the first section header.
    count = count or first[5]
    names_at = first[6] if names_at == _EXTENDED else names_at
    if table_at + count * entry_size > len(code):
        raise ValueError("its section headers end past its end")
    headers = [_SECTION.unpack_from(code, table_at + number * entry_size) for number in range(count)]
    return headers, _content(code, headers[names_at])


def is_relocatable(code: bytes) -> bool:
    """Return whether an ELF image says that it can be linked further."""
    return int.from_bytes(code[16:18], "little") == RELOCATABLE


def form(code: bytes) -> str:
    """Return what kind of host file an ELF image is: "object file", "shared library" or "executable"."""
    (kind,) = struct.unpack_from("<H", code, 16)
    if kind == _SHARED:
        # An executable that can be loaded anywhere names its loader, which a library rarely does.
        names = [name for name, _ in raw_sections(code, "")]
        return "executable" if ".interp" in names else "shared library"
    return {RELOCATABLE: "object file", EXECUTABLE: "executable"}.get(kind, f"ELF file of type {kind}")


def raw_sections(code: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    """
    Yield the sections of an ELF image of any machine, as (name, content).

    Raises:
        UnfamiliarError: It cannot be read, be it damaged or of an unknown form.
    """
    try:
        headers, strings = _headers(code, name)
        yield from ((_string(strings, header[0]), _content(code, header)) for header in headers)
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise UnfamiliarError(
            f"{name} is no whole ELF file ({reason(error, code)}); generate or copy it again, or upgrade "
            "numba-ptxlink if a newer tool made it.",
            inputs=(name,),
        ) from error


def check_sections(code: bytes, name: str) -> None:
    """
    Refuse an ELF image of any machine that is cut off.

    Raises:
        LinkError: It is damaged.
        UnfamiliarError: Its form is unknown.
    """
    try:
        headers, _ = _headers(code, name)
        end = max((header[4] + header[5] for header in headers if header[1] not in _EMPTY), default=0)
        cause = f"it ends {end - len(code)} bytes before its sections" if end > len(code) else ""
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        cause = reason(error, code)
    if cause:
        raise LinkError(
            f"{name} is not a whole ELF file ({cause}); generate or copy it again.", inputs=(name,)
        )


def reason(error: Exception, code: bytes) -> str:
    """Return why *code* could not be read: what *error* says, unless that is how Python takes bytes apart."""
    ends = f"it ends after {len(code)} byte{'s' * (len(code) != 1)}"
    return ends if isinstance(error, struct.error) else str(error)


def _unfamiliar(name: str, form: str) -> UnfamiliarError:
    return UnfamiliarError(
        f"{name} is an image of a form that is not known here ({form}); upgrade numba-ptxlink.",
        inputs=(name,),
    )


def _check_references(code: bytes, headers: list[tuple[int, ...]], name: str) -> None:
    """Refuse references to sections and symbols that do not exist: NVIDIA's linker dereferences them."""
    for number, header in enumerate(headers):
        kind, link, info = header[1], header[6], header[7]
        if kind not in _HELD:
            continue
        if link >= len(headers):
            raise ValueError(f"section {number} refers to section {link}, which does not exist")
        if kind == _SYMBOL_TABLE:
            if header[9] != SYMBOL.size:
                raise _unfamiliar(name, f"symbols of {header[9]} bytes")
            _check_symbols(_content(code, header), headers)
        elif kind in _RELOCATIONS:
            words = _RELOCATIONS[kind]
            content = _content(code, header)
            if info >= len(headers) or len(content) % (8 * words) or header[9] != 8 * words:
                raise ValueError(f"section {number} is no whole table of relocations")
            if headers[link][1] != _SYMBOL_TABLE:
                continue
            symbols = headers[link][5] // SYMBOL.size
            if max(memoryview(content).cast("Q")[1::words], default=0) >> 32 >= max(symbols, 1):
                raise ValueError(f"a relocation in section {number} names no symbol")


def _check_symbols(table: bytes, headers: list[tuple[int, ...]]) -> None:
    if len(table) % SYMBOL.size:
        raise ValueError("its symbol table is not whole")
    # st_shndx is the fourth of the twelve halfwords of a symbol.
    for section in set(memoryview(table).cast("H")[3::12]):
        if len(headers) <= section < _RESERVED:
            raise ValueError("a symbol lies in a section that does not exist")


def _symbols(code: bytes, headers: list[tuple[int, ...]]) -> list[ElfSymbol]:
    table = next((header for header in headers if header[1] == _SYMBOL_TABLE), None)
    if table is None:
        return []
    strings = _content(code, headers[table[6]])
    notes = next((_content(code, header) for header in headers if header[1] == _PROTOTYPES), b"")
    # An unknown form is not damage: without a prototype, none is compared.
    signatures = dict(_PROTOTYPE.iter_unpack(notes)) if len(notes) % _PROTOTYPE.size == 0 else {}
    blank = {number for number, header in enumerate(headers) if header[1] == _BLANK}
    symbols = []
    for number, entry in enumerate(SYMBOL.iter_unpack(_content(code, table))):
        name_at, info, other, section, _, size = entry
        binding, kind = info >> 4, info & 0xF
        if binding not in (_GLOBAL, _WEAK) or kind not in (FUNCTION, _OBJECT, _CUDA_OBJECT):
            continue
        # A kernel's prototype is ignored: no device code calls it.
        entry_point = kind == FUNCTION and bool(other & _ENTRY)
        at = signatures.get(number)
        symbols.append(
            ElfSymbol(
                name=_string(strings, name_at),
                kind="entry" if entry_point else "func" if kind == FUNCTION else "variable",
                # Dynamic shared memory has a section in some images, but a size in none.
                defined=section != 0 and (kind == FUNCTION or size > 0),
                # As in C, a definition replaces a common symbol.
                weak=binding == _WEAK or section == _COMMON,
                size=size,
                signature="" if at is None or entry_point else _string(strings, at),
                common=None if section in blank else section == _COMMON,
                space="" if kind == FUNCTION else _space(other),
            )
        )
    return symbols


def _space(other: int) -> str:
    return "managed" if other & _MANAGED else _SPACES.get(other & sum(_SPACES), "")


def symbol_names(image: Image) -> list[str]:
    """Return the names of all symbols in the symbol table, in order; "" for those without a name."""
    table = image.section(".symtab")
    if table is None:
        return []
    strings = image.sections[table.link].content
    return [_string(strings, entry[0]) for entry in SYMBOL.iter_unpack(table.content)]


def _content(code: bytes, header: tuple[int, ...]) -> bytes:
    end = header[4] + header[5]
    return b"" if header[1] in _EMPTY or end > len(code) else code[header[4] : end]


def _string(strings: bytes, at: int) -> str:
    return strings[at : strings.index(0, at)].decode(errors="replace")
