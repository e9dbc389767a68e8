"""Describe C types for a manifest: what a launch has to know of them, in plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import types as c

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .signatures import Signature


def describe(signatures: Iterable[Signature]) -> dict[str, dict[str, Any]]:
    """Return a description of every type of *signatures* by its C name, members before their structs."""
    types = (ctype for signature in signatures for ctype in signature.types)
    return {part.name: _describe(part) for part in c.parts(types, inside=True)}


def parameters(signature: Signature) -> list[dict[str, Any]]:
    """Return name and type of each parameter, and for a kernel where it begins in the argument buffer."""
    described: list[dict[str, Any]] = [{"name": name, "type": ctype.name} for name, ctype in signature.params]
    if signature.kernel:
        # As in a C struct; "Kernel Function Parameters" in the PTX ISA.
        for entry, member in zip(described, c.struct("", signature.params).members, strict=True):
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
