"""
Infer address spaces: make generic accesses global if their addresses can only be those of global memory.

A register is known if all instructions that write it compute it from known registers, constants, special
registers, results of `cvta.global`, kernel parameters and their members. All writers count, in any order and
under any predicate. A register with a value that was loaded, returned by a call or received from another
thread is unknown: it may hold an address of shared or local memory, or a part of such an address.

Kernel parameters are known because a host has no address of shared, local or parameter memory, which exist
only while a grid runs ("Device Memory Space Specifiers" and "Dynamic Parallelism" in the CUDA Programming
Guide). So an address in a known register is one of global memory. A generic address of global memory is the
same number (PTX ISA, "Generic Addressing"), so that only the mnemonic of an access changes. Tests of an
address, as by `isspacep`, are not analysed: an access that a test restricts to global memory may stay
generic. No access becomes shared or local, since a sum with a shared address may be a global one:
`shared + (global - shared)`.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    # For each name, the instructions that write a register of that name, each with its scope. Several blocks
    # may declare the name, each for a register of its own.
    Writers = Mapping[str, Sequence[tuple[ptx.Instruction, ptx.Scope]]]

_SPACES = frozenset(("global", "shared", "local", "param", "const"))
# Modifiers of the memory order and scope, which precede the state space: `ld.acquire.gpu.global.u32`.
_ORDER_MODIFIERS = frozenset(
    ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu", "sys")
)
_ACCESS_OPCODES = ("ld", "st", "atom", "red")
# Opcodes whose result depends on their operands alone.
_PURE_OPCODE_WORDS = (
    "abs add and bfe bfi bfind brev clz cnot copysign cos cvt div ex2 fma lg2 lop3 mad mad24 max min mov "
    "mul mul24 neg not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin slct sqrt sub tanh xor"
)
_PURE_OPCODES = frozenset(_PURE_OPCODE_WORDS.split())


def infer_address_spaces(body: Sequence[ptx.Statement], params: Collection[str]) -> Sequence[ptx.Statement]:
    """
    Return *body* with global accesses in place of generic ones that can only be global.

    The time is linear in the length of *body*.

    Args:
        body: The statements of a function.
        params: The names of the parameters if the function is a kernel; otherwise empty.
    """
    # The register with the address of each generic access, by the index of the access.
    bases: dict[int, ptx.Register] = {}
    # `_unknown_registers` looks up which register a name means, for the few names that addresses depend on:
    # to look up every name here would take most of the time.
    writers: dict[str, list[tuple[ptx.Instruction, ptx.Scope]]] = defaultdict(list)
    for index, statement, scope in ptx.with_scopes(body):
        if not isinstance(statement, ptx.Instruction):
            continue
        destination = statement.operand_text.partition(",")[0].strip()
        if destination[1:].isalnum():
            # The name of a register, such as %rd1.
            writers[destination].append((statement, scope))
        elif destination and destination[0] != "[":
            # Several registers, such as {%r1, %r2} or %p1|%p2. A store has an address in brackets here.
            for name in ptx.find_names(statement.operands[0]):
                writers[name].append((statement, scope))
        if _is_generic_access(statement.mnemonic) and (address := statement.address):
            base_name, _ = address
            base = scope.find(base_name)
            if base and ptx.width(base.type) == 64:
                bases[index] = base
    unknown = _unknown_registers(bases.values(), writers, params)
    global_indices = [index for index, base in bases.items() if base not in unknown]
    return ptx.apply_edits(body, {index: [_as_global_access(body[index])] for index in global_indices})


@functools.lru_cache(maxsize=1024)
def _is_generic_access(mnemonic: str) -> bool:
    """Return whether *mnemonic* accesses memory and names no state space."""
    opcode, *modifiers = mnemonic.split(".")
    # A state space may have a suffix, as in `ld.shared::cta.u32`.
    return opcode in _ACCESS_OPCODES and _SPACES.isdisjoint(
        modifier.partition("::")[0] for modifier in modifiers
    )


def _as_global_access(access: ptx.Statement) -> ptx.Statement:
    """Return *access* with the state space: `ld.acquire.gpu.global.u32` for `ld.acquire.gpu.u32`."""
    assert isinstance(access, ptx.Instruction)  # noqa: S101 - no other statement is an access
    opcode, *modifiers = access.mnemonic.split(".")
    index = sum(modifier in _ORDER_MODIFIERS for modifier in modifiers)
    modifiers.insert(index, "global")
    return access._replace(mnemonic=".".join((opcode, *modifiers)))


def _unknown_registers(
    bases: Iterable[ptx.Register], writers: Writers, params: Collection[str]
) -> set[ptx.Register]:
    """Return the unknown registers among *bases* and the registers that they are computed from."""
    # For each register, the registers that are computed from it: if it is unknown, they are unknown, too.
    readers: dict[ptx.Register, list[ptx.Register]] = {}
    newly_unknown: list[ptx.Register] = []
    pending, seen = list(bases), set(bases)
    # The writers of each register, once its name is in `resolved_names`; under None, those of undeclared
    # names.
    writers_of: dict[ptx.Register | None, list[tuple[ptx.Instruction, ptx.Scope]]] = {}
    resolved_names: set[str] = set()
    while pending:
        register = pending.pop()
        if register.name not in resolved_names:
            resolved_names.add(register.name)
            for instruction, scope in writers.get(register.name, ()):
                writers_of.setdefault(scope.find(register.name), []).append((instruction, scope))
        source_lists = [
            _source_registers(register, *writer, params) for writer in writers_of.get(register, ())
        ]
        # The value of a register that no instruction writes is unknown, too.
        if not source_lists or None in source_lists:
            newly_unknown.append(register)
        for source in {source for sources in source_lists for source in sources or ()}:
            readers.setdefault(source, []).append(register)
            if source not in seen:
                seen.add(source)
                pending.append(source)
    unknown: set[ptx.Register] = set()
    while newly_unknown:
        register = newly_unknown.pop()
        if register not in unknown:
            unknown.add(register)
            newly_unknown += readers.get(register, ())
    return unknown


def _source_registers(
    target: ptx.Register, instruction: ptx.Instruction, scope: ptx.Scope, params: Collection[str]
) -> list[ptx.Register] | None:
    """
    Return the registers that decide whether *target* is known after *instruction*, which writes it.

    The result is empty if *target* is known in any case, such as a kernel parameter, and None if it is
    unknown in any case, such as a value from memory.
    """
    opcode, *modifiers = instruction.mnemonic.split(".")
    destination, *operands = instruction.operands
    if opcode == "ld":
        address = instruction.address
        # A variable that the body declares hides the parameter of that name.
        is_kernel_param = (
            address and "param" in modifiers and address[0] in params and not scope.find(address[0])
        )
        return [] if is_kernel_param else None
    # `cvta.global.u64` and `cvta.to.global.u64`.
    if opcode == "cvta" and modifiers[:-1] in (["global"], ["to", "global"]):
        return []
    # A destination of several registers, such as %p1|%p2, is not the name of *target*.
    if opcode not in _PURE_OPCODES or destination != target.name:
        return None
    sources = []
    # The third operand of selp is a predicate.
    for operand in operands[:2] if opcode == "selp" else operands:
        # An element of a vector, such as %r1.x, belongs to the register.
        declared = scope.find(operand.partition(".")[0])
        if declared and declared.is_register:
            sources.append(declared)
        elif declared or not (operand[:1] == "%" or operand.lstrip("- \t\r\n\f")[:1].isdigit()):
            # The operand is neither a special register, such as %tid.x, nor a number: it is the address of a
            # variable, which may be in shared or local memory.
            return None
    return sources
