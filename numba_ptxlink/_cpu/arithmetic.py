"""
Translate arithmetic on registers: expand operations of the table `instructions.ll`, and round floats.

16-bit floats are computed as 32-bit floats, and rounded by functions of `program.ll`. LLVM's own conversions
would call functions of compiler-rt, a library that llvmlite does not load: the process would end at the call.
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
"""PTX's modifiers for rounding, with the values of LLVM's `RoundingMode`."""
# The names of operations, the types of the operands, and the type of the result: "mad.wide: kkw w". The types
# are optional: "prmt.mode:" has none, "%clock %clock64: l" has only that of the result.
_OPERATION_HEADER = re.compile(r"^(\S.*):(?: (?:(\w+) )?(\w))?\n", re.MULTILINE)
_COMMENT = re.compile(r"^;.*\n", re.MULTILINE)
# Modifiers of floats for which the table needs no rows. `.full` only permits larger errors, and `.noftz`
# means the default: ignore both. `emit_arithmetic` applies the others to operands and results.
_FLOAT_MODIFIERS = ("ftz", "sat", "relu", "full", "noftz", *ROUNDING_MODES)
# The smallest normal number of a type: a bf16 has the exponents of an f32. LLVM IR writes any float
# as the bits of a double.
_SMALLEST_NORMAL = {
    "f16": "0x3F10000000000000",
    **dict.fromkeys(("bf16", "f32"), "0x3810000000000000"),
    "f64": "0x0010000000000000",
}
# The operands, by index, that are negated together to negate the result: -(a * b + c) = (-a) * b + (-c). For
# an instruction that is not listed, it is the first operand: -(a * b) = (-a) * b.
_NEGATED_OPERANDS = {"add": (0, 1), "sub": (0, 1), "fma": (0, 2), "mad": (0, 2)}
# The bits of every NaN that float32 arithmetic of a GPU returns.
_GPU_NAN = 0x7FFFFFFF


class Operation(NamedTuple):
    """
    An operation of the table. The head of `instructions.ll` explains the letters.

    Args:
        sources: A letter for the type of each operand; the last letter is also for all further operands. For
            example, "kkw" is two operands of the instruction's type, and others of twice the width. "" if the
            table has no types of operands.
        result: The letter for the type of the result, such as "w"; "" if the table has none.
        body: A template of LLVM IR.
    """

    sources: str
    result: str
    body: str


@functools.cache
def operations() -> dict[str, Operation]:
    """Return the operations of the table, by name."""
    text = _COMMENT.sub("", Path(__file__).with_name("instructions.ll").read_text())
    # `split` returns the text before the first header, and then four pieces for each: the three groups of
    # the header, and the body after it.
    _, *pieces = _OPERATION_HEADER.split(text)
    return {
        name: Operation(sources or "", result or "", body)
        for names, sources, result, body in zip(*[iter(pieces)] * 4, strict=True)
        for name in names.split()
    }


def operation_named(name: str) -> Operation:
    """
    Return an operation by its name.

    Raises:
        UnsupportedInstruction: The table has no operation of this name.
    """
    if name not in operations():
        raise UnsupportedInstruction
    return operations()[name]


def find_operation(mnemonic: Mnemonic) -> Operation:
    """
    Return the operation with the most specific name for an instruction.

    For example, the names for `neg.ftz.f32` are neg.ftz.f32, neg.ftz.f, neg.ftz, neg.f32, neg.f and neg, in
    this order.

    Raises:
        UnsupportedInstruction: The table has none of these names.
    """
    ptx_type, modifiers = mnemonic.type, mnemonic.modifiers
    kept_modifiers = modifiers
    if ptx_type.is_float:
        kept_modifiers = tuple(modifier for modifier in modifiers if modifier not in _FLOAT_MODIFIERS)
    # The letter is "f" also for bf16.
    letter = ptx_type.letter[-1]
    for name in (".".join((mnemonic.opcode, *modifiers)), ".".join((mnemonic.opcode, *kept_modifiers))):
        for suffix in (f".{letter}{ptx_type.bits}", f".{letter}", ""):
            if name + suffix in operations():
                return operations()[name + suffix]
    raise UnsupportedInstruction


def expand_operation(b: IRBuilder, mnemonic: Mnemonic, values: Sequence[str]) -> str:
    """Add the operation that the table has for an instruction, on values from `decode`; return the result."""
    ptx_type, bits, signed = mnemonic.type, mnemonic.type.bits, mnemonic.type.is_signed
    shift_right = "ashr" if signed else "lshr"
    # The head of `instructions.ll` explains these placeholders.
    placeholders = dict(
        zip("abcd", values, strict=False),
        opcode=mnemonic.opcode,
        letter="s" if signed else "u",
        raw=ptx_type.raw,
        bits=bits,
        top_bit=bits - 1,
        wide=f"i{2 * bits}",
        extend="sext" if signed else "zext",
        extend_first="sext" if mnemonic.types[0].is_signed else "zext",
        shift="shl" if mnemonic.opcode == "shl" else shift_right,
        ir=ptx_type.ir,
        suffix=ptx_type.suffix,
        # The value 0.0 is not used: no operation on integers has this placeholder.
        smallest=_SMALLEST_NORMAL.get(f"{ptx_type.letter}{bits}", "0.0"),
    )
    return b.emit_text(find_operation(mnemonic).body, placeholders)


def emit_arithmetic(b: IRBuilder, mnemonic: Mnemonic, operands: Sequence[str]) -> str:
    """
    Add an instruction. Its operands and the returned result are integers with the bits of the values.

    Raises:
        UnsupportedInstruction: The table lacks the operation; or the instruction has floats of two types; or
            it rounds 16-bit floats up, down, or toward zero, as only conversions (`cvt`) of PTX do.
    """
    ptx_type, modifiers = mnemonic.type, mnemonic.modifiers
    if ptx_type.is_float and len(mnemonic.types) > 1:
        # Such as `fma.rn.f32.f16`, whose operands differ in width.
        raise UnsupportedInstruction
    if ptx_type.elements > 1:
        element_mnemonic = mnemonic._replace(types=(ptx_type.element,))
        split_operands = [b.split_bits(operand, ptx_type.width, ptx_type.elements) for operand in operands]
        # The first elements of all operands, then the second ones, and so on.
        results = [
            emit_arithmetic(b, element_mnemonic, elements) for elements in zip(*split_operands, strict=True)
        ]
        return b.join_bits(results, ptx_type.bits)
    if not ptx_type.is_float:
        return expand_operation(b, mnemonic, operands)
    values = [decode(b, ptx_type, operand) for operand in operands]
    values = [apply_modifiers(b, ptx_type, value, modifiers, ["ftz"]) for value in values]
    directed_rounding = next((modifier for modifier in modifiers if modifier in ("rz", "rp", "rm")), "")
    if directed_rounding and ptx_type.bits == 16:
        raise UnsupportedInstruction
    if directed_rounding:
        value = emit_directed(b, mnemonic.opcode, ptx_type, directed_rounding, values)
    elif mnemonic.opcode in ("min", "max"):
        # PTX has forms with two and with three operands.
        value = functools.reduce(lambda first, second: expand_operation(b, mnemonic, (first, second)), values)
    else:
        value = expand_operation(b, mnemonic, values)
    if find_operation(mnemonic).result == "p":
        # A predicate is no float: it has no modifiers, and its bit needs no encoding.
        return value
    return encode(b, ptx_type, apply_modifiers(b, ptx_type, value, modifiers, ("relu", "sat", "ftz")))


def apply_modifiers(
    b: IRBuilder, ptx_type: PtxType, value: str, modifiers: Sequence[str], applicable: Sequence[str]
) -> str:
    """
    Apply modifiers to a float; return the result.

    Args:
        b: The function.
        ptx_type: The type of the float.
        value: The float.
        modifiers: The modifiers of the instruction.
        applicable: The modifiers to apply if the instruction has them, in this order.
    """
    for modifier in applicable:
        if modifier in modifiers:
            # The table has the operations flush, relu and sat.
            opcode = "flush" if modifier == "ftz" else modifier
            value = expand_operation(b, Mnemonic(opcode, (), (ptx_type,)), [value])
    return value


def emit_gpu_nan(b: IRBuilder, bits: str, condition: str = "true") -> str:
    """
    Return the bits of a float32; if it is NaN and *condition* is true, return the bits of a GPU's NaN.

    Args:
        b: The function.
        bits: The bits of the float, an i32.
        condition: An i1: whether float32 arithmetic computed the float. Other NaNs keep their bits.
    """
    value = b.emit_value(f"bitcast i32 {bits} to float")
    is_nan = b.emit_op("and", "i1", b.emit_op("fcmp uno", "float", value, value), condition)
    return b.select(is_nan, "i32", str(_GPU_NAN), bits)


def decode(b: IRBuilder, ptx_type: PtxType, bits: str) -> str:
    """Return the value that bits represent, in the type `ptx_type.ir` (float for a 16-bit float)."""
    if not ptx_type.is_float:
        return bits
    if ptx_type.bits == 16:
        return b.call(f"ptxlink.{ptx_type.letter}16.decode", "float", f"i16 {bits}")
    return b.emit_value(f"bitcast {ptx_type.raw} {bits} to {ptx_type.ir}")


def encode(b: IRBuilder, ptx_type: PtxType, value: str, rounding: str = "rn") -> str:
    """Return the bits that represent a value; a 16-bit float is rounded by a mode of ROUNDING_MODES."""
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
    Add an operation on floats that rounds up, down, or toward zero; return its result.

    Args:
        b: The function.
        name: The end of the operation's name in the table, such as "add" of "directed.add".
        ptx_type: The type of the operands.
        rounding: "rz" for toward zero, "rp" for up, "rm" for down.
        operands: The values.
        result: The type of the result in LLVM IR, "" for that of the operands.
    """
    # The functions of the table round up or toward zero. To round down, negate the operands, round up, and
    # negate the result. A square root is never negative, so that rounding it toward zero rounds it down.
    negates = rounding == "rm" and name != "sqrt"
    negated_indices = _NEGATED_OPERANDS.get(name, (0,)) if negates else ()
    directed_operands = [
        b.emit_value(f"fneg {ptx_type.ir} {operand}") if index in negated_indices else operand
        for index, operand in enumerate(operands)
    ]
    placeholders = dict(
        zip("abc", directed_operands, strict=False),
        ir=ptx_type.ir,
        suffix=ptx_type.suffix,
        up=str(rounding == "rp" or negates).lower(),
    )
    value = b.emit_text(operation_named(f"directed.{name}").body, placeholders)
    if not negates:
        return value
    value = b.emit_value(f"fneg {result or ptx_type.ir} {value}")
    # The negations may change the sign of a NaN: if the result is NaN, return the NaN of the operation that
    # rounds to nearest. A conversion, for which *result* is set, keeps the sign, since its only operand
    # and its result are negated. For types smaller than f64, the sign of a NaN does not matter: a GPU has
    # only one NaN for each of them (`emit_gpu_nan`).
    nearest_operation = operations().get(f"{name}.f")
    if nearest_operation and ptx_type.bits == 64 and not result:
        nearest_placeholders = dict(
            zip("abc", operands, strict=False), ir=ptx_type.ir, suffix=ptx_type.suffix, opcode=name
        )
        is_nan = b.emit_op("fcmp uno", ptx_type.ir, value, value)
        nan = b.emit_text(nearest_operation.body, nearest_placeholders)
        value = b.select(is_nan, ptx_type.ir, nan, value)
    return value
