"""
Promote local variables to registers if they are only accessed at constant offsets.

A compiler puts a structure that a call passes into local memory, since the called function may take its
address. Once the call is inlined, nothing takes the address, but ptxas does not promote local memory.

A register holds an address of a variable if all instructions that write the register are moves, sums with
constants, and conversions between local and generic addresses, with the same resulting offset. If all uses of
these registers and of the variable are such instructions, loads and stores, no other instruction can access
the variable, and registers (`RegisterPieces`) replace it. Bytes that were never written are undefined in
memory as in registers.

Variables that stay in memory are aligned as a thread's stack is. NVRTC 13.0 declares a structure of 2-byte
members with an alignment of only two bytes, but reads it by words of 32 bits. As the only local variable of a
kernel, it is at the start of the stack, which is aligned; beside the variables of inlined calls, it might not
be aligned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx

from .register_pieces import VECTOR_LENGTHS, Access, MemorySlot, RegisterPieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .register_pieces import Edits

STACK_ALIGNMENT = 16
"""The alignment in bytes that ptxas gives a thread's stack."""
MAX_PIECES = 256
"""
The number of registers that may replace one variable.

A thread has at most 255 registers of 32 bits: ptxas would put the others into local memory again.
"""

# The state space of the address that a conversion takes, and of the one that it gives.
_CONVERSIONS = {"cvta.local": ("local", "generic"), "cvta.to.local": ("generic", "local")}


class _Address(NamedTuple):
    """The address of the byte at *offset* in *slot*; *space* is "local" or "generic"."""

    slot: MemorySlot
    offset: int
    space: str


class _Use(NamedTuple):
    """An instruction, its index in the body, and the registers and variables that its names mean."""

    statement_index: int
    instruction: ptx.Instruction
    names: dict[str, ptx.Register]


def promote_local_memory(body: Sequence[ptx.Statement], prefix: str) -> Sequence[ptx.Statement]:
    """
    Return *body* with registers in place of local variables, if that provably computes the same.

    Other local variables are aligned to `STACK_ALIGNMENT`.

    Args:
        body: The statements of a function.
        prefix: The prefix of new names. In *body*, only digits follow the prefix; new names have
            an `l` after it.
    """
    slots: dict[ptx.Register, MemorySlot] = {}
    uses: list[_Use] = []
    edits: Edits = {
        index: [_align(statement)]
        for index, statement in enumerate(body)
        if isinstance(statement, ptx.Declaration) and statement.variables[0].space == "local"
    }
    if not edits:
        return body
    for index, statement, scope in ptx.with_scopes(body):
        if isinstance(statement, ptx.Instruction):
            names = {name: register for name in statement.names if (register := scope.find(name))}
            uses.append(_Use(index, statement, names))
        elif isinstance(statement, ptx.Declaration) and index in edits:
            (declared, *other_variables) = statement.variables
            # Neither `.b32 a, b` nor the numbered names of `.b32 a<4>` are replaced.
            if not other_variables and declared.count is None:
                # `Scope.find` returns variables as a Register, too, whose type is "".
                slots[ptx.Register(scope.block, declared.name, "")] = MemorySlot(declared, index)
    _record_uses(uses, slots)
    for slot_index, slot in enumerate(slots.values()):
        if not slot.escapes:
            # The new edit of the declaration takes the place of the one that aligns it.
            try:
                edits |= _register_edits(slot, f"%{prefix}l{slot_index}_")
            except ValueError:
                continue
    return ptx.apply_edits(body, edits)


def _align(declaration: ptx.Declaration) -> ptx.Declaration:
    """Return *declaration* with `STACK_ALIGNMENT` in place of a smaller alignment that it declares."""
    variable = declaration.variables[0]
    # Without a declared alignment (0), ptxas aligns the variable by its type.
    if not 0 < variable.alignment < STACK_ALIGNMENT:
        return declaration
    vector = f".v{variable.vector_length} " if variable.vector_length > 1 else ""
    # From the first name to the semicolon, such as `a[4], b;`.
    declarators = declaration.text[variable.start - declaration.start :]
    return ptx.declaration(f".local .align {STACK_ALIGNMENT} {vector}.{variable.type} {declarators}")


def _record_uses(uses: Sequence[_Use], slots: Mapping[ptx.Register, MemorySlot]) -> None:
    """Record the accesses among *uses* in their *slots*, and which slots escape."""
    addresses = _addresses(uses, slots)
    for use in uses:
        address_registers = {register for register in use.names.values() if register in addresses}
        if address_registers and not _record_use(use, address_registers, addresses):
            for register in address_registers:
                addresses[register].slot.escapes = True


def _addresses(
    uses: Iterable[_Use], slots: Mapping[ptx.Register, MemorySlot]
) -> dict[ptx.Register, _Address]:
    """
    Return the address that is moved to each register, and the addresses of *slots* themselves.

    A register that is also written in another way is included: `_record_use` then rejects the other write.
    """
    addresses = {register: _Address(slot, 0, "local") for register, slot in slots.items()}
    moves: dict[ptx.Register, list[_Use]] = {}
    for use in uses:
        if use.instruction.opcode in ("mov", "add", "cvta"):
            for register in use.names.values():
                moves.setdefault(register, []).append(use)
    pending = list(addresses)
    while pending:
        for use in moves.get(pending.pop(), ()):
            target, address = _moved_address(use, addresses)
            if target and address and target not in addresses:
                addresses[target] = address
                pending.append(target)
    return addresses


def _moved_address(
    use: _Use, addresses: Mapping[ptx.Register, _Address]
) -> tuple[ptx.Register | None, _Address | None]:
    """
    Return the register to which *use* moves the address of a variable, and the address.

    The result is (None, None) for an instruction that moves no address in *addresses*.
    """
    mnemonic, _, type_name = use.instruction.mnemonic.rpartition(".")
    operands = use.instruction.operands
    if type_name not in ("b64", "u64", "s64") or len(operands) < 2:
        return None, None
    destination, source_operand, *other_operands = operands
    # `mov.b64 %rd1, variable+8;` has an offset in its source.
    base, offset = ptx.address(f"[{source_operand}]") or ("", 0)
    target, source = use.names.get(destination), use.names.get(base)
    address = addresses.get(source) if source else None
    if not target or not address or ptx.width(target.type) != 64:
        return None, None
    if mnemonic == "add" and not offset and len(other_operands) == 1:
        constant = ptx.parse_integer(other_operands[0])
        if constant is not None:
            return target, address._replace(offset=address.offset + constant)
    elif mnemonic == "mov" and not other_operands:
        return target, address._replace(offset=address.offset + offset)
    elif (
        mnemonic in _CONVERSIONS
        and not other_operands
        and not offset
        and address.space == _CONVERSIONS[mnemonic][0]
    ):
        return target, address._replace(space=_CONVERSIONS[mnemonic][1])
    return None, None


def _record_use(
    use: _Use, address_registers: set[ptx.Register], addresses: Mapping[ptx.Register, _Address]
) -> bool:
    """
    Record *use* in its variable; return whether registers can replace the instruction.

    Args:
        use: An instruction.
        address_registers: The registers and variables among its names that *addresses* contains.
        addresses: The addresses that registers hold.
    """
    target, moved = _moved_address(use, addresses)
    # The target may be written elsewhere, too: all writes must move the same address.
    if target and moved and addresses.get(target) == moved:
        moved.slot.address_indices.append(use.statement_index)
        return True
    if len(address_registers) != 1 or use.instruction.opcode not in ("ld", "st"):
        return False
    (register,) = address_registers
    address = addresses[register]
    base, _ = use.instruction.address or ("", 0)
    # The register may only be the address of the access, and not the value that is stored, too.
    if use.names.get(base) != register or use.instruction.names.count(base) != 1:
        return False
    access = Access.of(use.instruction, use.names.get, address.offset)
    # Before the type, only a vector length and the address space are allowed: the access is not volatile.
    other_modifiers = [
        modifier for modifier in use.instruction.modifiers[:-1] if modifier not in VECTOR_LENGTHS
    ]
    if not access or other_modifiers != (["local"] if address.space == "local" else []):
        return False
    address.slot.accesses[use.statement_index] = access
    return True


def _register_edits(slot: MemorySlot, prefix: str) -> Edits:
    """
    Return the edits that replace *slot* by registers.

    Raises:
        ValueError: Registers cannot hold the variable. An access is not aligned, or would join several pieces
            of less than 32 bits, whose undefined bits would change the others (see the module
            `register_pieces`), or more than `MAX_PIECES` registers are needed.
    """
    pieces = RegisterPieces(prefix, slot.size, slot.accesses.values())
    if len(pieces) > MAX_PIECES or pieces.joins_narrow_pieces:
        raise ValueError(f"{slot.name} stays in memory")
    # The instructions that compute addresses are deleted.
    deletions: Edits = {index: [] for index in slot.address_indices}
    return {
        slot.declaration_index: pieces.declarations(),
        **deletions,
        **slot.access_edits(pieces.moves),
    }
