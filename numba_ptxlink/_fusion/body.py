"""What has to be known of a function to inline it or its calls: the calls, and every use of a parameter."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from .register_pieces import Access, MemorySlot

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIRECTIVES = frozenset(("loc", "pragma", "branchtargets", "calltargets", "callprototype"))
_JUMPS = ("bra", "brx", "call")
_STACK = ("alloca", "stacksave", "stackrestore")


@functools.lru_cache(maxsize=1024)
def _matters_without_names(mnemonic: str) -> bool:
    """Return whether an instruction with the opcode *mnemonic* matters even if it names no symbol."""
    # A label may begin as registers do.
    return mnemonic.partition(".")[0] in ("ret", *_JUMPS, *_STACK) or mnemonic.startswith(".param", 2)


@dataclass(frozen=True, eq=False)
class CallSite:
    """
    A call of a function by its name.

    Args:
        place: The number of the statement.
        callee: The name.
        passed: The variables for the results, then those for the parameters; None for another operand.
        results: How many of these are results.
        scope: The names that are declared where the call is.
    """

    place: int
    callee: str
    passed: tuple[MemorySlot | None, ...]
    results: int
    scope: ptx.Scope


class Body:
    """
    The body of a function.

    Args:
        function: The function, with a body.
        statements: Its statements.

    Attributes:
        call_sites: The calls of functions by name.
        formals: Its results and parameters, in order.
        returns: The numbers of its `ret` instructions.
        labels: The labels in it.
        labelled: The numbers of the statements that are, or may name, a label.
        symbols: The names in it that it does not declare, but for those of `call_sites`.
        size: How many instructions it has.
        indirect: How many calls of it are none by name.
        not_inlinable: Why it cannot be inlined, "" if nothing in it is in the way.
    """

    def __init__(self, function: ptx.Function, statements: tuple[ptx.Statement, ...]) -> None:
        self.function = function
        self.statements = statements
        self.call_sites: list[CallSite] = []
        self.returns: list[int] = []
        self.labels: dict[str, None] = {}
        self.labelled: list[int] = []
        self.symbols: set[str] = set()
        self.size = self.indirect = 0
        self.not_inlinable = ""
        self.formals = tuple(map(MemorySlot, (*function.results, *function.params)))
        self._memory_slots: dict[str | ptx.Register, MemorySlot] = {
            formal.name: formal for formal in self.formals
        }
        for place, statement, scope in ptx.scoped(statements):
            if isinstance(statement, ptx.Instruction):
                self.size += 1
                names = ptx.symbols(statement.operand_text)
                if names or _matters_without_names(statement.mnemonic):
                    self._instruction(place, statement, names, scope)
            elif isinstance(statement, ptx.Label):
                self.labels[statement.name] = None
                self.labelled.append(place)
            elif isinstance(statement, ptx.Declaration):
                self._declaration(place, statement, scope)
            elif isinstance(statement, ptx.Directive):
                if statement.keyword not in _DIRECTIVES:
                    # What follows on the next lines may be read as its operands.
                    self.not_inlinable = f"it has the directive .{statement.keyword}"
                self.labelled.append(place)
                self._use(statement.names, scope)
        # A branch may come before its label.
        self.symbols.difference_update(self.labels)
        if any(
            each.space != "param" or each.name[0] == "%" for each in (*function.results, *function.params)
        ):
            self.not_inlinable = "it takes or returns registers"
        # ptxas may refuse what it says of the function, which the place of a call does not have.
        if function.directives:
            self.not_inlinable = f"it is marked {' '.join(function.directives)}"

    @property
    def reached_names(self) -> set[str]:
        """The names in it that it does not declare."""
        return self.symbols | {site.callee for site in self.call_sites}

    def _declaration(self, place: int, declaration: ptx.Declaration, scope: ptx.Scope) -> None:
        for variable in declaration.variables:
            self.symbols.update(variable.symbols)
            if variable.space == "param" and variable.name[0] == "%":
                self.not_inlinable = f"{variable.name} has the name of a register"
            elif variable.space == "param":
                slot = MemorySlot(variable, place)
                # Registers for one of several would take the others' declarations away.
                slot.escapes = len(declaration.variables) > 1 or variable.count is not None
                self._memory_slots[ptx.Register(scope.block, variable.name, "")] = slot
            elif variable.space not in ("local", "reg"):
                # Every call shares it; a copy of the function would have a copy of it.
                self.not_inlinable = f"it declares {variable.name} in .{variable.space} memory"

    def _slot(self, name: str, scope: ptx.Scope) -> MemorySlot | None:
        return self._memory_slots.get(scope.find(name) or name)

    def _instruction(
        self, place: int, instruction: ptx.Instruction, names: list[str], scope: ptx.Scope
    ) -> None:
        opcode = instruction.opcode
        if opcode in _JUMPS:
            self.labelled.append(place)
        if opcode == "bra":
            return
        if opcode == "call":
            self._call(place, instruction, scope)
            return
        if opcode == "ret":
            self.returns.append(place)
        elif opcode in _STACK:
            self.not_inlinable = f"it allocates on the stack by {opcode}"
        elif instruction.mnemonic.startswith(".param", 2) and self._access(place, instruction, scope):
            return
        takes = opcode == "mov" and len(names) == 1 and instruction.operands[1:] == (names[0],)
        slot = self._slot(names[0], scope) if takes else None
        if slot:
            slot.addresses.append(place)
        else:
            self._use(names, scope)

    def _access(self, place: int, instruction: ptx.Instruction, scope: ptx.Scope) -> bool:
        """Note *instruction* if it loads or stores a variable that calls pass; return whether it does."""
        address = instruction.address
        slot = self._slot(address[0], scope) if address else None
        access = Access.of(instruction, scope.find)
        if slot is None:
            self.not_inlinable = "it accesses parameters through a pointer"
        elif access:
            slot.accesses[place] = access
        return bool(slot and access)

    def _call(self, place: int, instruction: ptx.Instruction, scope: ptx.Scope) -> None:
        call = ptx.parse_call(instruction)
        passed = [self._slot(name, scope) for name in (*call.results, *call.arguments)]
        own = tuple(slot if slot and slot.declaration >= 0 else None for slot in passed)
        for slot in passed:
            if slot and slot.declaration >= 0:
                slot.calls += 1
            elif slot:
                slot.escapes = True
        self._use((*call.results, *call.arguments), scope, escaping=False)
        if call.prototype or scope.find(call.callee):
            self.indirect += 1
            self._use((call.callee, *filter(None, [call.prototype])), scope)
        else:
            self.call_sites.append(CallSite(place, call.callee, own, len(call.results), scope))

    def _use(self, names: Iterable[str], scope: ptx.Scope, *, escaping: bool = True) -> None:
        for name in names:
            register = scope.find(name)
            if slot := self._memory_slots.get(register or name):
                slot.escapes |= escaping
            elif not register and name[:1] != "%":
                self.symbols.add(name)
