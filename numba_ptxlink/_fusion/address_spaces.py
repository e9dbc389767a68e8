"""
Infer address spaces: make generic accesses global if their addresses can only be those of global memory.

A register is known if all its writers compute it from known registers, constants, special registers, results
of `cvta.global`, kernel parameters and their members. All writers count, in any order and under any
predicate. A host has no address of other memory: shared, local and parameter memory exist only while a grid
runs ("Device Memory Space Specifiers" and "Dynamic Parallelism" in the CUDA Programming Guide). Values that
were loaded, returned or received from other threads are unknown: they may be addresses of another window, or
parts of one.

So a known address is an address of global memory, where the generic address is the same (PTX ISA, "Generic
Addressing"). Predicates and branches that compare an address are not analysed. No access becomes shared or
local, since a sum may reach another window or block.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    Writers = Mapping[str, Sequence[tuple[ptx.Instruction, ptx.Scope]]]

_SPACES = frozenset(("global", "shared", "local", "param", "const"))
# Modifiers of the memory order and scope precede the state space.
_ORDERS = frozenset(
    ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu", "sys")
)
_ACCESS_OPCODES = ("ld", "st", "atom", "red")
# Opcodes whose result depends on their operands alone.
_PURE_OPCODES = (
    "abs add and bfe bfi bfind brev clz cnot copysign cos cvt div ex2 fma lg2 lop3 mad mad24 max min mov "
    "mul mul24 neg not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin slct sqrt sub tanh xor"
)
_PURE = frozenset(_PURE_OPCODES.split())


def infer_address_spaces(body: Sequence[ptx.Statement], params: Collection[str]) -> Sequence[ptx.Statement]:
    """
    Return *body* with global accesses in place of generic ones that can only be global.

    The time is linear in the text.

    Args:
        body: The statements of a function.
        params: The parameters of a kernel.
    """
    bases: dict[int, ptx.Register] = {}
    # By name, which registers of several blocks may share: a lookup of every name would take most of the
    # time. `_unknown_registers` looks up the few names that addresses depend on.
    writers: dict[str, list[tuple[ptx.Instruction, ptx.Scope]]] = defaultdict(list)
    for index, statement, scope in ptx.scoped(body):
        if not isinstance(statement, ptx.Instruction):
            continue
        first = statement.operand_text.partition(",")[0].strip()
        if first[1:].isalnum():
            writers[first].append((statement, scope))
        elif first and first[0] != "[":
            for name in ptx.names(statement.operands[0]):
                writers[name].append((statement, scope))
        if _is_generic_access(statement.mnemonic) and (address := statement.address):
            base = scope.find(address[0])
            if base and ptx.width(base.type) == 64:
                bases[index] = base
    unknown = _unknown_registers(bases.values(), writers, params)
    known = [index for index, base in bases.items() if base not in unknown]
    return ptx.apply_edits(body, {index: [_as_global_access(body[index])] for index in known})


@functools.lru_cache(maxsize=1024)
def _is_generic_access(mnemonic: str) -> bool:
    opcode, *modifiers = mnemonic.split(".")
    return opcode in _ACCESS_OPCODES and _SPACES.isdisjoint(
        modifier.partition("::")[0] for modifier in modifiers
    )


def _as_global_access(access: ptx.Statement) -> ptx.Statement:
    assert isinstance(access, ptx.Instruction)  # noqa: S101 - it is an access
    opcode, *modifiers = access.mnemonic.split(".")
    orders = sum(modifier in _ORDERS for modifier in modifiers)
    return access._replace(mnemonic=".".join((opcode, *modifiers[:orders], "global", *modifiers[orders:])))


def _unknown_registers(
    bases: Iterable[ptx.Register], writers: Writers, params: Collection[str]
) -> set[ptx.Register]:
    """Return the unknown registers among *bases* and the registers that they depend on."""
    readers: dict[ptx.Register, list[ptx.Register]] = {}
    newly_unknown: list[ptx.Register] = []
    pending, seen = list(bases), set(bases)
    writers_of: dict[ptx.Register | None, list[tuple[ptx.Instruction, ptx.Scope]]] = {}
    names: set[str] = set()
    while pending:
        register = pending.pop()
        if register.name not in names:
            names.add(register.name)
            for writer in writers.get(register.name, ()):
                writers_of.setdefault(writer[1].find(register.name), []).append(writer)
        source_lists = [
            _source_registers(register, *writer, params) for writer in writers_of.get(register, ())
        ]
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
    """Return the registers from which *instruction* computes *target*; None if it uses anything else."""
    opcode, *modifiers = instruction.mnemonic.split(".")
    first, *operands = instruction.operands
    if opcode == "ld":
        address = instruction.address
        is_param = address and "param" in modifiers and address[0] in params and not scope.find(address[0])
        return [] if is_param else None
    if opcode == "cvta" and modifiers[:-1] in (["global"], ["to", "global"]):
        return []
    if opcode not in _PURE or first != target.name:
        return None
    sources = []
    for operand in operands[:2] if opcode == "selp" else operands:
        # An element of a vector, such as %r1.x, belongs to the register.
        register = scope.find(operand.partition(".")[0])
        if register and register.type:
            sources.append(register)
        elif register or not (operand[:1] == "%" or operand.lstrip("- \t\r\n\f")[:1].isdigit()):
            # The operand is the address of a variable in its state space.
            return None
    return sources
