"""
Make generic accesses global where their addresses can only be such, and a compiler could not see it before.

A register is known where all that writes it is computed of registers that are known, of constants, special
registers, addresses that `cvta` takes for global, and what a kernel gets as a parameter or as a member of
one. All definitions count, whatever their order and predicates. A host can have no address of other memory:
shared, local and parameter memory exist while a grid runs ("Device Memory Space Specifiers" and "Dynamic
Parallelism" in the CUDA Programming Guide). What was loaded, returned or received from other threads is not
known: it could be an address of another window, or a part of one.

So an address that is known is one of global memory, and the access is global: its generic address is the
same there (PTX ISA, "Generic Addressing"). What only predicates and branches tell of an address is not
followed. Nothing becomes shared or local: a sum may reach another window or block.
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
# What orders an access stands before its state space.
_ORDERS = frozenset(
    ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu", "sys")
)
_ACCESSING = ("ld", "st", "atom", "red")
# Opcodes whose result depends on their operands alone.
_PURE_WORDS = (
    "abs add and bfe bfi bfind brev clz cnot copysign cos cvt div ex2 fma lg2 lop3 mad mad24 max min mov "
    "mul mul24 neg not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin slct sqrt sub tanh xor"
)
_PURE = frozenset(_PURE_WORDS.split())


def infer_address_spaces(body: Sequence[ptx.Statement], params: Collection[str]) -> Sequence[ptx.Statement]:
    """
    Return *body* with global accesses in place of generic ones that can only be such.

    Takes time linear in the text.

    Args:
        body: The statements of a function.
        params: The parameters of a kernel.
    """
    bases: dict[int, ptx.Register] = {}
    # By the names that blocks may share: to find the register of every name would take longer than all else
    # here. `_unknown` does so for the few that addresses depend on.
    writers: dict[str, list[tuple[ptx.Instruction, ptx.Scope]]] = defaultdict(list)
    for place, statement, scope in ptx.scoped(body):
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
                bases[place] = base
    unknown = _unknown(bases.values(), writers, params)
    proofs = [place for place, base in bases.items() if base not in unknown]
    return ptx.apply_edits(body, {place: [_as_global_access(body[place])] for place in proofs})


@functools.lru_cache(maxsize=1024)
def _is_generic_access(mnemonic: str) -> bool:
    opcode, *modifiers = mnemonic.split(".")
    return opcode in _ACCESSING and _SPACES.isdisjoint(each.partition("::")[0] for each in modifiers)


def _as_global_access(access: ptx.Statement) -> ptx.Statement:
    assert isinstance(access, ptx.Instruction)  # noqa: S101 - it is an access
    opcode, *modifiers = access.mnemonic.split(".")
    orders = sum(modifier in _ORDERS for modifier in modifiers)
    return access._replace(mnemonic=".".join((opcode, *modifiers[:orders], "global", *modifiers[orders:])))


def _unknown(bases: Iterable[ptx.Register], writers: Writers, params: Collection[str]) -> set[ptx.Register]:
    """Return which of *bases*, and of what they depend on, are not known."""
    readers: dict[ptx.Register, list[ptx.Register]] = {}
    newly_unknown: list[ptx.Register] = []
    pending, seen = list(bases), set(bases)
    own: dict[ptx.Register | None, list[tuple[ptx.Instruction, ptx.Scope]]] = {}
    names: set[str] = set()
    while pending:
        register = pending.pop()
        if register.name not in names:
            names.add(register.name)
            for writer in writers.get(register.name, ()):
                own.setdefault(writer[1].find(register.name), []).append(writer)
        found = [_sources(register, *writer, params) for writer in own.get(register, ())]
        if not found or None in found:
            newly_unknown.append(register)
        for source in {source for sources in found for source in sources or ()}:
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


def _sources(
    target: ptx.Register, instruction: ptx.Instruction, scope: ptx.Scope, params: Collection[str]
) -> list[ptx.Register] | None:
    """Return the registers of which *instruction* computes *target*, None where it is of anything else."""
    opcode, *modifiers = instruction.mnemonic.split(".")
    first, *others = instruction.operands
    if opcode == "ld":
        address = instruction.address
        is_param = address and "param" in modifiers and address[0] in params and not scope.find(address[0])
        return [] if is_param else None
    if opcode == "cvta" and modifiers[:-1] in (["global"], ["to", "global"]):
        return []
    if opcode not in _PURE or first != target.name:
        return None
    sources = []
    for spelled in others[:2] if opcode == "selp" else others:
        # An element of a vector is one of the register.
        register = scope.find(spelled.partition(".")[0])
        if register and register.type:
            sources.append(register)
        elif register or not (spelled[:1] == "%" or spelled.lstrip("- \t\r\n\f")[:1].isdigit()):
            # The address of a variable in its state space.
            return None
    return sources
