"""Walk what things reach: names that name others, registers that are computed of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

T = TypeVar("T")


def reachable(roots: Iterable[T], reached_from: Callable[[T], Iterable[T] | None]) -> set[T]:
    """Return what *roots* reach, and these themselves, but for what *reached_from* returns None for."""
    entered: set[T] = set()
    known: set[T] = set()
    pending = list(roots)
    while pending:
        each = pending.pop()
        if each in entered:
            continue
        entered.add(each)
        reached = reached_from(each)
        if reached is not None:
            known.add(each)
            pending += reached
    return known


def bottom_up(named: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names that *named* has, each after those that it names, but for cycles."""
    order: dict[str, None] = {}
    entered: set[str] = set()
    stack = [*named][::-1]
    while stack:
        name = stack[-1]
        if name in entered:
            order[stack.pop()] = None
        else:
            entered.add(name)
            stack += [each for each in reversed(named[name]) if each in named and each not in entered]
    return list(order)
