"""
Read fat binaries and static libraries: list their contents and check that they are intact.

NVIDIA does not document fat binaries. The fields of the headers agree with the public reverse-engineered
header fatbin-decompress.h (github.com/n-eiling/cuda-fatbin-decompression). What goes beyond it, marked below,
was found by packing the same code in every way that the tools of CUDA 12.4 to 13.5 offer and comparing the
results. Archives are the common `ar` format, ar(5).
"""

from __future__ import annotations

import logging
import os
import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink.errors import LinkError

from . import compression, elf
from .kinds import ARCHIVE, CUBIN, FATBIN, LTOIR, OBJECT, PTX, THIN_ARCHIVE, recognise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numba_ptxlink._arch import Arch

log = logging.getLogger(__name__)

_FATBIN = struct.Struct("<IHHQ")
_MAGIC = 0xBA55ED50
_VERSION = 1
# Kind, version, size of this header, padded size of the content, size without padding if it is compressed,
# offset of the options, version of the content's format, architecture, offset and length of the name, flags,
# zero, and decompressed size. The offset of the options was found by comparison.
_ENTRY = struct.Struct("<HHIQIIIIQQQQ")
_ENTRY_VERSION = 0x101
_ENTRY_KINDS = {1: PTX, 2: CUBIN, 8: LTOIR}
# Several entries of one kind compressed as one, found by comparison: a count and a size, then one header per
# entry, with the offset in the content in place of the size of the header.
_TOGETHER = 0x100
# The flags of the variants "a" and "f", found by comparison.
_OWN_ARCH, _FAMILY = 0x100000, 0x200000
# Compressed LTO-IR is also scrambled, found by comparison.
_SCRAMBLED = 0x10000
_ARCHIVE = b"!<arch>\n"
_MEMBER = struct.Struct("16s12s6s6s8s10s2s")
_END = b"`\n"
# The symbols of an archive, and names too long for a member's header.
_LONG_NAME_END = re.compile(rb"/\n|\0")
_TABLES = ("/", "/SYM64/", "//")
# Relocatable code; .nv_fatbin holds linked code, which nvJitLink skips.
_RELOCATABLE_SECTION = "__nv_relfatbin"
_LINKED_SECTION = ".nv_fatbin"


@dataclass(frozen=True)
class FatbinEntry:
    """
    One piece of code in a fat binary.

    Args:
        kind: "ptx", "cubin", "ltoir", or the number that the container has for another kind.
        arch: The architecture it is for.
        size: Its size in the container, in bytes.
        payload: Its bytes in the container, which may be compressed.
        flags: The flags of its header: the compression and the variant of the architecture.
        packed_size: The size of its compressed bytes; the rest of the payload is padding.
        unpacked_size: The decompressed size, 0 if it is not compressed.
        version: The version of the content's format; of LTO-IR, that in its own header.
    """

    kind: str
    arch: str
    size: int
    payload: bytes = field(default=b"", repr=False)
    flags: int = field(default=0, repr=False)
    packed_size: int = field(default=0, repr=False)
    unpacked_size: int = field(default=0, repr=False)
    version: tuple[int, int] = field(default=(0, 0), repr=False)

    def content(self) -> bytes | None:
        """Return the decompressed code, None if its compression is unknown."""
        if not self.unpacked_size:
            return self.payload
        if self.flags & _SCRAMBLED:
            return None
        return compression.unpack(self.payload[: self.packed_size], self.flags, self.unpacked_size)


def fatbin_entries(code: bytes, name: str = FATBIN) -> tuple[FatbinEntry, ...]:
    """
    Return the entries of a fat binary.

    Args:
        code: The fat binary, from its magic number on.
        name: Its name in messages.

    Raises:
        LinkError: It is damaged.
        UnfamiliarError: Its form is unknown.
    """
    try:
        return tuple(_read_fatbin(code, name))
    except (struct.error, OverflowError, ValueError) as error:
        raise _damaged(name, "fat binary", elf.reason(error, code)) from error


def _read_fatbin(code: bytes, name: str) -> Iterator[FatbinEntry]:
    magic, version, at, size = _FATBIN.unpack_from(code)
    if magic != _MAGIC or version != _VERSION:
        raise _unfamiliar(name, f"magic number {magic:#x}, version {version}")
    end = at + size
    if at < _FATBIN.size or end > len(code):
        raise ValueError(f"it says it has {end} bytes, and has {len(code)}")
    while at < end:
        head = _ENTRY.unpack_from(code, at)
        version, header, size = head[1:4]
        if version != _ENTRY_VERSION:
            raise _unfamiliar(name, f"an entry of version {version:#x}")
        if header < _ENTRY.size or at + header + size > end:
            raise ValueError(f"the entry at byte {at} ends past its end")
        yield from _entries(
            head, code[at + _ENTRY.size : at + header], code[at + header : at + header + size]
        )
        at += header + size


def _entries(head: tuple[int, ...], rest: bytes, payload: bytes) -> Iterator[FatbinEntry]:
    """Yield the entries below one header of a fat binary: one, or several that are compressed together."""
    number, _, _, size, packed, _, version, sm, _, flags, _, unpacked = head
    kind = _ENTRY_KINDS.get(number, str(number))
    whole = FatbinEntry(
        kind, _arch(sm, flags), size, payload, flags, packed, unpacked, divmod(version, 0x10000)
    )
    content = whole.content() if number == _TOGETHER else None
    if content is None or len(rest) < 8 or len(rest) < 8 + _ENTRY.size * int.from_bytes(rest[:4], "little"):
        yield whole
        return
    for number, _, at, size, _, _, version, sm, _, flags, _, _ in _ENTRY.iter_unpack(
        rest[8 : 8 + _ENTRY.size * int.from_bytes(rest[:4], "little")]
    ):
        kind = _ENTRY_KINDS.get(number, str(number))
        piece = content[at : at + size]
        yield FatbinEntry(kind, _arch(sm, flags), size, piece, flags, version=divmod(version, 0x10000))


def _arch(sm: int, flags: int) -> str:
    return f"sm_{sm}{'a' if flags & _OWN_ARCH else 'f' if flags & _FAMILY else ''}"


def chosen(entries: tuple[FatbinEntry, ...], arch: Arch, *, lto: bool) -> FatbinEntry | None:
    """
    Return the entry that nvJitLink links, None if there is none.

    With link-time optimisation that is the newest LTO-IR; otherwise the machine code for the architecture or
    for an older one of the same generation, then the newest PTX. Observed by linking fat binaries whose
    entries define different code.

    Args:
        entries: The entries of the fat binary.
        arch: The architecture of the link.
        lto: Whether the link uses link-time optimisation.
    """

    def newest(kind: str) -> FatbinEntry | None:
        fitting = [
            (entry.arch == arch.sm, number, entry)
            for entry in entries
            if entry.kind == kind and (number := _fits(entry, arch)) is not None
        ]
        return max(fitting, key=lambda rank: rank[:2])[2] if fitting else None

    return (newest(LTOIR) if lto else None) or newest(CUBIN) or newest(PTX)


def holds_ltoir(code: bytes, kind: str, name: str, arch: Arch) -> bool:
    """Return whether a link with link-time optimisation takes LTO-IR of *code*."""
    if kind not in (FATBIN, OBJECT):
        return kind == LTOIR
    taken = [chosen(entries, arch, lto=True) for entries in fatbins(code, kind, name)]
    return any(entry is not None and entry.kind == LTOIR for entry in taken)


def _fits(entry: FatbinEntry, arch: Arch) -> int | None:
    """Return the number of the architecture of *entry*, None if it does not run on *arch*."""
    text = entry.arch.removeprefix("sm_")
    number = int(text.rstrip("af"))
    same = number // 10 == arch.major
    if text[-1] in "af":
        return (
            number if same and (entry.arch == arch.sm or text[-1] == "f") and number <= arch.number else None
        )
    return number if number <= arch.number and (same or entry.kind != CUBIN) else None


def fatbins(code: bytes, kind: str, name: str) -> list[tuple[FatbinEntry, ...]]:
    """
    Return the entries of each fat binary in a fat binary, a host object or an archive of host objects.

    Args:
        code: The container.
        kind: "fatbin", "object" or "archive".
        name: Its name in messages.

    Raises:
        LinkError: It is damaged.
        UnfamiliarError: Its form is unknown.
    """
    reader = _READERS.get(kind)
    return reader(code, name) if reader else []


def _of_fatbin(code: bytes, name: str) -> list[tuple[FatbinEntry, ...]]:
    return [fatbin_entries(code, name)]


def _of_object(
    code: bytes, name: str, sections: tuple[str, ...] = (_RELOCATABLE_SECTION,)
) -> list[tuple[FatbinEntry, ...]]:
    contents = [content for section, content in elf.raw_sections(code, name) if section in sections]
    return [fatbin_entries(fatbin, name) for content in contents for fatbin in _split(content)]


def finished_fatbins(code: bytes, name: str) -> list[tuple[FatbinEntry, ...]]:
    """
    Return the entries of each fat binary in a host file that is for drivers, and that nvJitLink skips.

    Raises:
        LinkError: It is damaged.
        UnfamiliarError: Its form is unknown.
    """
    return _of_object(code, name, (_LINKED_SECTION,))


def _of_archive(code: bytes, name: str) -> list[tuple[FatbinEntry, ...]]:
    lists = []
    for member, content in members(code, name):
        if content.startswith(b"\x7fELF"):
            lists += _of_object(content, f"{name}({member})")
        elif member not in ("", "/", "/SYM64"):
            raise _unfamiliar(f"{name}({member})", f"content that begins with {content[:4].hex()}")
    return lists


def device_code(code: bytes, kind: str, name: str) -> list[tuple[str, FatbinEntry]]:
    """
    Return all device code in a fat binary, a host file or an archive, linked or not, in order.

    Args:
        code: The container. Host files are objects, shared libraries and executables.
        kind: "fatbin", "object" or "archive".
        name: Its name in messages.

    Returns:
        Each piece, with the name of the archive's member that it is in, "" elsewhere.

    Raises:
        LinkError: It is damaged.
        UnfamiliarError: Its form is unknown.
    """
    if kind == FATBIN:
        return [("", entry) for entry in fatbin_entries(code, name)]
    if kind == OBJECT:
        fatbins = _of_object(code, name, (_LINKED_SECTION, _RELOCATABLE_SECTION))
        return [("", entry) for entries in fatbins for entry in entries]
    pieces: list[tuple[str, FatbinEntry]] = []
    for title, content in members(code, name):
        whole = f"{name}({title})"
        inner = recognise(content)
        if inner == CUBIN:
            arch = f"sm_{elf.read(content, whole).sm}"
            pieces.append((title, FatbinEntry(CUBIN, arch, len(content), content)))
        elif inner in (OBJECT, FATBIN):
            pieces += [(title, entry) for _, entry in device_code(content, inner, whole)]
    return pieces


_READERS = {FATBIN: _of_fatbin, OBJECT: _of_object, ARCHIVE: _of_archive}
CONTAINERS = tuple(_READERS)


def _split(content: bytes) -> Iterator[bytes]:
    """Yield the fat binaries that a linker has concatenated, each aligned to eight bytes."""
    at = 0
    while at + _FATBIN.size <= len(content):
        magic, _, header, size = _FATBIN.unpack_from(content, at)
        if not magic:
            at += 8
            continue
        yield content[at : at + header + size]
        at += (header + size + 7) // 8 * 8 or 8


def members(code: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    """
    Yield the members of a static library, as (name, content), including its symbol tables.

    Raises:
        LinkError: It is damaged.
    """
    try:
        yield from _walk_archive(code)
    except (struct.error, OverflowError, ValueError) as error:
        raise _damaged(name, "archive", elf.reason(error, code)) from error


def completed(code: bytes, name: str, read: Callable[[str], bytes]) -> bytes:
    """
    Return a thin archive, which has the paths of its members in their place, as a common one.

    Args:
        code: The thin archive.
        name: Its name in messages.
        read: What returns the content of the file with a path that the archive has.

    Raises:
        LinkError: It is damaged, or a member is not what the archive was made of.
    """
    parts = [_ARCHIVE]
    try:
        for title, header, content in _walk(code, len(THIN_ARCHIVE), read):
            if len(content) != int(header[48:58]):
                raise LinkError(
                    f"{title} is not as long as the thin archive {name} has it; make the archive again.",
                    inputs=(name,),
                )
            parts += [header, content, b"\n" * (len(content) % 2)]
    except (struct.error, OverflowError, ValueError) as error:
        raise _damaged(name, "archive", elf.reason(error, code)) from error
    return b"".join(parts)


def _walk_archive(code: bytes) -> Iterator[tuple[str, bytes]]:
    for title, _, content in _walk(code, len(_ARCHIVE)):
        yield title, content


def _walk(
    code: bytes, at: int, read: Callable[[str], bytes] | None = None
) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield title, header and content of each member from *at* on; *read* returns a content elsewhere."""
    long_names = b""
    # Some writers pad the end of the archive.
    while code[at : at + _MEMBER.size].strip(b"\0\n"):
        # Members begin at even offsets, which not every writer respects.
        if at % 2 and code[at + _MEMBER.size - len(_END) : at + _MEMBER.size] != _END:
            at += 1
        field, *_, size, mark = _MEMBER.unpack_from(code, at)
        header, at = code[at : at + _MEMBER.size], at + _MEMBER.size
        title = field.decode(errors="replace").strip()
        is_table = title in _TABLES
        held = int(size) if is_table or read is None else 0
        if mark != _END or at + held > len(code):
            raise ValueError("a member ends past its end")
        content = code[at : at + held]
        at += held
        if title == "//":
            long_names = content
        elif title[:1] == "/" and title[1:].isdigit():
            title = os.fsdecode(_LONG_NAME_END.split(long_names[int(title[1:]) :], maxsplit=1)[0])
        title = title.rstrip("/")
        yield title, header, content if is_table or read is None else read(title)


def check_whole(kind: str, code: bytes, name: str, arch: Arch | None = None) -> None:
    """
    Refuse a damaged container, on which NVIDIA's libraries may crash; unknown forms are accepted.

    Args:
        kind: The kind of the input; only containers are checked.
        code: Its content.
        name: Its name in messages.
        arch: The architecture of the link: of a fat binary, only the code for it is checked. None checks the
            code for every architecture.

    Raises:
        LinkError: It is damaged.
    """
    try:
        if kind in _CHECKS:
            _CHECKS[kind](code, name, arch)
    except elf.UnfamiliarError as error:
        log.info("%s is left to the linker: %s", name, error)


def _check_cubin(code: bytes, name: str, _: Arch | None) -> None:
    elf.read(code, name)


def _check_object(code: bytes, name: str, _: Arch | None) -> None:
    elf.check_sections(code, name)


def _check_fatbin(code: bytes, name: str, arch: Arch | None) -> None:
    entries = fatbin_entries(code, name)
    linked = chosen(entries, arch, lto=False) if arch else None
    for entry in entries if arch is None else filter(None, (linked,)):
        if entry.payload.startswith(b"\x7fELF"):
            elf.read(entry.payload, name)


def _check_archive(code: bytes, name: str, _: Arch | None) -> None:
    for _member in members(code, name):
        pass


_CHECKS = {CUBIN: _check_cubin, OBJECT: _check_object, FATBIN: _check_fatbin, ARCHIVE: _check_archive}


def _unfamiliar(name: str, form: str) -> elf.UnfamiliarError:
    return elf.UnfamiliarError(
        f"{name} is a container of a form that is not known here ({form}); upgrade numba-ptxlink.",
        inputs=(name,),
    )


def _damaged(name: str, what: str, reason: str) -> LinkError:
    return LinkError(
        f"{name} is not a whole {what} ({reason}); generate or copy it again.",
        inputs=(name,),
    )
