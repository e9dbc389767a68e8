"""Translate SIMD video instructions such as `vadd4`, which compute on bytes or halves of 32-bit registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .mnemonics import UnsupportedInstruction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .mnemonics import Mnemonic
    from .translator import Translator

_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge"}
# LLVM IR by opcode, without the number of elements: "vadd" for vadd2 and vadd4. {a} and {b} are vectors of
# the elements, extended to 32 bits; {ir} is their type.
_OPERATIONS = {
    "vadd": "result = add {ir} {a}, {b}",
    "vsub": "result = sub {ir} {a}, {b}",
    "vmin": "result = call {ir} @llvm.smin.{suffix}({ir} {a}, {ir} {b})",
    "vmax": "result = call {ir} @llvm.smax.{suffix}({ir} {a}, {ir} {b})",
    "vabsdiff": """
        difference = sub {ir} {a}, {b}
        result = call {ir} @llvm.abs.{suffix}({ir} {difference}, i1 false)""",
    # Half of the sum, rounded up (by adding 1 before the shift) if the sum is not negative, else down.
    "vavrg": """
        sum = add {ir} {a}, {b}
        rounds_up = icmp sge {ir} {sum}, zeroinitializer
        increment = zext {bools} {rounds_up} to {ir}
        dividend = add {ir} {sum}, {increment}
        result = ashr {ir} {dividend}, splat (i32 1)""",
    "vset": """
        holds = icmp {comparison} {ir} {a}, {b}
        result = zext {bools} {holds} to {ir}""",
}


def compute_elements(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate an instruction such as `vadd4 d, a, b, c`.

    Masks and selectors of bytes are not supported. With the modifier `.add`, the result is the sum of the
    elements and of the operand c, which is not used otherwise. See "SIMD Video Instructions" in the PTX ISA.
    """
    # "vadd4" has the name "vadd" and 4 elements.
    name, count = mnemonic.opcode[:-1], int(mnemonic.opcode[-1])
    # The types are those of d, a and b. `vset4.u32.u32.lt d, a, b, c` has no type for d, whose elements
    # are 0 or 1.
    if len(operands) != 4 or len(mnemonic.types) != (2 if name == "vset" else 3):
        raise UnsupportedInstruction
    # Only `vset` has a comparison; the others do not use this value.
    comparison = next((flag for flag in mnemonic.modifiers if flag in _COMPARISONS), "eq")
    if not {*mnemonic.modifiers} <= {"sat", "add", *([comparison] if name == "vset" else [])}:
        raise UnsupportedInstruction
    bits = 32 // count
    is_result_signed = mnemonic.types[0].is_signed
    ir, register_type = f"<{count} x i32>", f"<{count} x i{bits}>"
    values = []
    for operand, operand_type in zip(operands[1:3], mnemonic.types[-2:], strict=True):
        elements = b.emit_value(f"bitcast i32 {b.read_operand(operand, 32)} to {register_type}")
        extend = "sext" if operand_type.is_signed else "zext"
        values.append(b.emit_value(f"{extend} {register_type} {elements} to {ir}"))
    placeholders = {
        "a": values[0],
        "b": values[1],
        "ir": ir,
        "suffix": f"v{count}i32",
        "bools": f"<{count} x i1>",
        "comparison": _COMPARISONS[comparison],
    }
    result = b.emit_text(_OPERATIONS[name], placeholders)
    if "sat" in mnemonic.modifiers:
        low = -(1 << (bits - 1)) if is_result_signed else 0
        high = (1 << (bits - 1 if is_result_signed else bits)) - 1
        for function, limit in (("smax", low), ("smin", high)):
            result = b.emit_value(
                f"call {ir} @llvm.{function}.v{count}i32({ir} {result}, {ir} splat (i32 {limit}))"
            )
    addend = b.read_operand(operands[3], 32)
    if "add" in mnemonic.modifiers:
        total = b.call(f"llvm.vector.reduce.add.v{count}i32", "i32", f"{ir} {result}")
        value = b.emit_op("add", "i32", total, addend)
    else:
        truncated = b.emit_value(f"trunc {ir} {result} to {register_type}")
        value = b.emit_value(f"bitcast {register_type} {truncated} to i32")
    b.write_register(operands[0], value, 32)


VIDEO_HANDLERS = {f"{name}{count}": compute_elements for name in _OPERATIONS for count in (2, 4)}
