"""What the project reads out of GPU ELF images: architecture, sections, symbols and their prototypes."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from .errors import LinkError

EM_CUDA = 190
RELOCATABLE = 1
EXECUTABLE = 2

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PROTOTYPE = struct.Struct("<II")
_NOBITS = 8
_SYMBOL_TABLE = 2
_RELOCATIONS = {4: struct.Struct("<QQq"), 9: struct.Struct("<QQ")}
_RESERVED = 0xFF00
_GLOBAL, _WEAK = 1, 2
_FUNCTION, _OBJECT, _CUDA_OBJECT = 2, 1, 13
_ENTRY = 0x10
# The image says by its OS ABI which of two layouts its flags have.
_ABI_SINCE_13 = 0x41


@dataclass(frozen=True)
class Section:
    """
    A section of an ELF image.

    Args:
        name: Its name.
        size: Its size in bytes in memory, also where the file holds none of it.
        content: Its bytes in the file.
        link: The number of the section it refers to.
        info: A number that depends on its type; for code, the registers in the upper byte.
    """

    name: str
    size: int
    content: bytes = field(repr=False)
    link: int
    info: int


@dataclass(frozen=True)
class ElfSymbol:
    """
    A symbol of an ELF image that other images can see.

    Args:
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether the image defines it, rather than asking for it.
        weak: Whether another definition may stand in for this one.
        size: Its size in bytes.
        signature: The compiler's note of result and parameters, such as "#ii", "" where it made none.
    """

    name: str
    kind: str
    defined: bool
    weak: bool
    size: int
    signature: str


@dataclass(frozen=True)
class Image:
    """
    An ELF image for a GPU.

    Args:
        sm: The compute capability as one number, such as 90.
        relocatable: Whether it can be linked further.
        sections: Its sections, in order.
        symbols: Its global and weak symbols, in order.
    """

    sm: int
    relocatable: bool
    sections: tuple[Section, ...]
    symbols: tuple[ElfSymbol, ...]

    def section(self, name: str) -> Section | None:
        """Return the section *name*, None where there is none."""
        return next((each for each in self.sections if each.name == name), None)


def read(code: bytes, name: str = "cubin") -> Image:
    """
    Read a GPU's ELF image.

    Args:
        code: The image.
        name: What messages call it.

    Raises:
        LinkError: It is not one, or it is damaged.
    """
    try:
        return _read(code)
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise LinkError(
            f"{name} is not a whole ELF image for a GPU ({error}); generate or copy it again.",
            inputs=(name,),
        ) from error


def _read(code: bytes) -> Image:
    header = _HEADER.unpack_from(code)
    identity, kind, machine = header[:3]
    table_at, flags, entry_size, count, names_at = header[6], header[7], header[11], header[12], header[13]
    if identity[:6] != b"\x7fELF\x02\x01" or machine != EM_CUDA:
        raise ValueError("its header is of something else")
    if entry_size != _SECTION.size:
        raise ValueError("its section headers have an odd size")
    headers = [_SECTION.unpack_from(code, table_at + number * entry_size) for number in range(count)]
    for number, each in enumerate(headers):
        if number and each[1] != _NOBITS and each[4] + each[5] > len(code):
            raise ValueError(f"section {number} ends {each[4] + each[5] - len(code)} bytes past its end")
    _check_references(code, headers)
    strings = _content(code, headers[names_at])
    sections = tuple(
        Section(_string(strings, each[0]), each[5], _content(code, each), each[6], each[7])
        for each in headers
    )
    since_13 = identity[7] == _ABI_SINCE_13
    return Image(
        sm=(flags >> 8 if since_13 else flags) & 0xFF,
        relocatable=kind == RELOCATABLE,
        sections=sections,
        symbols=tuple(_symbols(sections)),
    )


def _check_references(code: bytes, headers: list[tuple[int, ...]]) -> None:
    """Refuse numbers that point at nothing: NVIDIA's linker follows them."""
    for number, each in enumerate(headers):
        kind, link, info = each[1], each[6], each[7]
        if link >= len(headers):
            raise ValueError(f"section {number} refers to section {link}, which does not exist")
        if kind == _SYMBOL_TABLE:
            _check_symbols(_content(code, each), headers)
        elif kind in _RELOCATIONS:
            entry = _RELOCATIONS[kind]
            content = _content(code, each)
            symbols = headers[link][5] // _SYMBOL.size
            if info >= len(headers) or len(content) % entry.size:
                raise ValueError(f"section {number} is no whole table of relocations")
            for _, symbol, *_ in entry.iter_unpack(content):
                if symbol >> 32 >= symbols:
                    raise ValueError(f"a relocation in section {number} names no symbol")


def _check_symbols(table: bytes, headers: list[tuple[int, ...]]) -> None:
    if len(table) % _SYMBOL.size:
        raise ValueError("its symbol table is not whole")
    for _, _, _, section, _, _ in _SYMBOL.iter_unpack(table):
        if len(headers) <= section < _RESERVED:
            raise ValueError("a symbol lies in a section that does not exist")


def _symbols(sections: tuple[Section, ...]) -> list[ElfSymbol]:
    table = next((each for each in sections if each.name == ".symtab"), None)
    if table is None:
        return []
    strings = sections[table.link].content
    prototypes = next((each for each in sections if each.name == ".nv.prototype"), None)
    signatures = dict(_PROTOTYPE.iter_unpack(prototypes.content)) if prototypes is not None else {}
    found = []
    for number, entry in enumerate(_SYMBOL.iter_unpack(table.content)):
        name_at, info, other, section, _, size = entry
        binding, kind = info >> 4, info & 0xF
        if binding not in (_GLOBAL, _WEAK) or kind not in (_FUNCTION, _OBJECT, _CUDA_OBJECT):
            continue
        # Functions have a note of their prototype; the kernels' says nothing that a caller could get wrong.
        entry_point = kind == _FUNCTION and bool(other & _ENTRY)
        at = signatures.get(number)
        found.append(
            ElfSymbol(
                name=_string(strings, name_at),
                kind="entry" if entry_point else "func" if kind == _FUNCTION else "variable",
                defined=section != 0,
                weak=binding == _WEAK,
                size=size,
                signature="" if at is None or entry_point else _string(strings, at),
            )
        )
    return found


def symbol_names(image: Image) -> list[str]:
    """Return the name of every entry of the symbol table, in order; "" for those without one."""
    table = image.section(".symtab")
    if table is None:
        return []
    strings = image.sections[table.link].content
    return [_string(strings, entry[0]) for entry in _SYMBOL.iter_unpack(table.content)]


def _content(code: bytes, header: tuple[int, ...]) -> bytes:
    return b"" if header[1] == _NOBITS else code[header[4] : header[4] + header[5]]


def _string(strings: bytes, at: int) -> str:
    return strings[at : strings.index(0, at)].decode()
