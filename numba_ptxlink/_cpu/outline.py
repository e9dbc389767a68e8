"""What has to be known of a function's body before it is translated: labels, loops, calls, and who waits."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Opcodes at which lanes wait for others, and the call of the device runtime that does.
_WAITING = frozenset(("bar", "barrier", "shfl", "vote", "match", "redux", "activemask"))
_WAITING_CALL = "cudaCGSynchronize"


@dataclass(eq=False)
class Outline:
    """
    A body.

    Args:
        function: The function.
        statements: Each with its number, and the names that are declared there.
        labels: The places of labels by block and name.
        headers: The labels that something behind them jumps to.
        targets: The branch targets that labels list.
        exposed: The variables whose address is taken.
        shared: The variables that it declares in memory that lanes share, with their declarations.
        callees: The functions that it calls by name.
        waits: Whether lanes wait for others in it.
    """

    function: ptx.Function
    statements: list[tuple[int, ptx.Statement, ptx.Scope]]
    labels: dict[tuple[int, str], int] = field(default_factory=dict)
    headers: set[tuple[int, str]] = field(default_factory=set)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    exposed: set[ptx.Register | str] = field(default_factory=set)
    shared: dict[ptx.Register, ptx.Variable] = field(default_factory=dict)
    callees: set[str] = field(default_factory=set)
    waits: bool = False

    @classmethod
    def of(cls, function: ptx.Function) -> Outline:
        """Return the outline of a function with a body."""
        found = cls(function, list(ptx.scoped(function.body)))
        jumps = []
        last = ""
        for place, statement, scope in found.statements:
            if isinstance(statement, ptx.Label):
                last = statement.name
                found.labels[scope.block, last] = place
            elif isinstance(statement, ptx.Directive):
                if statement.keyword == "branchtargets":
                    found.targets[last] = tuple(statement.names)
                    jumps += [(place, name, scope) for name in statement.names]
            elif isinstance(statement, ptx.Declaration):
                for variable in statement.variables:
                    if variable.space not in ("reg", "local", "param"):
                        found.shared[ptx.Register(scope.block, variable.name, "")] = variable
            elif isinstance(statement, ptx.Instruction):
                found._instruction(place, statement, scope, jumps)
        for place, name, scope in jumps:
            label = found.label(name, scope)
            if label and found.labels[label] <= place:
                found.headers.add(label)
        return found

    def _instruction(
        self,
        place: int,
        instruction: ptx.Instruction,
        scope: ptx.Scope,
        jumps: list[tuple[int, str, ptx.Scope]],
    ) -> None:
        opcode = instruction.opcode
        if opcode == "bra":
            jumps.append((place, instruction.operands[0], scope))
        elif opcode == "call":
            self.callees.add(ptx.called(instruction).callee)
        elif opcode == "brx":
            if instruction.operands[1] in self.targets:
                jumps += [(place, name, scope) for name in self.targets[instruction.operands[1]]]
        else:
            self.waits |= opcode in _WAITING
            for operand in instruction.operands[1:] if opcode in ("mov", "cvta", "add") else ():
                self.exposed.add(scope.find(operand) or operand)

    def label(self, name: str, scope: ptx.Scope | None) -> tuple[int, str] | None:
        """Return the label that *name* is in a block, None without one."""
        while scope is not None:
            if (scope.block, name) in self.labels:
                return scope.block, name
            scope = scope.outer
        return None


class Outlines:
    """The outlines of a module's functions, and what follows from who calls whom."""

    def __init__(self, functions: Mapping[str, ptx.Function]) -> None:
        self._functions = functions

    @functools.cache  # noqa: B019 - it lives as long as the translation
    def of(self, name: str) -> Outline:
        """Return the outline of a function."""
        return Outline.of(self._functions[name])

    def reached(self, name: str) -> Iterator[Outline]:
        """Yield the outlines of a function and of those that it may call, directly or not."""
        seen, waiting = {name}, [name]
        while waiting:
            outline = self.of(waiting.pop())
            yield outline
            for callee in sorted(outline.callees):
                function = self._functions.get(callee)
                if callee not in seen and function and function.kind == "func":
                    seen.add(callee)
                    waiting.append(callee)

    @functools.cache  # noqa: B019 - likewise
    def waits(self, name: str) -> bool:
        """Return whether lanes wait for others in a function, or in one that it calls."""
        return any(each.waits or _WAITING_CALL in each.callees for each in self.reached(name))

    @functools.cache  # noqa: B019 - likewise
    def bounded(self, name: str) -> bool:
        """Return whether it is known how much local memory a function and those that it calls need."""
        return not any(self._recurs(each.function.name) for each in self.reached(name))

    @functools.cache  # noqa: B019 - likewise
    def _recurs(self, name: str) -> bool:
        return any(name in each.callees for each in self.reached(name))
