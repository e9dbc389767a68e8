"""
Find the registers with results of float32 arithmetic, whose NaNs have one bit pattern on a GPU.

A GPU returns 0x7fffffff for each NaN that it computes; x86 keeps sign and payload. Later arithmetic does
not depend on the bits of a NaN, so a NaN is replaced only where its bits can be seen: where a register is
stored, moved or read as an integer. Bits of another origin, such as those of a loaded NaN, are kept.
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

_COPIES = {"mov": slice(1, 2), "selp": slice(1, 3)}
_F16, _F32 = PtxType("f", 16), PtxType("f", 32)
_SIGN, _INFINITY = 1 << 31, 0x7F800000


class Origin(Flag):
    """The instructions that wrote to a register."""

    NONE = 0
    ARITHMETIC = 1
    OTHER = 2


@lru_cache(maxsize=4096)
def is_arithmetic(mnemonic: Mnemonic) -> bool:
    """Return whether an instruction computes a float32, and returns 0x7fffffff for NaN on a GPU."""
    if mnemonic.opcode == "cvt":
        # A float32 that a double is rounded to keeps the upper bits of a NaN.
        return mnemonic.types[:1] == (_F32,) and mnemonic.types[1:] in ((_F32,), (_F16,))
    if {*mnemonic.types} != {_F32} or mnemonic.opcode == "copysign":
        return False
    try:
        return arithmetic.find_operation(mnemonic).result == "k"
    except UnsupportedInstruction:
        return False


def _is_number(operand: str) -> bool:
    """Return whether an operand is an immediate float32 other than NaN."""
    bits = int.from_bytes(bytes.fromhex(operand[2:]), "big") if operand[:2] in ("0f", "0F") else _INFINITY + 1
    return bits & ~_SIGN <= _INFINITY


def origins(body: Iterable[tuple[int, ptx.Statement, ptx.Scope]]) -> Mapping[ptx.Register, Origin]:
    """Return the origins of the values that each register of a function may have."""
    register_origins: dict[ptx.Register, Origin] = {}
    copies: dict[ptx.Register, list[ptx.Register]] = {}
    for _, statement, scope in body:
        if not isinstance(statement, ptx.Instruction) or not statement.operands:
            continue
        mnemonic = parse_mnemonic(statement.mnemonic)
        origin = Origin.ARITHMETIC if is_arithmetic(mnemonic) else Origin.OTHER
        sources: list[ptx.Register | None] = []
        if mnemonic.opcode in _COPIES and [last.width for last in mnemonic.types[-1:]] == [_F32.bits]:
            operands = statement.operands[_COPIES[mnemonic.opcode]]
            sources = [scope.find(operand) for operand in operands]
            is_copy = all(
                source or _is_number(operand) for source, operand in zip(sources, operands, strict=True)
            )
            origin = Origin.NONE if is_copy else origin
        for operand in ptx.elements(statement.operands[0]):
            target = scope.find(operand.partition("|")[0].strip())
            if target:
                register_origins[target] = register_origins.get(target, Origin.NONE) | origin
                for source in filter(None, sources):
                    copies.setdefault(source, []).append(target)
    pending = [*copies]
    for source in pending:
        for target in copies.get(source, ()):
            before = register_origins.get(target, Origin.NONE)
            combined = before | register_origins.get(source, Origin.NONE)
            if combined != before:
                register_origins[target] = combined
                pending.append(target)
    return register_origins
