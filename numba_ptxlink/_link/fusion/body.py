"""Read the body of a PTX function for inlining: its calls, and every use of a variable that calls pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx.declarations import width

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

VECTORS = {"v2": 2, "v4": 4, "v8": 8}
"""How many elements a vector has."""

_DIGITS = "0123456789"
_STACK = ("alloca", "stacksave", "stackrestore")


@dataclass(eq=False)
class Access:
    """
    One load or store of a parameter at a constant offset.

    Args:
        instruction: The `ld.param` or `st.param`.
        offset: Bytes from the start of the parameter.
        type: The type of an element without its dot, such as "f32".
        values: The operands that are loaded or stored, one for each element.
        bits: Their widths in bits, None for an immediate.

    Attributes:
        ranges: Offset and size of each element, in bytes.
    """

    instruction: ptx.Instruction
    offset: int
    type: str
    values: tuple[ptx.Operand, ...]
    bits: tuple[int | None, ...]
    ranges: list[tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        size = width(self.type) // 8
        self.ranges = [(self.offset + size * number, size) for number in range(len(self.values))]

    @property
    def stores(self) -> bool:
        """Whether it stores."""
        return self.instruction.opcode == "st"

    @property
    def guard(self) -> str:
        """Its predicate as it is spelled before an instruction, "" without one."""
        return guard(self.instruction.predicate)

    @property
    def plain(self) -> bool:
        """Whether all values are registers and numbers."""
        return all(isinstance(value, (ptx.Name, ptx.Immediate)) for value in self.values)


@dataclass(eq=False)
class Param:
    """
    A `.param` variable in a function, or a parameter or result of it, with its uses.

    Args:
        name: The symbol.
        size: Bytes.
        alignment: Bytes.
        declaration: The statement that declares it, None for one of the function's heading.
        accesses: Its loads and stores.
        addresses: The `mov` instructions that take its address.
        calls: How many calls pass it.
        exposed: Whether it is used in another way, too.
        joined: Whether the statement that declares it declares others, too.
    """

    name: str
    size: int
    alignment: int
    declaration: ptx.Declaration | None = None
    accesses: list[Access] = field(default_factory=list)
    addresses: list[ptx.Instruction] = field(default_factory=list)
    calls: int = 0
    exposed: bool = False
    joined: bool = False


@dataclass(frozen=True, eq=False)
class Site:
    """
    A call of a function by its name.

    Args:
        call: The statement.
        callee: The name.
        passed: The variables for the results, then those for the parameters; None for another operand.
        results: How many of these are results.
        visible: The names that are declared where the call is, "r<>" for registers r0, r1 and so on.
        depth: In how many blocks the call is.
    """

    call: ptx.Call
    callee: str
    passed: tuple[Param | None, ...]
    results: int
    visible: frozenset[str]
    depth: int


# A name that is declared: a variable that calls pass, the width of a register in bits, or anything else.
# Under "r<>" are the width and the count of registers r0, r1 and so on.
_Scope = dict[str, Param | int | tuple[int, int] | None]


class Body:
    """
    The body of a function.

    Args:
        function: The function, with a body.

    Attributes:
        statements: Its statements, with unread code in between where nothing depends on that.
        sites: The calls of functions by name.
        formals: Its results and parameters, in order.
        returns: Its `ret` instructions.
        labels: The labels in it, where they are.
        jumps: The other names in it that may be labels.
        symbols: The names in it that it does not declare, but for those of `sites`.
        size: How many instructions it has.
        depth: How many blocks in each other it has.
        indirect: How many calls of it are none by name.
        obstacle: Why it cannot be inlined, "" if nothing in it is in the way.

    Raises:
        LinkError: The body is malformed.
    """

    def __init__(self, function: ptx.Function) -> None:
        self.function = function
        self.statements = function.outline
        self._params = {parameter.name for parameter in (*function.results, *function.params)}
        self._names_in_code: set[str] = set()
        self._read()
        # Code that names a parameter has to be read; so has all code if one has the name of a register.
        if self._names_in_code & self._params or any(name.startswith("%") for name in self._params):
            self.statements = function.body
            self._read()
        for parameter in (*function.results, *function.params):
            if parameter.space != "param":
                self.obstacle = "it takes or returns registers"
        for directive in function.directives:
            if isinstance(directive, ptx.Directive) and directive.keyword in ("noreturn", "noinline"):
                self.obstacle = f"it is marked .{directive.keyword}"

    def _read(self) -> None:
        self.sites: list[Site] = []
        self.returns: list[ptx.Instruction] = []
        self.labels: list[ptx.Name] = []
        self.jumps: list[ptx.Name] = []
        self.symbols: set[str] = set()
        self.size = self.depth = self.indirect = 0
        self.obstacle = ""
        self.formals = tuple(
            Param(parameter.name, size_of(parameter), _alignment(parameter))
            for parameter in (*self.function.results, *self.function.params)
        )
        self._walk(self.statements, {formal.name: formal for formal in self.formals})
        # A branch may come before its label.
        self.symbols.difference_update(label.name for label in self.labels)

    @property
    def reached(self) -> set[str]:
        """The names in it that it does not declare."""
        return self.symbols | {site.callee for site in self.sites}

    def _walk(self, statements: Iterable[ptx.Statement], scope: _Scope, depth: int = 0) -> None:
        self.depth = max(self.depth, depth)
        in_code: set[str] = set()
        for statement in statements:
            if isinstance(statement, ptx.Code):
                self.size += statement.text.count(";")
                self.labels += statement.labels
                self.jumps += statement.targets
                in_code |= statement.names
            elif isinstance(statement, ptx.Block):
                self._walk(statement.statements, dict(scope), depth + 1)
            elif isinstance(statement, ptx.Instruction):
                self._instruction(statement, scope)
            elif isinstance(statement, ptx.Call):
                self._call(statement, scope, depth)
            elif isinstance(statement, ptx.Registers):
                _declare_registers(statement, scope)
            elif isinstance(statement, ptx.Declaration):
                self._declaration(statement, scope)
            elif isinstance(statement, (ptx.Label, ptx.Targets, ptx.CallPrototype)):
                if statement.name:
                    end = statement.start + len(statement.name)
                    self.labels.append(ptx.Name(statement.name, start=statement.start, end=end))
                self._targets(statement, scope)
        self._names_in_code |= in_code
        self.symbols.update(name for name in in_code if not _declared(name, scope))

    def _targets(self, statement: ptx.Label | ptx.Targets | ptx.CallPrototype, scope: _Scope) -> None:
        if isinstance(statement, ptx.Targets):
            self.jumps += statement.targets
            self._use((target.name for target in statement.targets), scope)

    def _declaration(self, statement: ptx.Declaration, scope: _Scope) -> None:
        for variable in statement.variables:
            self.symbols.update(variable.symbols)
            scope[variable.name] = None
            if variable.space == "param":
                self._params.add(variable.name)
                joined = len(statement.variables) > 1 or variable.count is not None
                scope[variable.name] = Param(
                    variable.name, size_of(variable), _alignment(variable), statement, joined=joined
                )
            elif variable.space != "local":
                # Every call shares it; a copy of the function would have a copy of it.
                self.obstacle = f"it declares {variable.name} in .{variable.space} memory"

    def _call(self, call: ptx.Call, scope: _Scope, depth: int) -> None:
        self.size += 1
        passed = [
            scope.get(operand.name) if isinstance(operand, ptx.Name) else None
            for operand in (*call.results, *call.arguments)
        ]
        params = tuple(param if isinstance(param, Param) and param.declaration else None for param in passed)
        for param in params:
            if param:
                param.calls += 1
        names = _names((*call.results, *call.arguments))
        self._use((name for name in names if not isinstance(scope.get(name), Param)), scope)
        for operand in passed:
            if isinstance(operand, Param) and not operand.declaration:
                operand.exposed = True
        callee = call.callee
        if isinstance(callee, ptx.Name) and not call.prototype and not _declared(callee.name, scope):
            visible = frozenset(scope)
            self.sites.append(Site(call, callee.name, params, len(call.results), visible, depth))
            return
        self.indirect += 1
        self._use(ptx.names(callee), scope)
        if call.prototype:
            self.jumps.append(call.prototype)
            self._use((call.prototype.name,), scope)

    def _instruction(self, instruction: ptx.Instruction, scope: _Scope) -> None:
        self.size += 1
        if instruction.opcode == "ret":
            self.returns.append(instruction)
        elif instruction.opcode in ("bra", "brx"):
            self.jumps += [operand for operand in instruction.operands if isinstance(operand, ptx.Name)]
        elif instruction.opcode in _STACK:
            self.obstacle = f"it allocates on the stack by {instruction.opcode}"
        elif instruction.opcode in ("ld", "st") and self._accesses(instruction, scope):
            return
        names = _names(instruction.operands)
        params = [param for param in map(scope.get, names) if isinstance(param, Param)]
        if not params:
            if instruction.opcode in ("ld", "st") and _space(instruction) == "param":
                self.obstacle = "it accesses parameters through a pointer"
        elif len(params) > 1:
            for param in params:
                param.exposed = True
        else:
            (param,) = params
            if _takes_address(instruction):
                param.addresses.append(instruction)
            else:
                param.exposed = True
        self._use((name for name in names if not isinstance(scope.get(name), Param)), scope)

    def _accesses(self, instruction: ptx.Instruction, scope: _Scope) -> bool:
        """Note *instruction* if it loads or stores a variable that calls pass; return whether it does."""
        access = _access(instruction, scope)
        if access is None:
            return False
        part, param = access
        param.accesses.append(part)
        if not part.plain:
            self._use(_names(part.values), scope)
        return True

    def _use(self, names: Iterable[str], scope: _Scope) -> None:
        for name in names:
            param = scope.get(name)
            if isinstance(param, Param):
                param.exposed = True
            elif not _declared(name, scope):
                self.symbols.add(name)


def _declare_registers(statement: ptx.Registers, scope: _Scope) -> None:
    bits = width(statement.type) * int((statement.vector or "v1")[1:])
    for register in statement.registers:
        if register.count is None:
            scope[register.name] = bits
        else:
            scope[f"{register.name}<>"] = bits, register.count


def _names(operands: Iterable[ptx.Operand]) -> list[str]:
    """Return the symbols in *operands*, as `ptx.names` does, in a third of the time."""
    names: list[str] = []
    for operand in operands:
        if isinstance(operand, ptx.Name):
            names.append(operand.name)
        elif isinstance(operand, (ptx.Vector, ptx.Address)) and not getattr(operand, "name", ""):
            names += _names(operand.elements)
        elif isinstance(operand, ptx.Expression) and "(" not in operand.parts:
            names += _names([part for part in operand.parts if not isinstance(part, str)])
        elif not isinstance(operand, ptx.Immediate):
            names += ptx.names(operand)
    return names


def guard(predicate: ptx.Name | ptx.Negated | None) -> str:
    """Return *predicate* as it is spelled before an instruction, "" without one."""
    return f"@{predicate} " if predicate else ""


def hides(visible: Collection[str], name: str) -> bool:
    """Return whether *name* may be one of those that are *visible*, in the form of `Site.visible`."""
    prefix = len(name.rstrip(_DIGITS))
    return name in visible or any(f"{name[:end]}<>" in visible for end in range(prefix, len(name)))


def _declared(name: str, scope: _Scope) -> bool:
    return name in scope or _bits(name, scope) is not None


def _bits(name: str, scope: _Scope) -> int | None:
    bits = scope.get(name)
    if bits is None and name[-1:] in _DIGITS:
        prefix = name.rstrip(_DIGITS)
        counted = scope.get(f"{prefix}<>")
        if isinstance(counted, tuple) and int(name[len(prefix) :][:9]) < counted[1]:
            return counted[0]
    return bits if isinstance(bits, int) else None


def _space(instruction: ptx.Instruction) -> str:
    return next((word.partition("::")[0] for word in instruction.modifiers if word.startswith("param")), "")


def _access(instruction: ptx.Instruction, scope: _Scope) -> tuple[Access, Param] | None:
    """Return *instruction* as an access at a constant offset, None if it is another use of a parameter."""
    modifiers = instruction.modifiers
    if len(instruction.operands) != 2 or len(modifiers) < 2 or not modifiers[0].startswith("param"):
        return None
    space, *shape, kind = modifiers
    address, value = instruction.operands if instruction.opcode == "st" else instruction.operands[::-1]
    base = address.base if isinstance(address, ptx.Address) and not address.suffix else None
    param = scope.get(base.name) if base else None
    offset = address.offset if isinstance(address, ptx.Address) else None
    if not isinstance(param, Param) or offset is None:
        return None
    if space.partition("::")[0] != "param" or len(shape) > 1 or any(word not in VECTORS for word in shape):
        return None
    values = value.elements if isinstance(value, ptx.Vector) else (value,)
    if len(values) != (VECTORS[shape[0]] if shape else 1) or width(kind) not in (8, 16, 32, 64, 128):
        return None
    bits: list[int | None] = []
    for element in values:
        bits.append(_bits(element.name, scope) if isinstance(element, ptx.Name) else None)
        # An element of a vector, or a symbol.
        if isinstance(element, ptx.Name) and (element.selector or (bits[-1] is None and element.name != "_")):
            return None
    return Access(instruction, offset, kind, values, tuple(bits)), param


def _takes_address(instruction: ptx.Instruction) -> bool:
    return (
        instruction.opcode == "mov"
        and len(instruction.operands) == 2
        and isinstance(instruction.operands[1], ptx.Name)
        and not instruction.operands[1].selector
    )


def size_of(declared: ptx.Variable | ptx.Parameter) -> int:
    """Return the bytes of a variable or a parameter."""
    size = max(1, width(declared.type) // 8) * int((declared.vector or "v1")[1:])
    for extent in declared.extents:
        size *= extent or 0
    return size


def _alignment(declared: ptx.Variable | ptx.Parameter) -> int:
    return declared.alignment or max(1, width(declared.type) // 8)
