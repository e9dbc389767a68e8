"""
Find the registers with results of float32 arithmetic, whose NaNs have one bit pattern on a GPU.

A GPU returns 0x7fffffff for each NaN that it computes; x86 keeps sign and payload. Arithmetic on a NaN does
not depend on its bits, so the translator replaces a NaN only where its bits can be seen: where a register is
stored, or read as an integer. Bits of another origin, such as those of a NaN that was loaded, are kept.
"""

from __future__ import annotations

from enum import Flag
from functools import lru_cache
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import arithmetic
from .mnemonics import Mnemonic, PtxType, UnsupportedInstruction, parse_mnemonic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# The operands that an instruction copies: a in `mov target, a`, a and b in `selp target, a, b, predicate`.
_COPIED_OPERANDS = {"mov": slice(1, 2), "selp": slice(1, 3)}
_F16, _F32 = PtxType("f", 16), PtxType("f", 32)
# Bits of a float32. A NaN without its sign is a larger integer than infinity.
_SIGN_BIT, _INFINITY_BITS = 1 << 31, 0x7F800000


class Origin(Flag):
    """The kinds of instructions that write a register: float32 arithmetic, others, or both kinds."""

    NONE = 0  # No instruction is known yet.
    ARITHMETIC = 1
    OTHER = 2


@lru_cache(maxsize=4096)
def is_arithmetic(mnemonic: Mnemonic) -> bool:
    """Return whether an instruction computes a float32 whose NaN is always 0x7fffffff on a GPU."""
    if mnemonic.opcode == "cvt":
        # `cvt.f32.f32` and `cvt.f32.f16` do; `cvt.f32.f64` keeps the upper bits of a NaN.
        return mnemonic.types[:1] == (_F32,) and mnemonic.types[1:] in ((_F32,), (_F16,))
    # `copysign` keeps the bits of a NaN.
    if {*mnemonic.types} != {_F32} or mnemonic.opcode == "copysign":
        return False
    try:
        # "k" in instructions.ll: the result has the type of the instruction, and is no predicate.
        return arithmetic.find_operation(mnemonic).result == "k"
    except UnsupportedInstruction:
        return False


def _is_immediate_number(operand: str) -> bool:
    """Return whether an operand is a float32 in hexadecimal, such as "0f3F800000", and no NaN."""
    if operand[:2] not in ("0f", "0F"):
        return False
    bits = int.from_bytes(bytes.fromhex(operand[2:]), "big")
    return bits & ~_SIGN_BIT <= _INFINITY_BITS


def find_origins(body: Iterable[tuple[int, ptx.Statement, ptx.Scope]]) -> Mapping[ptx.Register, Origin]:
    """
    Return the origins of the values that each register of a function may have. Copies are followed.

    Args:
        body: For each statement of the function: its index, the statement, and the scope of its names.
    """
    register_origins: dict[ptx.Register, Origin] = {}
    # For each register, the registers that it is copied to.
    copies: dict[ptx.Register, list[ptx.Register]] = {}
    for _, statement, scope in body:
        if not isinstance(statement, ptx.Instruction) or not statement.operands:
            continue
        mnemonic = parse_mnemonic(statement.mnemonic)
        origin = Origin.ARITHMETIC if is_arithmetic(mnemonic) else Origin.OTHER
        sources: list[ptx.Register | None] = []
        if mnemonic.opcode in _COPIED_OPERANDS and mnemonic.types and mnemonic.type.width == _F32.bits:
            operands = statement.operands[_COPIED_OPERANDS[mnemonic.opcode]]
            sources = [scope.find(operand) for operand in operands]
            # A number, unlike a NaN, counts as no origin: the replacement of NaNs leaves it as it is.
            is_copy = all(
                source or _is_immediate_number(operand)
                for source, operand in zip(sources, operands, strict=True)
            )
            # The target of a copy has the origins of the sources, which the loop at the end adds.
            origin = Origin.NONE if is_copy else origin
        for operand in ptx.split_vector(statement.operands[0]):
            # A second target, as in `%r1|%p1`, is a predicate.
            target = scope.find(operand.partition("|")[0].strip())
            if target:
                register_origins[target] = register_origins.get(target, Origin.NONE) | origin
                for source in filter(None, sources):
                    copies.setdefault(source, []).append(target)
    # Follow copies of copies; the list grows in the loop.
    pending = [*copies]
    for source in pending:
        for target in copies.get(source, ()):
            target_origins = register_origins.get(target, Origin.NONE)
            combined = target_origins | register_origins.get(source, Origin.NONE)
            if combined != target_origins:
                register_origins[target] = combined
                pending.append(target)
    return register_origins
