"""Instructions on registers: operands become values, the table computes, and results are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import arithmetic
from .ir_builder import PRED, U32, Mnemonic, PtxType, UnsupportedInstruction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .translator import Translator

_ONES = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000, "f64": 0x3FF << 52}
_PREDICATE_OPERATIONS = {"and", "or", "xor"}
# Whole numbers up to this one are exact in a double.
_MAX_EXACT_INTEGER = 1 << 53
_ROUND_FUNCTIONS = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _operand_type(letter: str, mnemonic: Mnemonic) -> PtxType:
    """Return the type that a letter of the table stands for."""
    if letter == "w":
        return PtxType(mnemonic.type.letter, mnemonic.type.bits * 2)
    return {"u": U32, "p": PRED}.get(letter, mnemonic.type)


def compute(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Execute an instruction of the table."""
    if "cc" in mnemonic.modifiers:
        add_with_carry(b, mnemonic, operands)
        return
    operation = arithmetic.find_operation(mnemonic)
    sources = operation.sources.ljust(len(operands) - 1, operation.sources[-1])
    widths = [_operand_type(letter, mnemonic).width for letter in sources]
    values = [b.read_operand(each, width) for each, width in zip(operands[1:], widths, strict=False)]
    kind = _operand_type(operation.result, mnemonic)
    b.write_register(
        operands[0], arithmetic.emit_arithmetic(b, mnemonic, values), kind.width, signed=kind.is_signed
    )


def add_with_carry(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Execute one that reads the carry, or sets it."""
    kind, wide = mnemonic.type, mnemonic.type.bits + 1
    values = [b.read_operand(each, kind.bits) for each in operands[1:]]
    if mnemonic.opcode.startswith("mad"):
        values = [
            arithmetic.emit_arithmetic(
                b, Mnemonic("mul", mnemonic.modifiers[:1], mnemonic.types), values[:2]
            ),
            values[2],
        ]
    subtracts = mnemonic.opcode.startswith("sub")
    if subtracts:
        # A device adds the complement and one: the flag is set where there is no borrow.
        values[1] = b.emit_op("xor", f"i{kind.bits}", values[1], -1)
    result = b.emit_op("add", f"i{wide}", *(b.resize(each, kind.bits, wide) for each in values))
    if mnemonic.opcode.endswith("c"):
        carry = b.resize(b.emit_value(f"load i1, ptr {b.carry_flag}"), 1, wide)
        result = b.emit_op("add", f"i{wide}", result, carry)
    elif subtracts:
        result = b.emit_op("add", f"i{wide}", result, 1)
    if "cc" in mnemonic.modifiers:
        out = b.resize(b.emit_op("lshr", f"i{wide}", result, kind.bits), wide, 1)
        b.emit(f"store i1 {out}, ptr {b.carry_flag}")
    b.write_register(operands[0], b.resize(result, wide, kind.bits), kind.bits)


def move(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`mov`: a value, the address of a variable, or the parts of a register."""
    target, source = operands
    bits = mnemonic.type.width
    targets, sources = ptx.elements(target), ptx.elements(source)
    if len(sources) > 1:
        size = bits // len(sources)
        value = b.join_bits([b.read_operand(part, size) for part in sources], size)
    else:
        value = b.read_operand(source, bits)
    for part, piece in zip(targets, b.split_bits(value, bits, len(targets)), strict=True):
        b.write_register(part, piece, bits // len(targets), signed=mnemonic.type.is_signed)


def compare(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`setp` and `set`: one or two comparisons, combined with a predicate."""
    kind = mnemonic.type
    modifiers = [flag for flag in mnemonic.modifiers if flag not in _PREDICATE_OPERATIONS]
    single = Mnemonic("setp", tuple(modifiers), (kind.element,))
    columns = [
        b.split_bits(b.read_operand(each, kind.width), kind.width, kind.elements) for each in operands[1:3]
    ]
    results = [arithmetic.emit_arithmetic(b, single, pair) for pair in zip(*columns, strict=True)]
    targets = [each.strip() for each in operands[0].split("|")]
    if kind.elements == 1 and len(targets) > 1:
        results.append(b.emit_op("xor", "i1", results[0], "true"))
    for flag in _PREDICATE_OPERATIONS.intersection(mnemonic.modifiers):
        other = b.read_operand(operands[3], 1)
        results = [b.emit_op(flag, "i1", each, other) for each in results]
    if mnemonic.opcode == "setp":
        for target, result in zip(targets, results, strict=False):
            b.write_register(target, result, 1)
        return
    # Ones or 1.0 for what holds.
    kind = mnemonic.types[0]
    bits = kind.width // len(results)
    ones = str(_ONES[f"{kind.letter}{kind.bits}"]) if kind.is_float else "-1"
    parts = [b.select(each, f"i{bits}", ones, "0") for each in results]
    b.write_register(targets[0], b.join_bits(parts, bits), kind.width)


def select_value(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`selp`."""
    bits = mnemonic.type.width
    one, two = (b.read_operand(each, bits) for each in operands[1:3])
    b.write_register(operands[0], b.select(b.read_operand(operands[3], 1), f"i{bits}", one, two), bits)


def convert(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`cvt`; of two operands the first comes above the second."""
    target, source = mnemonic.types
    if source.elements > 1 or len(operands) != target.elements + 1:
        raise UnsupportedInstruction
    parts = [_convert_element(b, mnemonic, b.read_operand(each, source.bits)) for each in operands[:0:-1]]
    b.write_register(operands[0], b.join_bits(parts, target.bits), target.width, signed=target.is_signed)


def _convert_element(b: Translator, mnemonic: Mnemonic, bits: str) -> str:
    """Return the bits of an element in another type."""
    target, source = mnemonic.types[0].element, mnemonic.type
    rounding = [flag for flag in mnemonic.modifiers if flag not in ("ftz", "sat", "relu")]
    if len(rounding) > 1 or not {*rounding} <= {*_ROUND_FUNCTIONS, *arithmetic.ROUNDING_MODES}:
        raise UnsupportedInstruction
    mode = rounding[0] if rounding else ""
    value = arithmetic.decode(b, source, bits)
    # From a half, and to one, a device keeps numbers that are not normal; with bfloat16 it does not.
    flush = [] if ("f", 16) in [(each.letter, each.bits) for each in (target, source)] else ["ftz"]
    if source.is_float:
        value = arithmetic.apply_modifiers(b, source, value, mnemonic.modifiers, flush)
    if not target.is_float:
        return _convert_to_integer(b, mnemonic, value, mode)
    value = _convert_to_float(b, target, source, value, mode)
    value = arithmetic.apply_modifiers(b, target, value, mnemonic.modifiers, ("sat", "relu", *flush))
    return arithmetic.encode(b, target, value, mode if mode in arithmetic.ROUNDING_MODES else "rn")


def _convert_to_integer(b: Translator, mnemonic: Mnemonic, value: str, mode: str) -> str:
    """Return an integer; of a float, and for ".sat", the nearest that there is."""
    target, source = mnemonic.types
    if source.is_float:
        return b.expand(
            "cvt.integer",
            value=value,
            ir=source.ir,
            raw=target.raw,
            suffix=source.suffix,
            rounded=_ROUND_FUNCTIONS[mode],
            letter="s" if target.is_signed else "u",
            no_number=-(1 << (target.bits - 1)) if 64 in (source.bits, target.bits) else 0,
        )
    if "sat" not in mnemonic.modifiers:
        return b.resize(value, source.bits, target.bits, signed=source.is_signed)
    low = -(1 << (target.bits - 1)) if target.is_signed else 0
    high = (1 << (target.bits - target.is_signed)) - 1
    wide = b.resize(value, source.bits, 128, signed=source.is_signed)
    return b.resize(b.expand("cvt.sat", value=wide, low=low, high=high), 128, target.bits)


def _convert_to_float(b: Translator, target: PtxType, source: PtxType, value: str, mode: str) -> str:
    """Return a float in the type that is computed with for *target*."""
    is_directed = mode in ("rz", "rm", "rp")
    if not source.is_float:
        opcode = "sitofp" if source.is_signed else "uitofp"
        if target.bits == 16:
            # On its way to a half, the last bit tells whether there is more.
            if source.bits == 64:
                least = _MAX_EXACT_INTEGER if source.is_signed else 0
                value = b.expand("cvt.kept", value=value, least=least, count=_MAX_EXACT_INTEGER + least)
            wide = b.emit_value(f"{opcode} {source.raw} {value} to double")
            return b.call("ptxlink.odd", "float", f"double {wide}")
        if is_directed:
            return arithmetic.emit_directed(b, opcode, target.ir, mode, source.raw, value)
        return b.emit_value(f"{opcode} {source.raw} {value} to {target.ir}")
    if mode in _ROUND_FUNCTIONS:
        value = b.call(f"llvm.{_ROUND_FUNCTIONS[mode]}.{source.suffix}", source.ir, f"{source.ir} {value}")
    if source.ir == target.ir:
        return value
    if target.ir == "double":
        return b.emit_value(f"fpext float {value} to double")
    if target.bits == 16:
        return b.call("ptxlink.odd", "float", f"double {value}")
    if is_directed:
        return arithmetic.emit_directed(b, "fptrunc", "float", mode, "double", value)
    return b.emit_value(f"fptrunc double {value} to float")


REGISTER_HANDLERS = {
    **dict.fromkeys(("addc", "subc", "madc"), add_with_carry),
    "mov": move,
    **dict.fromkeys(("setp", "set"), compare),
    "selp": select_value,
    "cvt": convert,
}
"""What is no arithmetic of the table."""
