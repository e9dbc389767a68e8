"""
Translate arithmetic on registers: expand operations of the table `instructions.ll`, and round floats.

Halves are computed as floats and rounded by functions of `program.ll`. The conversions of LLVM would call
functions of the compiler's runtime library, which is missing, so that the process would end.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .mnemonics import Mnemonic, PtxType, UnsupportedInstruction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ir_builder import IRBuilder

ROUNDING_MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
"""LLVM's numbers of the rounding modes."""
# The names of operations, the types of the operands, and the type of the result: "mad.wide: kkw w".
_OPERATION_HEADER = re.compile(r"^(\S.*):(?: (?:(\w+) )?(\w))?\n", re.MULTILINE)
_COMMENT = re.compile(r"^;.*\n", re.MULTILINE)
# Modifiers of floats for which the table needs no rows: they have no effect here, or are applied by
# `emit_arithmetic` to operands and results.
_FLOAT_MODIFIERS = ("ftz", "sat", "relu", "full", "noftz", *ROUNDING_MODES)
# The smallest normal number of a type; a bfloat16 has the exponents of a float.
_SMALLEST_NORMAL = {
    "f16": "0x3F10000000000000",
    **dict.fromkeys(("bf16", "f32"), "0x3810000000000000"),
    "f64": "0x0010000000000000",
}
# Operands whose negation negates the result of an instruction; for other instructions, the first operand.
_NEGATED_OPERANDS = {"add": (0, 1), "sub": (0, 1), "fma": (0, 2), "mad": (0, 2)}
# The bits of each float32 NaN that a GPU computes.
_GPU_NAN = 0x7FFFFFFF


class Operation(NamedTuple):
    """
    An operation of the table.

    Args:
        sources: A letter for the type of each operand; the last letter is also for all further operands.
        result: The letter for the type of the result.
        body: A template of LLVM IR.
    """

    sources: str
    result: str
    body: str


@functools.cache
def operations() -> dict[str, Operation]:
    """Return the operations of the table, by name."""
    text = _COMMENT.sub("", Path(__file__).with_name("instructions.ll").read_text())
    _, *parts = _OPERATION_HEADER.split(text)
    return {
        name: Operation(sources, result, body)
        for names, sources, result, body in zip(*[iter(parts)] * 4, strict=True)
        for name in names.split()
    }


def operation(name: str) -> Operation:
    """
    Return an operation by its name.

    Raises:
        UnsupportedInstruction: The table has no such row.
    """
    if name not in operations():
        raise UnsupportedInstruction
    return operations()[name]


def find_operation(mnemonic: Mnemonic) -> Operation:
    """
    Return the operation of an instruction: the most specific row, with or without modifiers and a type.

    Raises:
        UnsupportedInstruction: The table has no such row.
    """
    ptx_type, parts = mnemonic.type, (mnemonic.opcode, *mnemonic.modifiers)
    plain = [part for part in parts if part not in _FLOAT_MODIFIERS] if ptx_type.is_float else parts
    for name in (".".join(parts), ".".join(plain)):
        for suffix in (f".{ptx_type.letter[-1]}{ptx_type.bits}", f".{ptx_type.letter[-1]}", ""):
            if name + suffix in operations():
                return operations()[name + suffix]
    raise UnsupportedInstruction


def expand_operation(b: IRBuilder, mnemonic: Mnemonic, values: Sequence[str]) -> str:
    """Add the operation of an instruction on values of its type; return the result."""
    ptx_type, bits, signed = mnemonic.type, mnemonic.type.bits, mnemonic.type.is_signed
    # `instructions.ll` explains these placeholders.
    placeholders = dict(
        zip("abcd", values, strict=False),
        opcode=mnemonic.opcode,
        letter="s" if signed else "u",
        raw=ptx_type.raw,
        bits=bits,
        most=bits - 1,
        wide=f"i{2 * bits}",
        extend="sext" if signed else "zext",
        extend0="sext" if mnemonic.types[0].is_signed else "zext",
        shift="shl" if mnemonic.opcode == "shl" else "ashr" if signed else "lshr",
        ir=ptx_type.ir,
        suffix=ptx_type.suffix,
        smallest=_SMALLEST_NORMAL.get(f"{ptx_type.letter}{bits}", "0.0"),
    )
    return b.emit_text(find_operation(mnemonic).body, placeholders)


def emit_arithmetic(b: IRBuilder, mnemonic: Mnemonic, operands: Sequence[str]) -> str:
    """Add an instruction on the bits of its operands; return the bits of its result."""
    ptx_type, modifiers = mnemonic.type, mnemonic.modifiers
    if ptx_type.is_float and len(mnemonic.types) > 1:
        # The operands of `fma.rn.f32.f16` differ in width.
        raise UnsupportedInstruction
    if ptx_type.elements > 1:
        single = mnemonic._replace(types=(ptx_type.element,))
        # The first elements of all operands, then the second ones, and so on.
        element_operands = zip(
            *(b.split_bits(operand, ptx_type.width, ptx_type.elements) for operand in operands), strict=True
        )
        return b.join_bits([emit_arithmetic(b, single, values) for values in element_operands], ptx_type.bits)
    if not ptx_type.is_float:
        return expand_operation(b, mnemonic, operands)
    values = [decode(b, ptx_type, operand) for operand in operands]
    values = [apply_modifiers(b, ptx_type, value, modifiers, ["ftz"]) for value in values]
    rounding = next((modifier for modifier in modifiers if modifier in ("rz", "rp", "rm")), "")
    if rounding and ptx_type.bits == 16:
        raise UnsupportedInstruction
    if rounding:
        value = emit_directed(b, mnemonic.opcode, ptx_type, rounding, values)
    elif mnemonic.opcode in ("min", "max"):
        value = functools.reduce(lambda first, second: expand_operation(b, mnemonic, (first, second)), values)
    else:
        value = expand_operation(b, mnemonic, values)
    if find_operation(mnemonic).result == "p":
        # A predicate is neither modified nor encoded.
        return value
    return encode(b, ptx_type, apply_modifiers(b, ptx_type, value, modifiers, ("relu", "sat", "ftz")))


def apply_modifiers(
    b: IRBuilder, ptx_type: PtxType, value: str, modifiers: Sequence[str], applicable: Sequence[str]
) -> str:
    """Apply to a float each of *applicable* that is among the *modifiers*, in order; return the result."""
    for modifier in applicable:
        if modifier in modifiers:
            opcode = "flush" if modifier == "ftz" else modifier
            value = expand_operation(b, Mnemonic(opcode, (), (ptx_type,)), [value])
    return value


def emit_gpu_nan(b: IRBuilder, bits: str, condition: str = "true") -> str:
    """Return the bits of a float32; if it is NaN and *condition* is true, the bits of a GPU's NaN."""
    value = b.emit_value(f"bitcast i32 {bits} to float")
    is_nan = b.emit_op("and", "i1", b.emit_op("fcmp uno", "float", value, value), condition)
    return b.select(is_nan, "i32", str(_GPU_NAN), bits)


def decode(b: IRBuilder, ptx_type: PtxType, bits: str) -> str:
    """Return the value that bits represent, in the type of its arithmetic."""
    if not ptx_type.is_float:
        return bits
    if ptx_type.bits == 16:
        return b.call(f"ptxlink.{ptx_type.letter}16.decode", "float", f"i16 {bits}")
    return b.emit_value(f"bitcast {ptx_type.raw} {bits} to {ptx_type.ir}")


def encode(b: IRBuilder, ptx_type: PtxType, value: str, rounding: str = "rn") -> str:
    """Return the bits that represent a value; a half is rounded."""
    if not ptx_type.is_float:
        return value
    if ptx_type.bits == 16:
        return b.call(
            f"ptxlink.{ptx_type.letter}16.encode", "i16", f"float {value}", f"i32 {ROUNDING_MODES[rounding]}"
        )
    return b.emit_value(f"bitcast {ptx_type.ir} {value} to {ptx_type.raw}")


def emit_directed(
    b: IRBuilder, name: str, ptx_type: PtxType, rounding: str, operands: Sequence[str], result: str = ""
) -> str:
    """
    Add an operation on floats that rounds in a direction; return its result.

    Args:
        b: The function.
        name: The end of the operation's name in the table, such as "add" of "directed.add".
        ptx_type: The type of the operands.
        rounding: "rz" for toward zero, "rp" for up, "rm" for down.
        operands: The values.
        result: The type of the result in LLVM IR, "" for that of the operands.
    """
    # The functions of the table round up or toward zero. To round down, negate the operands, round up, and
    # negate the result. A square root is never negative, so that toward zero is down.
    negates = rounding == "rm" and name != "sqrt"
    plain_operation = (
        operations().get(f"{name}.f") if negates and ptx_type.bits == 64 and not result else None
    )
    unnegated_placeholders = dict(
        zip("abc", operands, strict=False), ir=ptx_type.ir, suffix=ptx_type.suffix, opcode=name
    )
    if negates:
        negated = _NEGATED_OPERANDS.get(name, (0,))
        operands = [
            b.emit_value(f"fneg {ptx_type.ir} {operand}") if index in negated else operand
            for index, operand in enumerate(operands)
        ]
    placeholders = dict(
        zip("abc", operands, strict=False),
        ir=ptx_type.ir,
        suffix=ptx_type.suffix,
        up=str(rounding == "rp" or negates).lower(),
    )
    value = b.emit_text(operation(f"directed.{name}").body, placeholders)
    if not negates:
        return value
    value = b.emit_value(f"fneg {result or ptx_type.ir} {value}")
    if plain_operation:
        # If the result is NaN, use that of the operation without negations, whose sign is right.
        is_nan = b.emit_op("fcmp uno", ptx_type.ir, value, value)
        value = b.select(
            is_nan, ptx_type.ir, b.emit_text(plain_operation.body, unnegated_placeholders), value
        )
    return value
