"""
Convert the members of a result to those of the type that a signature declares.

Numba converts a number that is returned to the declared type, and the members of a tuple, but not those of a
named tuple: `Point(p.x + 1, p.y)` would have to be `Point(float32(p.x + 1), p.y)`.
"""

from __future__ import annotations

from typing import Any


def converts(typing_context: Any, source: Any, target: Any, result: Any, types: Any) -> bool:
    """
    Return whether a tuple of the type *source* that a function returns becomes one of the type *target*.

    Args:
        typing_context: What tells which other types convert.
        source: The type of the value.
        target: A named tuple in *result*.
        result: The declared type, None for one that is inferred.
        types: The module of types of the front end.
    """
    named = (types.NamedTuple, types.NamedUniTuple)
    if not isinstance(target, named) or not isinstance(source, types.BaseTuple) or not holds(result, target):
        return False
    if isinstance(source, named) and source.instance_class is not target.instance_class:
        return False
    return len(source) == len(target) and all(
        typing_context.can_convert(old, new) is not None
        for old, new in zip(source.types, target.types, strict=True)
    )


def holds(ty: Any, target: Any) -> bool:
    """Return whether values of the type *ty* are, or have members, of the type *target*."""
    members = getattr(ty, "types", ()) or filter(None, [getattr(ty, "type", None)])
    return ty == target or any(holds(member, target) for member in members)
