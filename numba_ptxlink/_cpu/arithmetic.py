"""
Arithmetic: what the table `instructions.ll` computes of values, and how floats are read, rounded and written.

LLVM's own functions for halves are in a library of compilers; where that is absent, the process would end.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .ir_builder import Mnemonic, PtxType, UnsupportedInstruction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ir_builder import IRBuilder

ROUNDING_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
"""Roundings, as LLVM numbers them."""
_OPERATION_HEADER = re.compile(r"^(\S.*):(?: (?:(\w+) )?(\w))?\n", re.MULTILINE)
_COMMENT = re.compile(r"^;.*\n", re.MULTILINE)
# What all floats may have, besides a rounding.
_FLOAT_MODIFIERS = ("ftz", "sat", "relu", "full", "noftz", *ROUNDING_MODES)
# The smallest normal number of a type; a bfloat16 has the exponents of a float.
_SMALLEST_NORMAL = {
    "f16": "0x3F10000000000000",
    **dict.fromkeys(("bf16", "f32"), "0x3810000000000000"),
    "f64": "0x0010000000000000",
}
# The operands whose negation negates the result of an instruction; of others the first one.
_NEGATED_OPERANDS = {"add": (0, 1), "sub": (0, 1), "fma": (0, 2), "mad": (0, 2)}


class Operation(NamedTuple):
    """
    An entry of the table.

    Args:
        sources: A letter for the type of each operand, of which the last repeats.
        result: The letter for the type of the result.
        body: What is computed.
    """

    sources: str
    result: str
    body: str


@functools.cache
def operations() -> dict[str, Operation]:
    """Return the table by the names of its entries."""
    text = _COMMENT.sub("", Path(__file__).with_name("instructions.ll").read_text())
    _, *parts = _OPERATION_HEADER.split(text)
    return {
        name: Operation(sources, result, body)
        for names, sources, result, body in zip(*[iter(parts)] * 4, strict=True)
        for name in names.split()
    }


def find_operation(mnemonic: Mnemonic) -> Operation:
    """
    Return what an instruction computes.

    Raises:
        Unknown: The table does not have it.
    """
    kind, whole = mnemonic.type, (mnemonic.opcode, *mnemonic.modifiers)
    bare = [each for each in whole if each not in _FLOAT_MODIFIERS] if kind.is_float else whole
    for name in (".".join(whole), ".".join(bare)):
        for suffix in (f".{kind.letter[-1]}{kind.bits}", f".{kind.letter[-1]}", ""):
            if name + suffix in operations():
                return operations()[name + suffix]
    raise UnsupportedInstruction


def expand_operation(b: IRBuilder, mnemonic: Mnemonic, values: Sequence[str]) -> str:
    """Return what the table computes of the values of an instruction."""
    kind, bits, signed = mnemonic.type, mnemonic.type.bits, mnemonic.type.is_signed
    names = dict(
        zip("abcd", values, strict=False),
        opcode=mnemonic.opcode,
        letter="s" if signed else "u",
        raw=kind.raw,
        bits=bits,
        most=bits - 1,
        wide=f"i{2 * bits}",
        extend="sext" if signed else "zext",
        extend0="sext" if mnemonic.types[0].is_signed else "zext",
        shift="shl" if mnemonic.opcode == "shl" else "ashr" if signed else "lshr",
        ir=kind.ir,
        suffix=kind.suffix,
        smallest=_SMALLEST_NORMAL.get(f"{kind.letter}{bits}", "0.0"),
    )
    return b.emit_text(find_operation(mnemonic).body, names)


def emit_arithmetic(b: IRBuilder, mnemonic: Mnemonic, operands: Sequence[str]) -> str:
    """Return the bits that an instruction computes of bits; for each part of packed ones."""
    kind, modifiers = mnemonic.type, mnemonic.modifiers
    if kind.is_float and len(mnemonic.types) > 1:
        # Such as `fma.rn.f32.f16`, whose operands differ in width.
        raise UnsupportedInstruction
    if kind.elements > 1:
        single = mnemonic._replace(types=(kind.element,))
        columns = zip(*(b.split_bits(each, kind.width, kind.elements) for each in operands), strict=True)
        return b.join_bits([emit_arithmetic(b, single, each) for each in columns], kind.bits)
    if not kind.is_float:
        return expand_operation(b, mnemonic, operands)
    values = [apply_modifiers(b, kind, decode(b, kind, each), modifiers, ["ftz"]) for each in operands]
    rounding = next((each for each in modifiers if each in ("rz", "rp", "rm")), "")
    if rounding and kind.bits == 16:
        raise UnsupportedInstruction
    if rounding:
        value = emit_directed(b, mnemonic.opcode, kind, rounding, values)
    elif mnemonic.opcode in ("min", "max"):
        value = functools.reduce(lambda one, two: expand_operation(b, mnemonic, (one, two)), values)
    else:
        value = expand_operation(b, mnemonic, values)
    if find_operation(mnemonic).result == "p":
        return value
    return encode(b, kind, apply_modifiers(b, kind, value, modifiers, ("relu", "sat", "ftz")))


def apply_modifiers(
    b: IRBuilder, kind: PtxType, value: str, modifiers: Sequence[str], which: Sequence[str]
) -> str:
    """Return a float as those modifiers of *which* leave it that are among *flags*."""
    for each in which:
        if each in modifiers:
            value = expand_operation(b, Mnemonic("flush" if each == "ftz" else each, (), (kind,)), [value])
    return value


def decode(b: IRBuilder, kind: PtxType, bits: str) -> str:
    """Return the value that bits are."""
    if not kind.is_float:
        return bits
    if kind.bits == 16:
        return b.call(f"ptxlink.{kind.letter}16.decode", "float", f"i16 {bits}")
    return b.emit_value(f"bitcast {kind.raw} {bits} to {kind.ir}")


def encode(b: IRBuilder, kind: PtxType, value: str, rounding: str = "rn") -> str:
    """Return the bits of a value; of a half, rounded."""
    if not kind.is_float:
        return value
    if kind.bits == 16:
        return b.call(
            f"ptxlink.{kind.letter}16.encode", "i16", f"float {value}", f"i32 {ROUNDING_MODES[rounding]}"
        )
    return b.emit_value(f"bitcast {kind.ir} {value} to {kind.raw}")


def emit_directed(
    b: IRBuilder, name: str, kind: PtxType, rounding: str, operands: Sequence[str], result: str = ""
) -> str:
    """
    Return what an entry of the table computes of floats, rounded in a direction.

    Args:
        b: The function.
        name: The end of the entry's name, such as "add" of "directed.add".
        kind: The type of the operands.
        rounding: "rz" for toward zero, "rp" for up, "rm" for down.
        operands: The values.
        result: The result's type in LLVM IR, "" for that of the operands.
    """
    # Down is up for negated numbers. A square root has no negative ones: down is toward zero.
    negates = rounding == "rm" and name != "sqrt"
    if negates:
        odd = _NEGATED_OPERANDS.get(name, (0,))
        operands = [
            b.emit_value(f"fneg {kind.ir} {each}") if index in odd else each
            for index, each in enumerate(operands)
        ]
    names = dict(
        zip("abc", operands, strict=False),
        ir=kind.ir,
        suffix=kind.suffix,
        up=str(rounding == "rp" or negates).lower(),
    )
    value = b.emit_text(operations()[f"directed.{name}"].body, names)
    return b.emit_value(f"fneg {result or kind.ir} {value}") if negates else value
