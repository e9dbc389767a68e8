"""The structure of fat binaries and archives: what is in them, and whether they are whole."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from . import _elf
from .errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FATBIN = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ")
_SM_AT = 28
_ARCHIVE = b"!<arch>\n"
_MEMBER = struct.Struct("16s12s6s6s8s10s2s")
_ENTRY_KINDS = {1: "ptx", 2: "cubin", 8: "ltoir"}


@dataclass(frozen=True)
class FatbinEntry:
    """
    One piece of code in a fat binary.

    Args:
        kind: "ptx", "cubin", "ltoir", or the container's own number for another.
        arch: The architecture it is for.
        size: Its size in the container, in bytes.
        payload: Its bytes in the container, which may be compressed.
    """

    kind: str
    arch: str
    size: int
    payload: bytes = field(default=b"", repr=False)


def fatbin_entries(code: bytes, name: str = "fatbin") -> tuple[FatbinEntry, ...]:
    """
    Return what a fat binary lists.

    Args:
        code: The fat binary, from its magic number on.
        name: What messages call it.

    Raises:
        LinkError: It is damaged.
    """
    try:
        return tuple(_read_fatbin(code))
    except (struct.error, OverflowError, ValueError) as error:
        raise _damaged(name, "fat binary", error) from error


def _read_fatbin(code: bytes) -> Iterator[FatbinEntry]:
    _, _, at, size = _FATBIN.unpack_from(code)
    end = at + size
    if at < _FATBIN.size or end > len(code):
        raise ValueError(f"it says it has {end} bytes, and has {len(code)}")
    while at < end:
        number, _, header, size = _ENTRY.unpack_from(code, at)
        (sm,) = struct.unpack_from("<I", code, at + _SM_AT)
        if header < _SM_AT + 4 or at + header + size > end:
            raise ValueError(f"the entry at byte {at} ends past its end")
        payload = code[at + header : at + header + size]
        yield FatbinEntry(_ENTRY_KINDS.get(number, str(number)), f"sm_{sm}", size, payload)
        at += header + size


def check_whole(kind: str, code: bytes, name: str) -> None:
    """
    Refuse a damaged container, which NVIDIA's libraries may crash on.

    Args:
        kind: The kind of the input; only containers are looked at.
        code: Its content.
        name: What messages call it.

    Raises:
        LinkError: It is damaged.
    """
    if kind == "cubin":
        _elf.read(code, name)
    elif kind == "fatbin":
        for entry in fatbin_entries(code, name):
            if entry.payload.startswith(b"\x7fELF"):
                _elf.read(entry.payload, name)
    elif kind == "archive":
        try:
            _walk_archive(code)
        except (struct.error, OverflowError, ValueError) as error:
            raise _damaged(name, "archive", error) from error


def _walk_archive(code: bytes) -> None:
    at = len(_ARCHIVE)
    while at < len(code):
        *_, size, mark = _MEMBER.unpack_from(code, at)
        at += _MEMBER.size + int(size)
        if mark != b"`\n" or at > len(code):
            raise ValueError("a member ends past its end")
        at += at % 2


def _damaged(name: str, what: str, error: Exception) -> LinkError:
    return LinkError(
        f"{name} is not a whole {what} ({error}); generate or copy it again.",
        inputs=(name,),
    )
