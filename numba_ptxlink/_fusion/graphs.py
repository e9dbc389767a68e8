"""Walk graphs: find the nodes that are reachable from others, and order functions after their callees."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")


def reachable(roots: Iterable[T], neighbours_of: Callable[[T], Iterable[T] | None]) -> set[T]:
    """Return *roots* and all nodes that they reach, except nodes for which *neighbours_of* returns None."""
    visited: set[T] = set()
    reached: set[T] = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        if node in visited:
            continue
        visited.add(node)
        neighbours = neighbours_of(node)
        if neighbours is not None:
            reached.add(node)
            pending += neighbours
    return reached


def bottom_up(callees: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the keys of *callees*, each after its callees; the order within cycles is arbitrary."""
    order: dict[str, None] = {}
    visited: set[str] = set()
    stack = [*callees][::-1]
    while stack:
        name = stack[-1]
        # A name is at the top of the stack again when all callees, which were above it, are in the order.
        if name in visited:
            order[stack.pop()] = None
        else:
            visited.add(name)
            stack += [
                callee for callee in reversed(callees[name]) if callee in callees and callee not in visited
            ]
    return list(order)
