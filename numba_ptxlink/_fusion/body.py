"""Analyse the body of a function for inlining: its calls, and the uses of parameters and call arguments."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from .register_pieces import Access, MemorySlot

if TYPE_CHECKING:
    from collections.abc import Iterable

# Directives of bodies that the parser knows, with or without a semicolon. Another directive may have no
# semicolon, and the parser then takes the next statement for a part of it.
_KNOWN_DIRECTIVES = frozenset(("loc", "pragma", "branchtargets", "calltargets", "callprototype"))
# Instructions that may name labels; `call` names those of prototypes.
_JUMP_OPCODES = ("bra", "brx", "call")
_STACK_OPCODES = ("alloca", "stacksave", "stackrestore")


@functools.lru_cache(maxsize=1024)
def _is_recorded_without_names(mnemonic: str) -> bool:
    """Return whether an instruction matters to inlining even if `ptx.find_symbols` finds no name in it."""
    # A jump may name a label that begins with `%`, which `ptx.find_symbols` takes for a register.
    opcode = mnemonic.partition(".")[0]
    if opcode in ("ret", *_JUMP_OPCODES, *_STACK_OPCODES):
        return True
    # `ld.param` and `st.param`, whose opcodes have two letters, may have the address in a register.
    return mnemonic.startswith(".param", 2)


@dataclass(frozen=True, eq=False)
class CallSite:
    """
    A call of a function by its name.

    Args:
        index: The index of the statement.
        callee: The name of the called function.
        actuals: The variables that the caller declares for the results, then those for the parameters; None
            for an operand that is no such variable.
        result_count: The number of results among *actuals*.
        scope: The names that are declared at the call.
    """

    index: int
    callee: str
    actuals: tuple[MemorySlot | None, ...]
    result_count: int
    scope: ptx.Scope


class Body:
    """
    The body of a function, and its analysis.

    Args:
        function: The function, with a body.
        statements: The statements of the body; unlike those of *function*, without line numbers, and after
            inlining with the bodies of other functions.

    Attributes:
        call_sites: The calls of functions by name.
        formals: The results, then the parameters of the function, in order.
        returns: The indices of the `ret` instructions.
        labels: The labels, in order, as the keys of a dict.
        label_indices: The indices of labels, and of statements that may name a label.
        symbols: The names that the body uses and does not declare, without the callees of `call_sites`.
        size: The number of instructions.
        indirect_calls: The number of indirect calls.
        not_inlinable_reason: Why the function cannot be inlined; "" if it can.
    """

    def __init__(self, function: ptx.Function, statements: tuple[ptx.Statement, ...]) -> None:
        self.function = function
        self.statements = statements
        self.call_sites: list[CallSite] = []
        self.returns: list[int] = []
        self.labels: dict[str, None] = {}
        self.label_indices: list[int] = []
        self.symbols: set[str] = set()
        self.size = self.indirect_calls = 0
        self.not_inlinable_reason = ""
        self.formals = tuple(map(MemorySlot, (*function.results, *function.params)))
        # The results and parameters by name. `_record_declaration` adds the variables of the body, each by
        # the register that `Scope.find` returns for it.
        self._memory_slots: dict[str | ptx.Register, MemorySlot] = {
            formal.name: formal for formal in self.formals
        }
        for index, statement, scope in ptx.with_scopes(statements):
            if isinstance(statement, ptx.Instruction):
                self.size += 1
                names = ptx.find_symbols(statement.operand_text)
                if names or _is_recorded_without_names(statement.mnemonic):
                    self._record_instruction(index, statement, names, scope)
            elif isinstance(statement, ptx.Label):
                self.labels[statement.name] = None
                self.label_indices.append(index)
            elif isinstance(statement, ptx.Declaration):
                self._record_declaration(index, statement, scope)
            elif isinstance(statement, ptx.Directive):
                if statement.keyword not in _KNOWN_DIRECTIVES:
                    self.not_inlinable_reason = f"it has the directive .{statement.keyword}"
                self.label_indices.append(index)
                self._record_use(statement.names, scope)
        # Statements before a label may name it, so all labels are known only now.
        self.symbols.difference_update(self.labels)
        if any(
            variable.space != "param" or variable.name[0] == "%"
            for variable in (*function.results, *function.params)
        ):
            self.not_inlinable_reason = "parameters are registers, not .param"
        # The code in the caller would lack directives of the function, such as .noreturn.
        if function.directives:
            self.not_inlinable_reason = f"it is marked {' '.join(function.directives)}"

    @property
    def reached_names(self) -> set[str]:
        """The names that the body uses and does not declare."""
        return self.symbols | {site.callee for site in self.call_sites}

    def _record_declaration(self, index: int, declaration: ptx.Declaration, scope: ptx.Scope) -> None:
        for variable in declaration.variables:
            if variable.space == "param" and variable.name[0] == "%":
                self.not_inlinable_reason = f"{variable.name} has the name of a register"
            elif variable.space == "param":
                slot = MemorySlot(variable, index)
                # If one statement declares several variables (`a, b` or `a<2>`), replacing one variable would
                # delete the declarations of the others. An escaping variable is not replaced: its calls stay.
                slot.escapes = len(declaration.variables) > 1 or variable.count is not None
                self._memory_slots[ptx.Register(scope.block, variable.name, "")] = slot
            elif variable.space not in ("local", "reg"):
                # All calls share the variable; a copy of the function would have a copy of it.
                self.not_inlinable_reason = f"it declares {variable.name} in .{variable.space} memory"

    def _slot(self, name: str, scope: ptx.Scope) -> MemorySlot | None:
        """Return the .param variable that *name* means: of the function or the body; None for other names."""
        return self._memory_slots.get(scope.find(name) or name)

    def _record_instruction(
        self, index: int, instruction: ptx.Instruction, names: list[str], scope: ptx.Scope
    ) -> None:
        opcode = instruction.opcode
        if opcode in _JUMP_OPCODES:
            self.label_indices.append(index)
        if opcode == "bra":
            return
        if opcode == "call":
            self._record_call(index, instruction, scope)
            return
        if opcode == "ret":
            self.returns.append(index)
        elif opcode in _STACK_OPCODES:
            self.not_inlinable_reason = f"it allocates on the stack by {opcode}"
        elif instruction.mnemonic.startswith(".param", 2) and self._record_access(index, instruction, scope):
            return
        # For example: `mov.b64 %rd1, argument;`.
        takes_address = opcode == "mov" and len(names) == 1 and instruction.operands[1:] == (names[0],)
        slot = self._slot(names[0], scope) if takes_address else None
        if slot:
            slot.address_indices.append(index)
        else:
            self._record_use(names, scope)

    def _record_access(self, index: int, instruction: ptx.Instruction, scope: ptx.Scope) -> bool:
        """
        Record *instruction*, an access to .param memory, at the variable that it accesses.

        Returns:
            Whether registers can replace the access; if not, the caller records that the variable escapes.
        """
        address = instruction.address
        slot = self._slot(address[0], scope) if address else None
        access = Access.of(instruction, scope.find)
        if slot is None:
            self.not_inlinable_reason = "it accesses parameters through a pointer"
        elif access:
            slot.accesses[index] = access
        return bool(slot and access)

    def _record_call(self, index: int, instruction: ptx.Instruction, scope: ptx.Scope) -> None:
        call = ptx.parse_call(instruction)
        actuals: list[MemorySlot | None] = []
        for name in (*call.results, *call.arguments):
            slot = self._slot(name, scope)
            # Only a variable that the body declares can be replaced. A parameter of this function that is
            # passed on escapes, so that calls of this function are not inlined.
            is_declared_here = slot is not None and slot.declaration_index >= 0
            actuals.append(slot if is_declared_here else None)
            if slot and is_declared_here:
                slot.calls += 1
            elif slot:
                slot.escapes = True
        # Only for names of other kinds: the loop has recorded which .param variables escape.
        self._record_use((*call.results, *call.arguments), scope, escaping=False)
        if call.prototype or scope.find(call.callee):
            self.indirect_calls += 1
            self._record_use((call.callee, *filter(None, [call.prototype])), scope)
        else:
            self.call_sites.append(CallSite(index, call.callee, tuple(actuals), len(call.results), scope))

    def _record_use(self, names: Iterable[str], scope: ptx.Scope, *, escaping: bool = True) -> None:
        """Record that a statement uses *names*; if *escaping*, the .param variables among them escape."""
        for name in names:
            declared = scope.find(name)
            if slot := self._memory_slots.get(declared or name):
                slot.escapes |= escaping
            elif not declared and name[:1] != "%":
                self.symbols.add(name)
