"""Find and replace the symbols in PTX statements."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from .operands import Expression, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

AnyNode = TypeVar("AnyNode", bound=Node)
_PLACES = frozenset(("start", "end", "linkage_span"))


def names(node: Node) -> Iterator[str]:
    """Yield every occurrence of a symbol in *node*, including declarations."""
    for field in _fields(node):
        value = getattr(node, field)
        if field == "name":
            if value:
                yield value
        elif field == "initial":
            yield from node.symbols  # type: ignore[attr-defined] # every node with an initializer has them
        else:
            yield from _names_of(node, value)


def renamed(node: AnyNode, rename: Callable[[str], str]) -> AnyNode:
    """
    Return *node* with other symbols, those that it declares included. What it returns lies in no text.

    Args:
        node: A statement, an operand, or a part of one; not a function, whose body is text.
        rename: What gives the new name for an old one. It is asked about the sink `_` as well.
    """
    changed: dict[str, Any] = {}
    for field in _fields(node):
        value = getattr(node, field)
        if field == "name":
            changed[field] = rename(value) if value else value
        elif field == "initial":
            named = node.symbols  # type: ignore[attr-defined] # every node with an initializer has them
            changed[field] = str(renamed(node.initializer, rename)) if named else value  # type: ignore[attr-defined]
        else:
            changed[field] = _renamed_of(node, value, rename)
    return dataclasses.replace(node, **changed, start=-1, end=-1)


def _fields(node: Node) -> list[str]:
    return [name for name in node.__dataclass_fields__ if name not in _PLACES]


def _names_of(node: Node, value: object) -> Iterator[str]:
    if isinstance(value, Node):
        yield from names(value)
    elif isinstance(value, tuple):
        for position, element in enumerate(value):
            if not _operator(node, position):
                yield from _names_of(node, element)


def _renamed_of(node: Node, value: Any, rename: Callable[[str], str]) -> Any:
    if isinstance(value, Node):
        return renamed(value, rename)
    if isinstance(value, tuple):
        return tuple(
            element if _operator(node, position) else _renamed_of(node, element, rename)
            for position, element in enumerate(value)
        )
    return value


def _operator(node: Node, position: int) -> bool:
    """Return whether a part of *node* is the name of an operator, such as `generic` in `generic(x)`."""
    return isinstance(node, Expression) and node.parts[position + 1 : position + 2] == ("(",)
