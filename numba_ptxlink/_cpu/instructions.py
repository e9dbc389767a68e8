"""
Translate PTX instructions on registers to LLVM IR: arithmetic, moves, comparisons, selections, conversions.

A handler adds the instructions of LLVM IR to *b*, the Translator of the function. *operands* are those of the
PTX instruction, the target first. The table of operations, which handles most opcodes, is `instructions.ll`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import arithmetic, nan_bits
from .mnemonics import PRED, U32, Mnemonic, PtxType, UnsupportedInstruction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .translator import Translator

_F16, _F64 = PtxType("f", 16), PtxType("f", 64)
# The bits of a quiet f16 NaN without a payload.
_QUIET_HALF_NAN = 0x7E00
# Modifiers of `cvt` that replace each NaN: `.relu` by the NaN 0x7fff, and `.sat` by zero.
_NAN_REPLACING_MODIFIERS = {"relu", "sat"}
# The bits of 1.0, by type.
_ONE_BITS = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF << 52}
# Modifiers of `setp` and `set` that combine the comparison with a predicate.
_PREDICATE_OPERATIONS = {"and", "or", "xor"}
# All integers up to this one are exact in a double.
_MAX_EXACT_INTEGER = 1 << 53
# A tf32 is a float32 whose lowest 13 bits are zero: the position and the value of the last bit that it keeps.
_TF32_LAST_BIT, _TF32_UNIT = 13, 1 << 13
# A mask of the exponent of a float32.
_F32_EXPONENT = 0x7F800000
# Types of the elements that `cvt.pack` returns: u2, u4, u8, u16, and the same with sign.
_PACKED_TYPES = {f"{letter}{bits}" for letter in "us" for bits in (2, 4, 8, 16)}
# PTX's names for pairs of 8-bit floats, and the names of one such float in the functions of `program.ll`:
# `ptxlink.e4m3.encode`.
_FLOAT8_TYPES = {"e4m3x2": "e4m3", "e5m2x2": "e5m2"}
# Modes of `prmt`, and the selectors for the values 0 to 3 of its control operand ("prmt" in the PTX ISA).
_PERMUTATION_MODES = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
# Modifiers for rounding to an integer, and LLVM's functions for them.
_ROUND_FUNCTIONS = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _operand_type(letter: str, mnemonic: Mnemonic) -> PtxType:
    """
    Return the type of an operand or result by its letter in the table, such as "k" in `add: k k`.

    The letters are k for the instruction's last type, w for that type with twice the width, u for u32, and p
    for a predicate.
    """
    if letter == "w":
        return PtxType(mnemonic.type.letter, mnemonic.type.bits * 2)
    return {"u": U32, "p": PRED}.get(letter, mnemonic.type)


def compute(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate an instruction by the table of operations."""
    if "cc" in mnemonic.modifiers:
        add_with_carry(b, mnemonic, operands)
        return
    operation = arithmetic.find_operation(mnemonic)
    target, *sources = operands
    # The placeholder after that of the last source, "{c}" for two: if the body has it, a source is missing.
    # An instruction of the table has at most four sources (`_OPERAND_COUNTS` in functions.py).
    next_placeholder = f"{{{'abcde'[len(sources)]}}}"
    if next_placeholder in operation.body:
        raise UnsupportedInstruction
    # The last letter is also for all further sources: "kk" for two sources and the letters "k".
    letters = operation.sources.ljust(len(sources), operation.sources[-1])
    widths = [_operand_type(letter, mnemonic).width for letter in letters]
    # Float32 arithmetic does not depend on the bits of a NaN (nan_bits.py).
    is_float_arithmetic = nan_bits.is_arithmetic(mnemonic)
    values = [
        b.read_operand(source, width, with_gpu_nan=not is_float_arithmetic)
        for source, width in zip(sources, widths, strict=False)
    ]
    result_type = _operand_type(operation.result, mnemonic)
    b.write_register(
        target,
        arithmetic.emit_arithmetic(b, mnemonic, values),
        result_type.width,
        signed=result_type.is_signed,
        is_computed=str(is_float_arithmetic).lower(),
    )


def add_with_carry(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `addc`, `subc` and `madc`, which read the carry flag, and opcodes with `.cc`, which write it.

    The sum is computed with twice the width: its bit above the width is the carry.
    """
    ptx_type, wide_bits = mnemonic.type, 2 * mnemonic.type.bits
    values = [b.read_operand(source, ptx_type.bits) for source in operands[1:]]
    if mnemonic.opcode.startswith("mad"):
        # The first modifier is `.lo` or `.hi`: add that half of the product.
        multiplication = Mnemonic("mul", mnemonic.modifiers[:1], mnemonic.types)
        values = [arithmetic.emit_arithmetic(b, multiplication, values[:2]), values[2]]
    subtracts = mnemonic.opcode.startswith("sub")
    if subtracts:
        # A GPU subtracts by adding the complement and 1, so the carry flag is set if there is no borrow.
        values[1] = b.emit_op("xor", f"i{ptx_type.bits}", values[1], -1)
    result = b.emit_op(
        "add", f"i{wide_bits}", *(b.resize(value, ptx_type.bits, wide_bits) for value in values)
    )
    # `addc`, `subc` and `madc` add the carry flag, and `sub.cc` adds 1.
    if mnemonic.opcode.endswith("c"):
        carry = b.resize(b.emit_value(f"load i1, ptr {b.carry_flag}"), 1, wide_bits)
        result = b.emit_op("add", f"i{wide_bits}", result, carry)
    elif subtracts:
        result = b.emit_op("add", f"i{wide_bits}", result, 1)
    if "cc" in mnemonic.modifiers:
        carry_out = b.resize(b.emit_op("lshr", f"i{wide_bits}", result, ptx_type.bits), wide_bits, 1)
        b.emit(f"store i1 {carry_out}, ptr {b.carry_flag}")
    b.write_register(operands[0], b.resize(result, wide_bits, ptx_type.bits), ptx_type.bits)


def move(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `mov` of a value or of the address of a variable.

    A vector such as {%r1, %r2} joins registers to one wider value, or splits one into registers.
    """
    target, source = operands
    bits, signed = mnemonic.type.width, mnemonic.type.is_signed
    targets, sources = ptx.split_vector(target), ptx.split_vector(source)
    if not targets:  # The malformed vector "{}".
        raise UnsupportedInstruction
    if len(sources) > 1:
        source_bits = bits // len(sources)
        value = b.join_bits([b.read_operand(register, source_bits) for register in sources], source_bits)
    else:
        # A copy of 32 bits is marked as computed by float32 arithmetic if its source is, so that a NaN is
        # replaced later, when the copy is read (nan_bits.py).
        is_copy = len(targets) == 1 and bits == 32
        value = b.read_operand(source, bits, with_gpu_nan=not is_copy)
        if is_copy:
            b.write_register(target, value, bits, signed=signed, is_computed=b.is_computed(source))
            return
    for register, part in zip(targets, b.split_bits(value, bits, len(targets)), strict=True):
        b.write_register(register, part, bits // len(targets), signed=signed)


def compare(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `setp` and `set`: compare, and combine the result with a predicate if there is one."""
    ptx_type = mnemonic.type
    # `setp.lt.and.f32 p, a, b, q` has the predicate q as its fourth operand.
    if len(operands) != 3 + (not _PREDICATE_OPERATIONS.isdisjoint(mnemonic.modifiers)):
        raise UnsupportedInstruction
    modifiers = tuple(flag for flag in mnemonic.modifiers if flag not in _PREDICATE_OPERATIONS)
    comparison = Mnemonic("setp", modifiers, (ptx_type.element,))
    # A comparison of floats does not depend on the bits of a NaN.
    needs_gpu_nan = not ptx_type.is_float
    values = [b.read_operand(source, ptx_type.width, with_gpu_nan=needs_gpu_nan) for source in operands[1:3]]
    split_values = [b.split_bits(value, ptx_type.width, ptx_type.elements) for value in values]
    # The first elements of both values are a pair, and so are the second ones.
    results = [arithmetic.emit_arithmetic(b, comparison, pair) for pair in zip(*split_values, strict=True)]
    # "%p1|%p2": the results of the two elements, or for one element the result and its negation.
    targets = [target.strip() for target in operands[0].split("|")]
    if ptx_type.elements == 1 and len(targets) > 1:
        results.append(b.emit_op("xor", "i1", results[0], "true"))
    for operation in _PREDICATE_OPERATIONS.intersection(mnemonic.modifiers):
        predicate = b.read_operand(operands[3], 1)
        results = [b.emit_op(operation, "i1", result, predicate) for result in results]
    if mnemonic.opcode == "setp":
        # Without "|", a second result is dropped.
        for target, result in zip(targets, results, strict=False):
            b.write_register(target, result, 1)
        return
    # If the comparison is true, `set` writes 1.0 for a float type, and all bits 1 (-1) for an integer type.
    result_type = mnemonic.types[0]
    bits = result_type.width // len(results)
    if_true = str(_ONE_BITS[f"{result_type.letter}{result_type.bits}"]) if result_type.is_float else "-1"
    parts = [b.select(result, f"i{bits}", if_true, "0") for result in results]
    b.write_register(targets[0], b.join_bits(parts, bits), result_type.width)


def select_value(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `selp`: the first value if the predicate is true, otherwise the second."""
    bits = mnemonic.type.width
    # As in `move`, a copy of 32 bits is marked as computed by float32 arithmetic only if its source is.
    values = [b.read_operand(source, bits, with_gpu_nan=bits != 32) for source in operands[1:3]]
    predicate = b.read_operand(operands[3], 1)
    is_computed = b.select(predicate, "i1", *(b.is_computed(source) for source in operands[1:3]))
    value = b.select(predicate, f"i{bits}", *values)
    b.write_register(operands[0], value, bits, is_computed=is_computed)


def select_by_sign(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `slct`: the first value if the third operand is not negative, otherwise the second."""
    if len(mnemonic.types) != 2:
        raise UnsupportedInstruction
    value_type, sign_type = mnemonic.types
    values = [b.read_operand(source, value_type.bits) for source in operands[1:3]]
    zero = "0.0" if sign_type.is_float else "0"
    signed_value = arithmetic.decode(b, sign_type, b.read_operand(operands[3], sign_type.bits))
    signed_value = arithmetic.apply_modifiers(b, sign_type, signed_value, mnemonic.modifiers, ["ftz"])
    comparison = "fcmp oge" if sign_type.is_float else "icmp sge"
    is_not_negative = b.emit_op(comparison, sign_type.ir, signed_value, zero)
    b.write_register(operands[0], b.select(is_not_negative, value_type.raw, *values), value_type.bits)


def permute(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `prmt`, which returns four of the eight bytes of two registers, as a selector says.

    Without a modifier, the third source is the selector. With a mode such as `.f4e`, the third source is a
    number from 0 to 3, by which one of the mode's selectors is chosen.
    """
    first, second, control = (b.read_operand(source, 32) for source in operands[1:])
    if mnemonic.modifiers:
        mode = ".".join(mnemonic.modifiers)
        if mode not in _PERMUTATION_MODES:
            raise UnsupportedInstruction
        # All four selectors in one integer, the first in the lowest 16 bits.
        selectors = sum(selector << (16 * n) for n, selector in enumerate(_PERMUTATION_MODES[mode]))
        # Write the 64 bits as LLVM writes constants: as a signed number.
        constant = selectors - (1 << 64) if selectors >> 63 else selectors
        control = b.expand("prmt.mode", control=control, selectors=constant)
    b.write_register(operands[0], b.expand("prmt", a=first, b=second, c=control), 32)


def convert(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `cvt`.

    An instruction with two sources, such as `cvt.rn.f16x2.f32 d, a, b`, returns a pair: the first source is
    converted to the upper half of the result, and the second to the lower half.
    """
    if mnemonic.modifiers[:1] == ("pack",):
        _convert_and_pack(b, mnemonic, operands)
        return
    if not _FLOAT8_TYPES.keys().isdisjoint(mnemonic.modifiers):
        _convert_float8(b, mnemonic, operands)
        return
    # `cvt.rna.tf32.f32`, in which tf32 is parsed as a modifier.
    if mnemonic.modifiers[1:] == ("tf32",):
        _convert_to_tf32(b, mnemonic.modifiers[0], operands)
        return
    if len(mnemonic.types) != 2:
        raise UnsupportedInstruction
    target, source = mnemonic.types
    if source.elements > 1 or len(operands) != target.elements + 1:
        raise UnsupportedInstruction
    # The bits of a NaN matter only if the source type is an integer, whose value they are, or if the result
    # is a double, which keeps them. Any other conversion has the same result for each NaN.
    needs_gpu_nan = target.bits == 64 or not source.is_float
    # The lower half, which `join_bits` takes first, is the last source.
    values = [
        b.read_operand(operand, source.bits, with_gpu_nan=needs_gpu_nan) for operand in reversed(operands[1:])
    ]
    parts = [_convert_element(b, mnemonic, value) for value in values]
    b.write_register(
        operands[0],
        b.join_bits(parts, target.bits),
        target.width,
        signed=target.is_signed,
        is_computed=str(nan_bits.is_arithmetic(mnemonic)).lower(),
    )


def _convert_to_tf32(b: Translator, rounding: str, operands: Sequence[str]) -> None:
    """
    Translate `cvt` of a float32 to a tf32, which keeps 10 of the 23 bits of the significand.

    *rounding* is "rna" (to nearest, ties away from zero), "rn" (to nearest, ties to even) or "rz" (to zero).
    """
    bits = b.read_operand(operands[1], 32)
    # Rounding adds an increment, and then cuts off the lower bits.
    if rounding == "rna":
        increment: str | int = _TF32_UNIT // 2
    elif rounding == "rn":
        # Add half a unit if the last bit is 1, else 1 less: a tie then is rounded to the even number.
        last_bit = b.emit_op("and", "i32", b.emit_op("lshr", "i32", bits, _TF32_LAST_BIT), 1)
        increment = b.emit_op("add", "i32", last_bit, _TF32_UNIT // 2 - 1)
    elif rounding == "rz":
        increment = 0
    else:
        raise UnsupportedInstruction
    # The increment of the largest numbers carries into the exponent, which makes them infinite.
    rounded = b.emit_op("and", "i32", b.emit_op("add", "i32", bits, increment), -_TF32_UNIT)
    exponent = b.emit_op("and", "i32", bits, _F32_EXPONENT)
    is_finite = b.emit_op("icmp ne", "i32", exponent, _F32_EXPONENT)
    if rounding == "rna":
        # ptxas compiles `.rna` to integer instructions, which also cut off the lower bits of a NaN.
        value = b.select(is_finite, "i32", rounded, b.emit_op("and", "i32", bits, -_TF32_UNIT))
    else:
        value = arithmetic.emit_gpu_nan(b, b.select(is_finite, "i32", rounded, bits))
    b.write_register(operands[0], value, 32)


def _convert_and_pack(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `cvt.pack.sat`: saturate two integers, and pack them, the first one above the second.

    If there is a third source, its lowest bits become the bits of the result above the two integers.
    """
    # `cvt.pack.sat.s8.s32.b32` names the type of the packed integers first. Types of 2 and 4 bits, which only
    # this instruction has, are parsed as modifiers, which follow "pack" and "sat".
    names = [*mnemonic.modifiers[2:], *(f"{ptx_type.letter}{ptx_type.bits}" for ptx_type in mnemonic.types)]
    packed_type = names[0] if names else ""
    if packed_type not in _PACKED_TYPES or len(operands) < 3:
        raise UnsupportedInstruction
    is_signed, bits = packed_type.startswith("s"), int(packed_type[1:])
    low = -(1 << (bits - 1)) if is_signed else 0
    high = (1 << (bits - is_signed)) - 1
    result = "0"
    if len(operands) > 3:
        result = b.emit_op("shl", "i32", b.read_operand(operands[3], 32), 2 * bits)
    for operand, position in ((operands[1], bits), (operands[2], 0)):
        value = b.call("llvm.smax.i32", "i32", f"i32 {b.read_operand(operand, 32)}", f"i32 {low}")
        value = b.call("llvm.smin.i32", "i32", f"i32 {value}", f"i32 {high}")
        field = b.emit_op("and", "i32", value, (1 << bits) - 1)
        result = b.emit_op("or", "i32", result, b.emit_op("shl", "i32", field, position))
    b.write_register(operands[0], result, 32)


def _convert_float8(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `cvt` to and from pairs of 8-bit floats.

    With `.satfinite`, the result is a pair of 8-bit floats. Its source is an f16x2, or there are two float32
    sources, of which the first is converted to the upper half. Without `.satfinite`, a pair of 8-bit floats
    is converted to an f16x2.
    """
    # "e4m3" for `cvt.rn.satfinite.e4m3x2.f32`.
    name = next(_FLOAT8_TYPES[modifier] for modifier in mnemonic.modifiers if modifier in _FLOAT8_TYPES)
    ptx_type = mnemonic.type
    is_bf16x2 = ptx_type == PtxType("bf", 16, 2)
    source_count = 2 if ptx_type.elements == 1 and "satfinite" in mnemonic.modifiers else 1
    if (
        not {*mnemonic.modifiers} <= {"rn", "satfinite", "relu", *_FLOAT8_TYPES}
        or is_bf16x2
        or len(mnemonic.types) > 1
        or len(operands) != 1 + source_count
    ):
        raise UnsupportedInstruction
    element = ptx_type.element
    if "satfinite" in mnemonic.modifiers:
        # The lower half, which `join_bits` takes first, is the last source.
        bits = [b.read_operand(source, ptx_type.width) for source in reversed(operands[1:])]
        if ptx_type.elements > 1:
            bits = b.split_bits(bits[0], ptx_type.width, ptx_type.elements)
        decoded = [arithmetic.decode(b, element, part) for part in bits]
        values = [
            arithmetic.apply_modifiers(b, element, value, mnemonic.modifiers, ["relu"]) for value in decoded
        ]
        parts = [b.call(f"ptxlink.{name}.encode", "i8", f"float {value}") for value in values]
        b.write_register(operands[0], b.join_bits(parts, 8), 16)
        return
    bits = b.split_bits(b.read_operand(operands[1], 16), 16, 2)
    decoded = [b.call(f"ptxlink.{name}.decode", "float", f"i8 {part}") for part in bits]
    values = [
        arithmetic.apply_modifiers(b, element, value, mnemonic.modifiers, ["relu"]) for value in decoded
    ]
    parts = [arithmetic.encode(b, element, value) for value in values]
    b.write_register(operands[0], b.join_bits(parts, 16), 32)


def _convert_element(b: Translator, mnemonic: Mnemonic, bits: str) -> str:
    """Convert the source of `cvt` that has these *bits* to an element of the result; return its bits."""
    target, source = mnemonic.types[0].element, mnemonic.type
    modes = [flag for flag in mnemonic.modifiers if flag not in ("ftz", "sat", "relu")]
    if len(modes) > 1 or not {*modes} <= {*_ROUND_FUNCTIONS, *arithmetic.ROUNDING_MODES}:
        raise UnsupportedInstruction
    mode = modes[0] if modes else ""
    value = arithmetic.decode(b, source, bits)
    # A GPU ignores `.ftz` in conversions from and to f16, but obeys it in those from and to bf16.
    flush_modifiers = [] if _F16 in (target, source.element) else ["ftz"]
    if source.is_float:
        value = arithmetic.apply_modifiers(b, source, value, mnemonic.modifiers, flush_modifiers)
    if not target.is_float:
        return _convert_to_integer(b, mnemonic, value, mode)
    value = _convert_to_float(b, target, source, value, mode)
    applicable = ("sat", "relu", *flush_modifiers)
    value = arithmetic.apply_modifiers(b, target, value, mnemonic.modifiers, applicable)
    # `_convert_to_float` has applied a mode that rounds to an integer; `encode` then rounds to nearest.
    rounding = mode if mode in arithmetic.ROUNDING_MODES else "rn"
    result = arithmetic.encode(b, target, value, rounding)
    # On a GPU, `cvt.f16.f64` keeps part of a NaN; `encode` returns 0x7fff for each NaN.
    if (target, source) == (_F16, _F64) and _NAN_REPLACING_MODIFIERS.isdisjoint(mnemonic.modifiers):
        return _copy_nan_to_half(b, bits, result)
    return result


def _copy_nan_to_half(b: Translator, double_bits: str, half_bits: str) -> str:
    """
    Return *half_bits*; if the double is NaN, a quiet f16 NaN with the sign and upper payload of the double.

    The sign is moved from bit 63 to bit 15, and the payload in the bits 42 to 50 to the bits 0 to 8.
    """
    double = b.emit_value(f"bitcast i64 {double_bits} to double")
    sign = b.emit_op("and", "i64", b.emit_op("lshr", "i64", double_bits, 48), 1 << 15)
    payload = b.emit_op("and", "i64", b.emit_op("lshr", "i64", double_bits, 42), (1 << 9) - 1)
    nan = b.emit_op("or", "i64", b.emit_op("or", "i64", sign, payload), _QUIET_HALF_NAN)
    is_nan = b.emit_op("fcmp uno", "double", double, double)
    return b.select(is_nan, "i16", b.resize(nan, 64, 16), half_bits)


def _convert_to_integer(b: Translator, mnemonic: Mnemonic, value: str, mode: str) -> str:
    """
    Return a value as an integer of the target's type.

    A float is clamped to the range of the target. An integer is clamped if there is a modifier `.sat`, else
    truncated.
    """
    target, source = mnemonic.types
    if source.is_float:
        if mode not in _ROUND_FUNCTIONS:
            raise UnsupportedInstruction
        # NaN becomes 0, or only the highest bit if one of the types has 64 bits.
        return b.expand(
            "cvt.integer",
            value=value,
            ir=source.ir,
            raw=target.raw,
            suffix=source.suffix,
            rounding=_ROUND_FUNCTIONS[mode],
            letter="s" if target.is_signed else "u",
            nan_result=-(1 << (target.bits - 1)) if 64 in (source.bits, target.bits) else 0,
        )
    if "sat" not in mnemonic.modifiers:
        return b.resize(value, source.bits, target.bits, signed=source.is_signed)
    low = -(1 << (target.bits - 1)) if target.is_signed else 0
    high = (1 << (target.bits - target.is_signed)) - 1
    # Clamp in 128 bits, which hold all values of u64 and s64.
    wide = b.resize(value, source.bits, 128, signed=source.is_signed)
    return b.resize(b.expand("cvt.sat", value=wide, low=low, high=high), 128, target.bits)


def _convert_to_float(b: Translator, target: PtxType, source: PtxType, value: str, mode: str) -> str:
    """
    Return a value as a float of LLVM's type `target.ir`.

    Args:
        b: The function under construction.
        target: The type of the result. For a 16-bit float, the result is a float that `arithmetic.encode`
            rounds later.
        source: The type of the value.
        value: The value.
        mode: A modifier for rounding to an integer or a float, "" for none.
    """
    is_directed = mode in ("rz", "rm", "rp")
    if not source.is_float:
        return _integer_to_float(b, target, source, value, mode if is_directed else "")
    if mode in _ROUND_FUNCTIONS:
        value = b.call(f"llvm.{_ROUND_FUNCTIONS[mode]}.{source.suffix}", source.ir, f"{source.ir} {value}")
    if source.ir == target.ir:
        return value
    if target.ir == "double":
        return b.emit_value(f"fpext float {value} to double")
    if target.bits == 16:
        # After rounding to odd, the later rounding to 16 bits returns the same as rounding the double once.
        return b.call("ptxlink.round_to_odd", "float", f"double {value}")
    if is_directed:
        return arithmetic.emit_directed(b, "narrow", source, mode, [value], "float")
    return b.emit_value(f"fptrunc double {value} to float")


def _integer_to_float(b: Translator, target: PtxType, source: PtxType, value: str, rounding: str) -> str:
    """Return an integer as a float, rounded as "rz", "rm" or "rp" says, or to nearest if *rounding* is ""."""
    opcode = "sitofp" if source.is_signed else "uitofp"
    if rounding and target.bits == source.bits == 64:
        # The upper 53 bits (mask -2048) and the lower 11 bits (mask 2047) are exact as doubles, so that only
        # their sum is rounded.
        upper, lower = (b.emit_op("and", "i64", value, mask) for mask in (-2048, 2047))
        parts = [b.emit_value(f"{opcode} i64 {part} to double") for part in (upper, lower)]
        return arithmetic.emit_directed(b, "add", target, rounding, parts)
    if target.bits == 64 or not (rounding or target.bits == 16):
        return b.emit_value(f"{opcode} {source.raw} {value} to {target.ir}")
    if source.bits == 64:
        # Round to odd, so that rounding to a smaller float afterwards is correct. Integers that are exact in
        # a double stay as they are: *count* integers, of which the smallest is -negated_minimum.
        negated_minimum = _MAX_EXACT_INTEGER if source.is_signed else 0
        count = _MAX_EXACT_INTEGER + negated_minimum
        value = b.expand("cvt.round_to_odd", value=value, negated_minimum=negated_minimum, count=count)
    wide = b.emit_value(f"{opcode} {source.raw} {value} to double")
    if target.bits == 16:
        return b.call("ptxlink.round_to_odd", "float", f"double {wide}")
    return arithmetic.emit_directed(b, "narrow", _F64, rounding, [wide], "float")


REGISTER_HANDLERS = {
    **dict.fromkeys(("addc", "subc", "madc"), add_with_carry),
    "mov": move,
    **dict.fromkeys(("setp", "set"), compare),
    "selp": select_value,
    "slct": select_by_sign,
    "prmt": permute,
    "cvt": convert,
}
"""Handlers of instructions on registers that are not in the table of operations, by opcode."""
