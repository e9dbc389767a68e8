"""
Tell whether code may write through an address that it is passed.

PTX is followed without regard to the order of its instructions: of each register it is known how many times
the address may be in it. `b + (a - b)` has the address `a` once and `b` not at all, which compilers compute
in loops; what is computed of an address in another way may point to it, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi import types as c
from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx.declarations import width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numba_ptxlink._cabi.signatures import Signature

    Times = frozenset[int | None]
    """How often an address is in a value; None where that is not known."""

_NEVER: Times = frozenset({0})
_UNKNOWN: Times = frozenset({None})
_MOST = 4
_BYTES = 8  # of an address
_COPIES = frozenset({"mov", "cvta", "cvt"})
_CHOICES = frozenset({"selp", "slct", "min", "max"})
_CONDITIONS = frozenset({"setp", "set", "isspacep", "testp"})
# The second address of the latter is the one that is read.
_READS = frozenset({"ld", "ldu", "ldmatrix", "prefetch", "prefetchu", "applypriority", "tex", "tld4", "suld"})
_COPIES_MEMORY = "cp"

Source = tuple[int, int]
"""The number of a parameter, and where in its bytes the address is."""


def addresses(signature: Signature) -> dict[int, str]:
    """Return the number and the name of each parameter whose address *signature* is only to read through."""
    return {
        number: name
        for number, (name, ctype) in enumerate(signature.params)
        if isinstance(ctype, (c.Pointer, c.View)) and ctype.readonly
    }


def through(module: ptx.Module, function: str, number: int) -> str | None:
    """
    Return what may write through the address in a parameter, None if nothing does.

    Args:
        module: The code.
        function: A function that it defines.
        number: The parameter, whose first bytes are the address.

    Raises:
        LinkError: The body of a function is malformed.
    """
    return _through(module, function, frozenset({(number, 0)}), set())


def _through(
    module: ptx.Module, name: str, sources: frozenset[Source], seen: set[tuple[str, frozenset[Source]]]
) -> str | None:
    if (name, sources) in seen:
        return None
    seen.add((name, sources))
    function = module.definition(name)
    if function is None:
        return f"passes it to {name}, which is defined elsewhere"
    flow = _Flow(frozenset((function.params[number].name, offset) for number, offset in sources))
    statements = [*_scoped(function.body, ())]
    flow.settle(statements)
    for scope, statement in statements:
        if isinstance(statement, ptx.Instruction) and flow.writes(statement):
            return f"has `{' '.join(module.source(statement).split())}`"
        if not isinstance(statement, ptx.Call):
            continue
        passed = flow.passed(scope, statement)
        if passed:
            target = statement.callee.name if isinstance(statement.callee, ptx.Name) else ""
            callee = module.definition(target)
            if callee is None:
                where = (
                    f"{target}, which is defined elsewhere" if statement.prototype is None else "a pointer"
                )
                return f"passes it to {where}"
            found = _through(module, target, frozenset(passed), seen)
            if found:
                return f"calls {target}, which {found}"
    return None


Scope = tuple[int, ...]


def _scoped(statements: Iterable[ptx.Statement], scope: Scope) -> Iterator[tuple[Scope, ptx.Statement]]:
    """Yield all statements, each with the blocks it is in: a call's parameters are named within its block."""
    for statement in statements:
        yield scope, statement
        if isinstance(statement, ptx.Block):
            yield from _scoped(statement.statements, (*scope, statement.start))


@dataclass
class _Flow:
    """
    What is known of the values in a function.

    Args:
        sources: Its parameters that the address is in.
        registers: How often each register may have it.
        params: The same of the parameters and results of calls, by block and name, and by offset.
        spaces: The registers that may hold where a parameter of *sources* is.
        memory: How often anything in memory may have it.
        known: How much is known, which only grows.
    """

    sources: frozenset[tuple[str, int]]
    registers: dict[str, Times] = field(default_factory=dict)
    params: dict[tuple[Scope, str], dict[int, Times]] = field(default_factory=dict)
    spaces: set[str] = field(default_factory=set)
    memory: Times = _NEVER
    known: int = 0

    def settle(self, statements: Sequence[tuple[Scope, ptx.Statement]]) -> None:
        """Take account of *statements* until none of them brings anything new."""
        known = -1
        while known < self.known:
            known = self.known
            for scope, statement in statements:
                self._account(scope, statement)

    def _account(self, scope: Scope, statement: ptx.Statement) -> None:
        if isinstance(statement, ptx.Call):
            if self.passed(scope, statement):
                for result in _names(statement.results):
                    self._pass(scope, result, 0, _UNKNOWN)
        elif isinstance(statement, ptx.Instruction) and statement.operands:
            self._follow(scope, statement)

    def writes(self, statement: ptx.Instruction) -> bool:
        """Return whether *statement* may write to the address."""
        if statement.opcode in _READS or "load" in statement.modifiers:
            return False
        places = [operand for operand in statement.operands if isinstance(operand, ptx.Address)]
        if statement.opcode == _COPIES_MEMORY:
            places = places[:1]
        return any(self._of(base) != _NEVER for place in places if (base := place.base) is not None)

    def passed(self, scope: Scope, call: ptx.Call) -> list[tuple[int, int]]:
        """Return the number of each argument of *call* that has the address, and where it is in it."""
        found = []
        for number, argument in enumerate(call.arguments):
            for name in _names([argument]):
                found += [(number, offset) for offset in self.params.get((scope, name), ())]
                if self.registers.get(name, _NEVER) != _NEVER:
                    found.append((number, 0))
        return found

    def _follow(self, scope: Scope, statement: ptx.Instruction) -> None:
        opcode, (first, *others) = statement.opcode, statement.operands
        kind = statement.modifiers[-1] if statement.modifiers else ""
        if opcode == "ld" and isinstance(others[0], ptx.Address):
            self._load(scope, first, others[0], width(kind) // 8, "param" in statement.modifiers)
        elif opcode == "st" and isinstance(first, ptx.Address):
            self._store(scope, first, others[0], width(kind) // 8, "param" in statement.modifiers)
        elif opcode in _CONDITIONS:
            return
        else:
            if any(
                name in self.spaces or any(name == param for param, _ in self.sources)
                for name in _names(others)
            ):
                new = {*_names([first])} - self.spaces
                self.known += len(new)
                self.spaces |= new
            self._set(first, self._computed(opcode, others))

    def _computed(self, opcode: str, operands: Sequence[ptx.Operand]) -> Times:
        times = [self._of(operand) for operand in operands]
        if opcode in _COPIES and times:
            return times[0] if isinstance(operands[0], ptx.Name) else _tainted(times)
        if opcode in _CHOICES:
            return times[0] | times[1]
        if opcode == "add":
            return _each(lambda one, other: one + other, times[0], times[1])
        if opcode == "sub":
            return _each(lambda one, other: one - other, times[0], times[1])
        if opcode == "mad":
            return _each(lambda one, other: one + other, _tainted(times[:2]), times[2])
        return _tainted([*times, self.memory] if opcode in {"atom", "ldmatrix", "ldu", "tex"} else times)

    def _load(
        self,
        scope: Scope,
        target: ptx.Operand,
        place: ptx.Address,
        size: int,
        is_param: bool,  # noqa: FBT001
    ) -> None:
        elements = target.elements if isinstance(target, ptx.Vector) else (target,)
        base, start = place.base, place.offset
        name = base.name if base else ""
        for number, element in enumerate(elements):
            times = self.memory
            if name in self.spaces or (is_param and start is None):
                times = _NEVER | _UNKNOWN
            elif is_param and start is not None:
                times = self._of_param(scope, name, start + number * size, size)
            self._set(element, times)

    def _of_param(self, scope: Scope, name: str, start: int, size: int) -> Times:
        own: list[tuple[int, Times]] = [
            (offset, frozenset({1})) for param, offset in self.sources if param == name
        ]
        found: Times = _NEVER
        for offset, times in (*own, *self.params.get((scope, name), {}).items()):
            if (offset, _BYTES) == (start, size):
                return times
            if offset < start + size and start < offset + _BYTES:
                found = _tainted([times]) | found
        return found

    def _store(
        self,
        scope: Scope,
        place: ptx.Address,
        value: ptx.Operand,
        size: int,
        is_param: bool,  # noqa: FBT001
    ) -> None:
        elements = value.elements if isinstance(value, ptx.Vector) else (value,)
        for number, element in enumerate(elements):
            times = self._of(element)
            if is_param and place.base is not None and place.offset is not None:
                self._pass(scope, place.base.name, place.offset + number * size, times)
            else:
                self.known += len(times - self.memory)
                self.memory |= times

    def _pass(self, scope: Scope, name: str, offset: int, times: Times) -> None:
        if times != _NEVER:
            self._add(self.params.setdefault((scope, name), {}), offset, times)

    def _add(self, table: dict[Any, Times], key: str | int, times: Times) -> None:
        there = table.get(key, frozenset())
        self.known += len(times - there)
        table[key] = there | times

    def _set(self, target: ptx.Operand, times: Times) -> None:
        several = isinstance(target, ptx.Vector | ptx.Pair)
        for name in _names([target]):
            new = _tainted([times]) if several and times != _NEVER else times
            if new != _NEVER or name in self.registers:
                self._add(self.registers, name, new)

    def _of(self, operand: ptx.Operand) -> Times:
        """Return how often the address may be in *operand*."""
        found = [self.registers.get(name, _NEVER) for name in _names([operand])]
        if isinstance(operand, ptx.Name):
            return found[0]
        return _tainted(found)


def _tainted(times: Iterable[Times]) -> Times:
    return _NEVER if all(each == _NEVER for each in times) else _UNKNOWN


def _each(operation: Callable[[int, int], int], one: Times, other: Times) -> Times:
    numbers = {
        None if None in (left, right) else operation(left, right)  # type: ignore[arg-type]
        for left in one
        for right in other
    }
    return frozenset(None if number is None or abs(number) > _MOST else number for number in numbers)


def _names(operands: Iterable[ptx.Operand | str]) -> Iterator[str]:
    """Yield the names in *operands*."""
    for operand in operands:
        if isinstance(operand, ptx.Name):
            yield operand.name
        elif isinstance(operand, (ptx.Vector, ptx.Address)):
            yield from _names(operand.elements)
        elif isinstance(operand, ptx.Expression):
            yield from _names(operand.parts)
        elif isinstance(operand, ptx.Negated):
            yield operand.operand.name
        elif isinstance(operand, ptx.Pair):
            yield from _names([operand.first, operand.second])
