"""
Translate `wmma`: matrices that a warp loads, multiplies and stores, in a layout that PTX does not define.

Here a matrix of n elements is divided by rows: lane i has n / 32 elements, from i * n / 32 on. If a fragment
has more registers, they repeat the elements, as on a GPU.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx

from .ir_builder import IRBuilder
from .matrices import (
    ACCUMULATORS,
    ALL_LANES,
    ELEMENT_BITS,
    decode_element,
    encode_sum,
    exchange_all,
    registers_of,
    sum_of_products,
)
from .memory import effective_address, region_pointer, report_access
from .mnemonics import UnsupportedInstruction
from .runtime import Access
from .warps import exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .mnemonics import Mnemonic
    from .translator import Translator

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_OPERAND_COUNTS = {"load": (2, 3), "store": (2, 3), "mma": (4,)}
_BITS = {**ELEMENT_BITS, "f32": 32, "s32": 32}


class _Matrix(NamedTuple):
    """
    A matrix of a warp.

    Args:
        rows: The number of rows.
        columns: The number of columns.
        kind: The type of the elements, such as "f16".
    """

    rows: int
    columns: int
    kind: str

    @property
    def bits(self) -> int:
        """The bits of an element."""
        return _BITS[self.kind]

    @property
    def register_bits(self) -> int:
        """The bits of a register."""
        return max(self.bits, 32)

    @property
    def lane_elements(self) -> int:
        """The number of elements of a lane."""
        return self.rows * self.columns // 32


def execute(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `wmma.load`, `wmma.store` and `wmma.mma`."""
    action, *modifiers = mnemonic.modifiers or [""]
    shape = next(filter(None, map(_SHAPE.fullmatch, modifiers)), None)
    if not shape:
        raise UnsupportedInstruction
    m, n, k = map(int, shape.groups())
    kinds = [f"{ptx_type.letter}{ptx_type.bits}" for ptx_type in mnemonic.types]
    kinds += [modifier for modifier in modifiers if modifier in ELEMENT_BITS]
    if not kinds or not {*kinds} <= _BITS.keys() or len(operands) not in _OPERAND_COUNTS.get(action, ()):
        raise UnsupportedInstruction
    if action == "mma":
        # The types of halves are those of the result and of the third matrix.
        factors = [kind for kind in kinds[1:] if kind in ELEMENT_BITS][:2]
        factors = ["f16", "f16"] if len(kinds) == 2 else factors
        third = next((kind for kind in reversed(kinds) if kind not in modifiers), "")
        if len(factors) < 2 or not {third, kinds[0]} <= ACCUMULATORS:
            raise UnsupportedInstruction
        matrices = [_Matrix(m, k, factors[0]), _Matrix(k, n, factors[1]), _Matrix(m, n, third)]
        _multiply(b, [*matrices, _Matrix(m, n, kinds[0])], operands, saturates="satfinite" in modifiers)
        return
    rows, columns = {"a": (m, k), "b": (k, n)}.get(modifiers[0], (m, n))
    matrix, by_rows = _Matrix(rows, columns, kinds[0]), "row" in modifiers
    if action == "load":
        _load(b, matrix, operands, _space(modifiers), by_rows=by_rows)
    else:
        _store(b, matrix, operands, _space(modifiers), by_rows=by_rows)


def _space(modifiers: Sequence[str]) -> str:
    names = {modifier.partition("::")[0] for modifier in modifiers}
    return "shared" if "shared" in names else "global" if "global" in names else ""


def _addresses(
    b: Translator, matrix: _Matrix, operand: str, stride: str, space: str, *, by_rows: bool
) -> list[str]:
    """Return the generic address of each element of a lane."""
    parsed = ptx.address(operand)
    if parsed is None:
        raise UnsupportedInstruction
    start = effective_address(b, *parsed)
    if space == "shared":
        start = b.emit_op("add", "i64", start, b.load_context_field("shared_base"))
    first = b.emit_op("mul", "i32", b.expand("%laneid"), matrix.lane_elements)
    addresses = []
    for number in range(matrix.lane_elements):
        element = b.emit_op("add", "i32", first, number)
        row, column = (b.emit_op(op, "i32", element, matrix.columns) for op in ("udiv", "urem"))
        line, position = (row, column) if by_rows else (column, row)
        index = b.emit_op("add", "i32", b.emit_op("mul", "i32", line, stride), position)
        distance = b.emit_op("mul", "i64", b.resize(index, 32, 64), matrix.bits // 8)
        addresses.append(b.emit_op("add", "i64", start, distance))
    return addresses


def _stride(b: Translator, matrix: _Matrix, operands: Sequence[str], *, by_rows: bool) -> str:
    """Return the number of elements from one row or column to the next."""
    if len(operands) > 2:
        return b.read_operand(operands[2], 32)
    return str(matrix.columns if by_rows else matrix.rows)


def _load(b: Translator, matrix: _Matrix, operands: Sequence[str], space: str, *, by_rows: bool) -> None:
    stride = _stride(b, matrix, operands, by_rows=by_rows)
    elements = []
    for address in _addresses(b, matrix, operands[1], stride, space, by_rows=by_rows):
        pointer = region_pointer(b, address, matrix.bits // 8, write=False)
        report_access(b, pointer, matrix.bits // 8, Access.READ)
        elements.append(b.emit_value(f"load i{matrix.bits}, ptr {pointer}"))
    targets, packed = ptx.elements(operands[0]), matrix.register_bits // matrix.bits
    # Wait until all lanes have loaded, so that no lane goes on and stores before.
    exchange(b, "0", ALL_LANES)
    for number, target in enumerate(targets):
        parts = [elements[(number * packed + part) % len(elements)] for part in range(packed)]
        b.write_register(target, b.join_bits(parts, matrix.bits), matrix.register_bits)


def _store(b: Translator, matrix: _Matrix, operands: Sequence[str], space: str, *, by_rows: bool) -> None:
    stride = _stride(b, matrix, operands, by_rows=by_rows)
    packed, elements = matrix.register_bits // matrix.bits, list[str]()
    for source in ptx.elements(operands[1]):
        value = b.read_operand(source, matrix.register_bits)
        elements += b.split_bits(value, matrix.register_bits, packed)
    addresses = _addresses(b, matrix, operands[0], stride, space, by_rows=by_rows)
    for address, element in zip(addresses, elements, strict=False):
        pointer = region_pointer(b, address, matrix.bits // 8, write=True)
        report_access(b, pointer, matrix.bits // 8, Access.WRITE, b.resize(element, matrix.bits, 64))
        b.emit(f"store i{matrix.bits} {element}, ptr {pointer}")
    exchange(b, "0", ALL_LANES)


def _multiply(
    b: Translator, matrices: Sequence[_Matrix], operands: Sequence[str], *, saturates: bool
) -> None:
    """Translate `wmma.mma`: D = A * B + C, for *matrices* A, B, C and D."""
    *sources, result = matrices
    offsets, end = [], 0
    for matrix in sources:
        offsets.append(end)
        end += -(-matrix.lane_elements * matrix.bits // 64) * 8
    registers = b.alloca(f"[{(end + result.lane_elements * 8) // 8} x i64]")
    for matrix, operand, offset in zip(sources, operands[1:], offsets, strict=True):
        size = matrix.register_bits // 8
        count = -(-matrix.lane_elements * matrix.bits // matrix.register_bits)
        for number, register in enumerate(ptx.elements(operand)[:count]):
            value = b.read_operand(register, 8 * size)
            b.store(f"i{8 * size}", value, registers, offset + number * size)
    name = "ptxlink.wmma." + ".".join(f"{m.rows}x{m.columns}.{m.kind}" for m in matrices)
    name += ".sat" * saturates
    if name not in b.global_values:
        b.global_values[name] = _product_function(
            b.global_values, name, matrices, [*offsets, end], saturates=saturates
        )
    first = exchange_all(b, b.emit_value(f"ptrtoint ptr {registers} to i64"))
    b.emit(f"call void @{name}(ptr {first}, i32 {b.expand('%laneid')}, ptr {registers})")
    exchange(b, "0", ALL_LANES)
    for number, target in enumerate(ptx.elements(operands[0])):
        size = result.register_bits // 8
        b.write_register(target, b.load(f"i{8 * size}", registers, end + number * size), 8 * size)


def _product_function(
    global_values: dict[str, str],
    name: str,
    matrices: Sequence[_Matrix],
    offsets: Sequence[int],
    *,
    saturates: bool,
) -> str:
    """Return a function that computes the elements of the result that one lane has."""
    f = IRBuilder(global_values)
    a, b, c, d = matrices
    start = f.emit_op("mul", "i32", "%lane", d.lane_elements)
    for number in range(d.lane_elements):
        element = f.emit_op("add", "i32", start, number)
        row, column = (f.emit_op(op, "i32", element, d.columns) for op in ("udiv", "urem"))
        pairs = []
        for depth in range(a.columns):
            one = f.emit_op("add", "i32", f.emit_op("mul", "i32", row, a.columns), depth)
            two = f.emit_op("add", "i32", column, depth * b.columns)
            pairs.append((_load_element(f, a, one, offsets[0]), _load_element(f, b, two, offsets[1])))
        addend = decode_element(
            f, c.kind, f.load(f"i{c.bits}", "%registers", offsets[2] + number * c.bits // 8)
        )
        total = sum_of_products(f, d.kind, pairs, addend, saturates=saturates)
        f.store(f"i{d.bits}", encode_sum(f, d.kind, total), "%registers", offsets[3] + number * d.bits // 8)
    f.end_block("ret void")
    return f.to_text(f"internal void @{name}(ptr %first, i32 %lane, ptr %registers) noinline")


def _load_element(f: IRBuilder, matrix: _Matrix, index: str, offset: int) -> str:
    """Return an element of a matrix by its number, from the registers of its lane."""
    lane, slot = (f.emit_op(op, "i32", index, matrix.lane_elements) for op in ("udiv", "urem"))
    distance = f.emit_op("mul", "i32", slot, matrix.bits // 8)
    pointer = f.emit_value(f"getelementptr i8, ptr {registers_of(f, lane)}, i32 {distance}")
    return decode_element(f, matrix.kind, f.load(f"i{matrix.bits}", pointer, offset))


WARP_MATRIX_HANDLERS = {"wmma": execute}
