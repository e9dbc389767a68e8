"""
Keep local variables in registers where their addresses do nothing but access them at constant offsets.

A compiler puts a structure that a call passes into local memory, a depot, since what it calls may take its
address. Once the call is inlined nothing does, but the assembler leaves local memory as it is.

A register holds an address of a variable if all that writes it are moves, sums with constants and conversions
between local and generic addresses, and give the same offset. If all uses of these registers and of the
variable are such instructions, loads and stores, nothing else can reach the variable's bytes, and `Cells`
takes their place. Bytes that nothing has written are undefined in both.

What stays in memory is aligned to what a stack begins at. NVRTC 13.0 copies structures by words of 32 bits
out of depots that it aligns to two bytes: as the only variable of a kernel one lies at the start, but
beside those of inlined calls it need not.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx.declarations import width
from numba_ptxlink.errors import LinkError

from .body import VECTORS, Access, size_of
from .cells import Cells
from .scan import NAME, NotReadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .scan import Instruction, Register, Scanned

STACK_ALIGNMENT = 16
"""What a stack begins at, in bytes."""
MOST_CELLS = 256
"""Registers that may take the place of one variable: more would be put into local memory again."""

# A search is fast for a pattern that begins with a letter: what is before it is looked at second.
_DECLARATION = re.compile(r"\.(?<=[;{}:\s]\.)(?:reg|local|param|shared|global|const)\b[^;]*;", re.ASCII)
_ALIGNMENT = re.compile(r"(\.local(?<=[;{}:\s]\.local)\s+\.align)\s+(?:1|2|4|8)\b", re.ASCII)
_MOVING = re.compile(
    r"(?:mov|cvta\.local|cvta\.to\.local|add)\.[bus]64\s+([%\w$]+)\s*,\s*([%\w$]+)", re.ASCII
)
_SUM = re.compile(r"\s+([%\w$]+)\s*,\s*([%\w$]+)\s*(?:([,+])\s*(-?\d{1,9})\s*)?", re.ASCII)
_CONVERTED = {"cvta.local": ("local", "generic"), "cvta.to.local": ("generic", "local")}
_ACCESS = re.compile(r"(?:ld|st)(\.local)?(?:\.v[248])?\.[bsuf]\d+", re.ASCII)


class _Address(NamedTuple):
    """The address of a byte of a variable, "local" or "generic"."""

    variable: Register
    offset: int
    space: str


class _Use(NamedTuple):
    """An instruction that names an address, with what its names mean."""

    instruction: Instruction
    names: dict[str, Register | None]


@dataclass(eq=False)
class _Variable:
    """A variable in local memory: its declaration, where that is, and what uses it."""

    declaration: ptx.Variable
    span: ptx.Span
    moves: list[Instruction] = field(default_factory=list)
    accesses: list[tuple[_Use, int]] = field(default_factory=list)


def promoted(scanned: Scanned, prefix: str) -> Scanned:
    """
    Return a function with registers in place of its local variables, where that is proven to be the same.

    Args:
        scanned: The function.
        prefix: What no name in its text begins with.
    """
    if ".local" not in scanned.text:
        return scanned
    try:
        variables = _read(scanned)
    except NotReadError:
        return scanned
    edits: dict[ptx.Span, str] = {}
    for number, variable in enumerate(variables):
        try:
            edits.update(_in_registers(variable, f"%{prefix}l{number}_"))
        except (NotReadError, ValueError):
            continue
    return scanned.edited(edits)


def aligned(text: str) -> str:
    """Return the function *text* with its local variables aligned to `STACK_ALIGNMENT`."""
    return _ALIGNMENT.sub(rf"\1 {STACK_ALIGNMENT}", text) if ".local" in text else text


def _read(scanned: Scanned) -> list[_Variable]:
    """Return the variables in a function whose addresses are known wherever they are."""
    declared = _declared(scanned.body)
    names = _names(scanned.body, declared)
    uses: list[_Use] = []
    variables: dict[Register, _Variable] = {}
    for instruction, scope in scanned.instructions():
        words = NAME.findall(instruction.operands)
        if names.isdisjoint(words):
            continue
        meant = {name: scope.find(name) for name in words if not name[0].isdigit()}
        uses.append(_Use(instruction, meant))
        for name, register in meant.items():
            if name in declared and register and not register.type:
                variables.setdefault(register, declared[name])
    addresses = _addresses(uses, variables)
    escaped: set[Register] = set()
    for use in uses:
        held = {register for register in use.names.values() if register in addresses}
        if held and not _understood(use, held, addresses, variables):
            escaped.update(addresses[register].variable for register in held)
    return [variable for register, variable in variables.items() if register not in escaped]


def _declared(inner: str) -> dict[str, _Variable]:
    """Return the variables in local memory whose declarations and names are the only ones of their kind."""
    directives = list(_DECLARATION.finditer(inner))
    counts = Counter(name for directive in directives for name in set(NAME.findall(directive[0])))
    declared: dict[str, _Variable] = {}
    for directive in directives:
        if not directive[0].startswith(".local"):
            continue
        (statement,) = _parsed(directive[0])
        if isinstance(statement, ptx.Declaration) and len(statement.variables) == 1:
            (variable,) = statement.variables
            if variable.count is None and counts[variable.name] == 1:
                declared[variable.name] = _Variable(variable, ptx.Span(*directive.span()))
    return declared


def _parsed(statement: str) -> tuple[ptx.Statement, ...]:
    """
    Return *statement* as a node.

    Raises:
        NotReadError: It is malformed.
    """
    (function,) = ptx.parse(f".func f() {{ {statement} }}").functions
    try:
        return function.body
    except LinkError as error:
        raise NotReadError from error


def _names(inner: str, declared: Mapping[str, _Variable]) -> set[str]:
    """Return the names of all registers that may hold addresses of variables, in whatever block."""
    targets: dict[str, set[str]] = {}
    for target, source in _MOVING.findall(inner):
        targets.setdefault(source, set()).add(target)
    names = set(declared)
    added = list(declared)
    while added:
        fresh = targets.get(added.pop(), set()) - names
        names |= fresh
        added += fresh
    return names


def _addresses(uses: Iterable[_Use], variables: Iterable[Register]) -> dict[Register, _Address]:
    """Return what registers hold that an address is moved to, whatever else is written to them."""
    addresses = {register: _Address(register, 0, "local") for register in variables}
    moves: dict[Register, list[_Use]] = {}
    for use in uses:
        parts = _SUM.fullmatch(use.instruction.operands)
        source = use.names.get(parts[2]) if parts else None
        if source:
            moves.setdefault(source, []).append(use)
    fresh = list(addresses)
    while fresh:
        for use in moves.get(fresh.pop(), ()):
            target, address = _moved(use, addresses)
            if target and address and target not in addresses:
                addresses[target] = address
                fresh.append(target)
    return addresses


def _moved(use: _Use, addresses: Mapping[Register, _Address]) -> tuple[Register | None, _Address | None]:
    """Return the register that *use* moves an address to, and that address; None for another instruction."""
    opcode, _, kind = use.instruction.opcode.rpartition(".")
    parts = _SUM.fullmatch(use.instruction.operands) if kind in ("b64", "u64", "s64") else None
    target, source = (use.names.get(parts[1]), use.names.get(parts[2])) if parts else (None, None)
    address = addresses.get(source) if source else None
    if parts is None or address is None or (target and not target.type.endswith("64")):
        return target, None
    _, _, sign, number = parts.groups()
    if opcode in _CONVERTED and sign is None and address.space == _CONVERTED[opcode][0]:
        return target, address._replace(space=_CONVERTED[opcode][1])
    if (opcode == "mov" and sign != ",") or (opcode == "add" and sign == ","):
        return target, address._replace(offset=address.offset + int(number or 0))
    return target, None


def _understood(
    use: _Use,
    held: set[Register],
    addresses: Mapping[Register, _Address],
    variables: Mapping[Register, _Variable],
) -> bool:
    """Note *use* with its variable; return whether it is one that registers can stand for."""
    target, given = _moved(use, addresses)
    if target and given and addresses.get(target) == given and len(held) <= 2:
        variables[given.variable].moves.append(use.instruction)
        return True
    form = _ACCESS.fullmatch(use.instruction.opcode)
    bases = re.findall(r"\[\s*([%\w$]+)\s*(?:\+\s*-?\d+\s*)?\]", use.instruction.operands)
    if not form or len(held) != 1 or len(bases) != 1:
        return False
    register = use.names.get(bases[0])
    if register not in held or NAME.findall(use.instruction.operands).count(bases[0]) != 1:
        return False
    address = addresses[register]
    if address.space != ("local" if form[1] else "generic"):
        return False
    variables[address.variable].accesses.append((use, address.offset))
    return True


def _in_registers(variable: _Variable, prefix: str) -> dict[ptx.Span, str]:
    """
    Return the edits that put registers in the place of *variable*.

    Raises:
        ValueError: Its accesses cut each other, or are too many.
    """
    accesses = [_access(use, offset) for use, offset in variable.accesses]
    cells = Cells(prefix, size_of(variable.declaration), accesses)
    if len(cells) > MOST_CELLS:
        raise ValueError(f"{len(cells)} registers")
    edits = {_span(instruction): "" for instruction in variable.moves}
    edits.update(
        (_span(use.instruction), cells.moves(access))
        for (use, _), access in zip(variable.accesses, accesses, strict=True)
    )
    return {variable.span: cells.declarations(), **edits}


def _access(use: _Use, offset: int) -> Access:
    guard, opcode, operands = use.instruction[:3]
    (instruction,) = _parsed(f"{guard}{opcode}{operands};")
    assert isinstance(instruction, ptx.Instruction)  # noqa: S101 - it has the form of an access
    stores = instruction.opcode == "st"
    address, value = instruction.operands if stores else instruction.operands[::-1]
    kind = instruction.modifiers[-1]
    shape = next((word for word in instruction.modifiers if word in VECTORS), "")
    values = value.elements if isinstance(value, ptx.Vector) else (value,)
    if len(values) != VECTORS.get(shape, 1) or width(kind) not in (8, 16, 32, 64, 128):
        raise ValueError(f"{instruction} has an unknown form")
    bits = tuple(_bits(use, element) for element in values)
    if not isinstance(address, ptx.Address) or address.offset is None or address.suffix:
        raise ValueError(f"{instruction} has an unknown address")
    return Access(instruction, offset + address.offset, kind, values, bits)


def _bits(use: _Use, value: ptx.Operand) -> int | None:
    """Return the bits of the register *value*, None for a number."""
    if isinstance(value, (ptx.Immediate, ptx.Expression)) or str(value) == "_":
        return None
    register = use.names.get(value.name) if isinstance(value, ptx.Name) and not value.selector else None
    if register is None or not width(register.type):
        raise ValueError(f"{value} is no register")
    return width(register.type)


def _span(instruction: Instruction) -> ptx.Span:
    return ptx.Span(instruction.start, instruction.end)
