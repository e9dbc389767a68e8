"""Walk graphs: find the nodes that others reach, and order names after those that they refer to."""

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


def bottom_up(references: Mapping[str, Sequence[str]]) -> list[str]:
    """
    Return the keys of *references*, each after the keys that it refers to.

    For example, functions after their callees. The order within a cycle, as of recursive functions, is
    arbitrary.
    """
    order: dict[str, None] = {}
    visited: set[str] = set()
    stack = [*references][::-1]
    while stack:
        name = stack[-1]
        # A visited name is at the top again when all names that were put above it are in the order. A name
        # that two others refer to may be on the stack twice: the second time, its place in the order stays.
        if name in visited:
            order[stack.pop()] = None
        else:
            visited.add(name)
            stack += [
                reference
                for reference in reversed(references[name])
                if reference in references and reference not in visited
            ]
    return list(order)
