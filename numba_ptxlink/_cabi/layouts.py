"""Walk C types and what is in them, and describe them for a manifest, in plain values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from . import types as c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


def parts(types: Iterable[c.CType], *, inside: bool = False) -> Iterator[c.CType]:
    """
    Yield every type that *types* contain or point to, and these themselves, each once and after its parts.

    Args:
        types: Types.
        inside: Whether members of structs that C++ defines are parts, too.
    """
    seen: set[c.CType] = set()
    for ctype in types:
        yield from _walk(ctype, seen, inside=inside)


def _walk(ctype: c.CType, seen: set[c.CType], *, inside: bool) -> Iterator[c.CType]:
    if ctype in seen:
        return
    seen.add(ctype)
    if inside or not (isinstance(ctype, c.Struct) and ctype.existing):
        for part in ctype.inner:
            yield from _walk(part, seen, inside=inside)
    yield ctype


def inside(
    ctype: c.CType, path: str = "", start: int = 0, elements: int = 1
) -> Iterator[tuple[str, int, c.CType]]:
    """
    Yield path, offset and type of everything inside *ctype*, members before what is in them.

    Args:
        ctype: A struct or an array; nothing else holds something.
        path: What paths begin with, by the names in Python.
        start: The offset of *ctype*.
        elements: How many elements of an array are looked at.
    """
    steps: list[tuple[str, int, c.CType]] = []
    if isinstance(ctype, c.Struct):
        steps = [(f".{member.field}", member.offset, member.type) for member in ctype.members]
    elif isinstance(ctype, c.Array):
        numbers = range(min(ctype.count, elements))
        steps = [(f"[{number}]", number * ctype.element.size, ctype.element) for number in numbers]
    for name, offset, part in steps:
        inner = f"{path}{name}".removeprefix(".")
        yield inner, start + offset, part
        yield from inside(part, inner, start + offset, elements)


def words(types: Iterable[c.CType]) -> set[str]:
    """Return the words that *types* are spelled with."""
    return {word for ctype in types for word in re.findall(r"[^\W\d]\w*", ctype.name)}


def describe(types: Iterable[c.CType]) -> dict[str, dict[str, Any]]:
    """Return a description of each of *types*, and of what is in them before it, by its C name."""
    return {part.name: _describe(part) for part in parts(types, inside=True)}


def parameters(params: Sequence[tuple[str, c.CType]], *, kernel: bool) -> list[dict[str, Any]]:
    """Return name and type of each parameter, and for a kernel where it begins in the argument buffer."""
    described: list[dict[str, Any]] = [{"name": name, "type": ctype.name} for name, ctype in params]
    if kernel:
        # As in a C struct; "Kernel Function Parameters" in the PTX ISA.
        for entry, member in zip(described, c.struct("", params).members, strict=True):
            entry["offset"] = member.offset
    return described


def _describe(ctype: c.CType) -> dict[str, Any]:
    described: dict[str, Any] = {"kind": "void", "size": ctype.size, "align": ctype.align}
    if isinstance(ctype, c.Scalar):
        described["kind"] = ctype.row.kind
    elif isinstance(ctype, c.Compound):
        described["kind"] = ctype.row.kind
        if ctype.element:
            described |= {"element": ctype.element.name, "count": ctype.row.lanes}
    elif isinstance(ctype, c.Pointer):
        described |= {"kind": "pointer", "target": ctype.target.name, "readonly": ctype.readonly}
    elif isinstance(ctype, c.Array):
        described |= {"kind": "array", "element": ctype.element.name, "count": ctype.count}
    elif isinstance(ctype, c.View):
        described |= {"kind": "view", "element": ctype.element.name}
        described |= {"ndim": ctype.ndim, "layout": ctype.layout, "readonly": ctype.readonly}
    elif isinstance(ctype, c.Struct):
        described |= {"kind": "struct", "members": list(map(_place, ctype.members))}
    return described


def _place(member: c.Member) -> dict[str, Any]:
    renamed = {"field": member.field} if member.field != member.name else {}
    return {"name": member.name, "type": member.type.name, "offset": member.offset, **renamed}
