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

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx

from .cells import LANES, Access, Cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

STACK_ALIGNMENT = 16
"""What a stack begins at, in bytes."""
MOST_CELLS = 256
"""Registers that may take the place of one variable: more would be put into local memory again."""

_CONVERTED = {"cvta.local": ("local", "generic"), "cvta.to.local": ("generic", "local")}


class _Address(NamedTuple):
    """The address of a byte of a variable, "local" or "generic"."""

    variable: ptx.Register
    offset: int
    space: str


class _Use(NamedTuple):
    """An instruction, its number, and what the names in it mean."""

    place: int
    instruction: ptx.Instruction
    names: dict[str, ptx.Register]


@dataclass(eq=False)
class _Variable:
    """A variable in local memory: the number of its declaration, and what uses it."""

    declared: ptx.Variable
    place: int
    moves: list[int] = field(default_factory=list)
    accesses: dict[int, Access] = field(default_factory=dict)


def promoted(body: Sequence[ptx.Statement], prefix: str) -> Sequence[ptx.Statement]:
    """
    Return *body* with registers in place of its local variables, where that is proven to be the same.

    The others are aligned to `STACK_ALIGNMENT`.

    Args:
        body: The statements of a function.
        prefix: What no name in them begins with.
    """
    variables: dict[ptx.Register, _Variable] = {}
    uses: list[_Use] = []
    edits: dict[int, list[ptx.Statement]] = {
        place: [_aligned(statement)]
        for place, statement in enumerate(body)
        if isinstance(statement, ptx.Declaration) and statement.variables[0].space == "local"
    }
    if not edits:
        return body
    for place, statement, scope in ptx.scoped(body):
        if isinstance(statement, ptx.Instruction):
            found = {name: scope.find(name) for name in statement.names}
            names = {name: register for name, register in found.items() if register}
            uses.append(_Use(place, statement, names))
        elif isinstance(statement, ptx.Declaration) and place in edits:
            (declared, *others) = statement.variables
            if not others and declared.count is None:
                variables[ptx.Register(scope.block, declared.name, "")] = _Variable(declared, place)
    escaped = _escaped(uses, variables)
    for number, (register, variable) in enumerate(variables.items()):
        if register not in escaped:
            try:
                edits |= _in_registers(variable, f"%{prefix}l{number}_")
            except ValueError:
                continue
    return ptx.edited(body, edits)


def _aligned(declaration: ptx.Declaration) -> ptx.Declaration:
    first = declaration.variables[0]
    if not 0 < first.alignment < STACK_ALIGNMENT:
        return declaration
    shape = f".v{first.lanes} " if first.lanes > 1 else ""
    declared = declaration.text[first.start - declaration.start :]
    return ptx.declaration(f".local .align {STACK_ALIGNMENT} {shape}.{first.type} {declared}")


def _escaped(uses: list[_Use], variables: Mapping[ptx.Register, _Variable]) -> set[ptx.Register]:
    """Note *uses* with their *variables*; return those that something else may reach."""
    addresses = _addresses(uses, variables)
    escaped: set[ptx.Register] = set()
    for use in uses:
        held = {register for register in use.names.values() if register in addresses}
        if held and not _understood(use, held, addresses, variables):
            escaped.update(addresses[register].variable for register in held)
    return escaped


def _addresses(uses: Iterable[_Use], variables: Iterable[ptx.Register]) -> dict[ptx.Register, _Address]:
    """Return what registers hold that an address is moved to, whatever else is written to them."""
    addresses = {register: _Address(register, 0, "local") for register in variables}
    moves: dict[ptx.Register, list[_Use]] = {}
    for use in uses:
        if use.instruction.opcode in ("mov", "add", "cvta"):
            for register in use.names.values():
                moves.setdefault(register, []).append(use)
    fresh = list(addresses)
    while fresh:
        for use in moves.get(fresh.pop(), ()):
            target, address = _moved(use, addresses)
            if target and address and target not in addresses:
                addresses[target] = address
                fresh.append(target)
    return addresses


def _moved(
    use: _Use, addresses: Mapping[ptx.Register, _Address]
) -> tuple[ptx.Register | None, _Address | None]:
    """Return the register that *use* moves an address to, and that address; None for another instruction."""
    word, _, kind = use.instruction.word.rpartition(".")
    operands = use.instruction.operands
    if kind not in ("b64", "u64", "s64") or len(operands) < 2:
        return None, None
    first, second, *others = operands
    base, offset = ptx.address(f"[{second}]") or ("", 0)
    target, source = use.names.get(first), use.names.get(base)
    address = addresses.get(source) if source else None
    if not target or not address or ptx.width(target.type) != 64:
        return None, None
    if word == "add" and not offset and len(others) == 1:
        constant = ptx.number(others[0])
        if constant is not None:
            return target, address._replace(offset=address.offset + constant)
    elif word == "mov" and not others:
        return target, address._replace(offset=address.offset + offset)
    elif word in _CONVERTED and not others and not offset and address.space == _CONVERTED[word][0]:
        return target, address._replace(space=_CONVERTED[word][1])
    return None, None


def _understood(
    use: _Use,
    held: set[ptx.Register],
    addresses: Mapping[ptx.Register, _Address],
    variables: Mapping[ptx.Register, _Variable],
) -> bool:
    """Note *use* with its variable; return whether it is one that registers can stand for."""
    target, moved = _moved(use, addresses)
    if target and moved and addresses.get(target) == moved and len(held) <= 2:
        variables[moved.variable].moves.append(use.place)
        return True
    if len(held) != 1 or use.instruction.opcode not in ("ld", "st"):
        return False
    (register,) = held
    address = addresses[register]
    at = use.instruction.operands[use.instruction.opcode == "ld" :][:1]
    base = ptx.address(*at) if at else None
    space = [word for word in use.instruction.modifiers[:-1] if word not in LANES]
    if not base or use.names.get(base[0]) != register or use.instruction.names.count(base[0]) != 1:
        return False
    access = Access.of(use.instruction, use.names.get, address.offset)
    if not access or space != (["local"] if address.space == "local" else []):
        return False
    variables[address.variable].accesses[use.place] = access
    return True


def _in_registers(variable: _Variable, prefix: str) -> dict[int, list[ptx.Statement]]:
    """
    Return the edits that put registers in the place of *variable*.

    Raises:
        ValueError: Its accesses cut each other's words, or are too many.
    """
    cells = Cells(prefix, variable.declared.size, variable.accesses.values())
    if len(cells) > MOST_CELLS or cells.cuts_words:
        raise ValueError(f"{len(cells)} registers")
    edits: dict[int, list[ptx.Statement]] = {place: [] for place in variable.moves}
    edits |= {place: cells.moves(access) for place, access in variable.accesses.items()}
    return {variable.place: cells.declarations(), **edits}
