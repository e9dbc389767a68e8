"""
Translate `wmma`: matrices that a warp loads, multiplies and stores, in a layout that PTX does not define.

Here each lane has n / 32 elements of a matrix of n elements. They are numbered along the rows: lane 0 has the
first n / 32 elements, lane 1 the next ones. If an instruction names more registers for a matrix than a lane's
elements fill, the registers after these repeat the elements, as on a GPU.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx

from .ir_builder import IRBuilder
from .matrices import (
    ACCUMULATOR_TYPES,
    ALL_LANES,
    FACTOR_BITS,
    decode_element,
    encode_sum,
    exchange_all,
    registers_of,
    sum_of_products,
)
from .memory import effective_address, region_pointer, report_access
from .mnemonics import UnsupportedInstruction
from .runtime import WARP_SIZE, Access
from .warps import exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .mnemonics import Mnemonic
    from .translator import Translator

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")  # Such as m16n16k16.
# The numbers of operands of `wmma.load` and so on; the stride, the last of a load or a store, may be missing.
_OPERAND_COUNTS = {"load": (2, 3), "store": (2, 3), "mma": (4,)}
_ELEMENT_BITS = {**FACTOR_BITS, "f32": 32, "s32": 32}


class _Matrix(NamedTuple):
    """
    A matrix whose elements are divided among the 32 lanes of a warp.

    Args:
        rows: The number of rows.
        columns: The number of columns.
        element_type: The type of the elements, such as "f16".
    """

    rows: int
    columns: int
    element_type: str

    @property
    def bits(self) -> int:
        """The bits of an element."""
        return _ELEMENT_BITS[self.element_type]

    @property
    def register_bits(self) -> int:
        """The bits of a register, which has one element or several: 32, or 64 for an f64."""
        return max(self.bits, 32)

    @property
    def register_elements(self) -> int:
        """The number of elements in a register."""
        return self.register_bits // self.bits

    @property
    def lane_elements(self) -> int:
        """The number of elements of a lane."""
        return self.rows * self.columns // WARP_SIZE


def execute(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `wmma.load`, `wmma.store` and `wmma.mma`."""
    # `wmma.load.a.sync.aligned.row.m16n16k16.f16` has the action "load", and then the matrix "a".
    action, *modifiers = mnemonic.modifiers or [""]
    shape = next(filter(None, map(_SHAPE.fullmatch, modifiers)), None)
    if not shape:
        raise UnsupportedInstruction
    m, n, k = map(int, shape.groups())
    element_types = [f"{ptx_type.letter}{ptx_type.bits}" for ptx_type in mnemonic.types]
    # Types that only matrices have, such as tf32, are parsed as modifiers.
    element_types += [modifier for modifier in modifiers if modifier in FACTOR_BITS]
    has_known_types = element_types and {*element_types} <= _ELEMENT_BITS.keys()
    if not has_known_types or len(operands) not in _OPERAND_COUNTS.get(action, ()):
        raise UnsupportedInstruction
    if action == "mma":
        matrices = _parse_matrices(modifiers, element_types, (m, n, k))
        _multiply(b, matrices, operands, saturates="satfinite" in modifiers)
        return
    # C and D have m rows and n columns.
    rows, columns = {"a": (m, k), "b": (k, n)}.get(modifiers[0], (m, n))
    matrix, by_rows = _Matrix(rows, columns, element_types[0]), "row" in modifiers
    is_shared = "shared" in {modifier.partition("::")[0] for modifier in modifiers}
    if action == "load":
        _load(b, matrix, operands, is_shared=is_shared, by_rows=by_rows)
    else:
        _store(b, matrix, operands, is_shared=is_shared, by_rows=by_rows)


def _parse_matrices(
    modifiers: Sequence[str], element_types: Sequence[str], shape: tuple[int, int, int]
) -> list[_Matrix]:
    """
    Return the matrices A, B, C and D of `wmma.mma`, which computes D = A * B + C.

    Args:
        modifiers: The modifiers of the instruction.
        element_types: The types of D, A, B and C, in this order. If those of A and B are types that only
            matrices have, such as tf32, they are the last: D, C, A, B. If A and B are of f16, the
            instruction does not name their types, as `wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32`, and
            the list is D, C.
        shape: The numbers of rows of D, columns of D, and columns of A.
    """
    m, n, k = shape
    factor_types = [element_type for element_type in element_types[1:] if element_type in FACTOR_BITS][:2]
    factor_types = ["f16", "f16"] if len(element_types) == 2 else factor_types
    d_type = element_types[0]
    # The type of C is the last of the list that is no modifier: A and B alone have types that are modifiers.
    c_type = next((candidate for candidate in reversed(element_types) if candidate not in modifiers), "")
    if len(factor_types) < 2 or not {c_type, d_type} <= ACCUMULATOR_TYPES:
        raise UnsupportedInstruction
    factors = [_Matrix(m, k, factor_types[0]), _Matrix(k, n, factor_types[1])]
    return [*factors, _Matrix(m, n, c_type), _Matrix(m, n, d_type)]


def _element_addresses(
    b: Translator, matrix: _Matrix, operand: str, stride: str, *, is_shared: bool, by_rows: bool
) -> list[str]:
    """
    Return the host address of each element of this lane.

    Args:
        b: The function under construction.
        matrix: The matrix.
        operand: The operand with the address of the matrix.
        stride: The number of elements from one row to the next if *by_rows*, else from one column to the
            next.
        is_shared: Whether *operand* is an address of the shared state space, and not a generic address.
        by_rows: Whether the elements of a row are neighbours in memory (`.row`), and not those of a column.
    """
    parsed = ptx.address(operand)
    if parsed is None:
        raise UnsupportedInstruction
    start = effective_address(b, *parsed)
    if is_shared:
        start = b.emit_op("add", "i64", start, b.load_context_field("shared_base"))
    lane_start = b.emit_op("mul", "i32", b.expand("%laneid"), matrix.lane_elements)
    addresses = []
    for index in range(matrix.lane_elements):
        number = b.emit_op("add", "i32", lane_start, index)
        row, column = (b.emit_op(op, "i32", number, matrix.columns) for op in ("udiv", "urem"))
        # A line is a row or a column whose elements are neighbours in memory.
        line, position = (row, column) if by_rows else (column, row)
        # In elements: the stride for each line before this one, and the position in the line.
        distance = b.emit_op("add", "i32", b.emit_op("mul", "i32", line, stride), position)
        offset = b.emit_op("mul", "i64", b.resize(distance, 32, 64), matrix.bits // 8)
        addresses.append(b.emit_op("add", "i64", start, offset))
    return addresses


def _stride(b: Translator, matrix: _Matrix, operands: Sequence[str], *, by_rows: bool) -> str:
    """Return the stride; without such an operand, the rows or columns follow each other without gaps."""
    if len(operands) > 2:
        return b.read_operand(operands[2], 32)
    return str(matrix.columns if by_rows else matrix.rows)


def _load(b: Translator, matrix: _Matrix, operands: Sequence[str], *, is_shared: bool, by_rows: bool) -> None:
    """Translate `wmma.load`; see `_element_addresses` for the arguments."""
    stride = _stride(b, matrix, operands, by_rows=by_rows)
    elements = []
    for address in _element_addresses(b, matrix, operands[1], stride, is_shared=is_shared, by_rows=by_rows):
        pointer = region_pointer(b, address, matrix.bits // 8, write=False)
        report_access(b, pointer, matrix.bits // 8, Access.READ)
        elements.append(b.emit_value(f"load i{matrix.bits}, ptr {pointer}"))
    # Wait until all lanes have loaded, since code after this instruction may store to the matrix.
    exchange(b, "0", ALL_LANES)
    repeated = itertools.cycle(elements)
    for target in ptx.split_vector(operands[0]):
        parts = list(itertools.islice(repeated, matrix.register_elements))
        b.write_register(target, b.join_bits(parts, matrix.bits), matrix.register_bits)


def _store(
    b: Translator, matrix: _Matrix, operands: Sequence[str], *, is_shared: bool, by_rows: bool
) -> None:
    """Translate `wmma.store`; see `_element_addresses` for the arguments."""
    stride = _stride(b, matrix, operands, by_rows=by_rows)
    elements = list[str]()
    for source in ptx.split_vector(operands[1]):
        value = b.read_operand(source, matrix.register_bits)
        elements += b.split_bits(value, matrix.register_bits, matrix.register_elements)
    addresses = _element_addresses(b, matrix, operands[0], stride, is_shared=is_shared, by_rows=by_rows)
    # Elements after those of the lane are repetitions, and have no address.
    for address, element in zip(addresses, elements, strict=False):
        pointer = region_pointer(b, address, matrix.bits // 8, write=True)
        report_access(b, pointer, matrix.bits // 8, Access.WRITE, b.resize(element, matrix.bits, 64))
        b.emit(f"store i{matrix.bits} {element}, ptr {pointer}")
    # Wait until all lanes have stored, since code after this instruction may load the matrix.
    exchange(b, "0", ALL_LANES)


def _multiply(
    b: Translator, matrices: Sequence[_Matrix], operands: Sequence[str], *, saturates: bool
) -> None:
    """Translate `wmma.mma`: D = A * B + C, for *matrices* A, B, C and D."""
    *sources, result = matrices
    # A copy of the lane's registers is in memory, where other lanes read it: A, B, C, and room for D with 8
    # bytes for each element, which is enough for all types. Each matrix begins at a multiple of 8 bytes.
    offsets, end = [], 0
    for matrix in sources:
        offsets.append(end)
        end += -(-matrix.lane_elements * matrix.bits // 64) * 8
    result_offset = end
    registers = b.alloca(f"[{result_offset // 8 + result.lane_elements} x i64]")
    for matrix, operand, offset in zip(sources, operands[1:], offsets, strict=True):
        size = matrix.register_bits // 8
        # Later registers repeat elements.
        register_count = -(-matrix.lane_elements * matrix.bits // matrix.register_bits)
        for index, register in enumerate(ptx.split_vector(operand)[:register_count]):
            value = b.read_operand(register, 8 * size)
            b.store(f"i{8 * size}", value, registers, offset + index * size)
    name = "ptxlink.wmma." + ".".join(f"{m.rows}x{m.columns}.{m.element_type}" for m in matrices)
    name += ".sat" * saturates
    if name not in b.global_values:
        b.global_values[name] = _product_function(
            b.global_values, name, matrices, [*offsets, result_offset], saturates=saturates
        )
    # Pass the address of the copy to the other lanes. Each lane finds all copies by the first lane's record.
    first_record = exchange_all(b, b.emit_value(f"ptrtoint ptr {registers} to i64"))
    b.emit(f"call void @{name}(ptr {first_record}, i32 {b.expand('%laneid')}, ptr {registers})")
    # Other lanes may still read this lane's copy: wait for them.
    exchange(b, "0", ALL_LANES)
    for index, target in enumerate(ptx.split_vector(operands[0])):
        size = result.register_bits // 8
        b.write_register(target, b.load(f"i{8 * size}", registers, result_offset + index * size), 8 * size)


def _product_function(
    global_values: dict[str, str],
    name: str,
    matrices: Sequence[_Matrix],
    offsets: Sequence[int],
    *,
    saturates: bool,
) -> str:
    """
    Return an LLVM function that computes the elements of D that one lane has.

    Args:
        global_values: Definitions and declarations of the LLVM module, by name.
        name: The name of the function.
        matrices: A, B, C and D.
        offsets: The offset in bytes of each matrix in the copy of a lane's registers.
        saturates: Whether integer sums are clamped.
    """
    f = IRBuilder(global_values)
    factor_a, factor_b, addend, result = matrices
    a_offset, b_offset, c_offset, d_offset = offsets
    lane_start = f.emit_op("mul", "i32", "%lane", result.lane_elements)
    for index in range(result.lane_elements):
        # The number of the element of D, which is counted along the rows, and its row and column.
        number = f.emit_op("add", "i32", lane_start, index)
        row, column = (f.emit_op(op, "i32", number, result.columns) for op in ("udiv", "urem"))
        pairs = []
        for depth in range(factor_a.columns):
            a_number = f.emit_op("add", "i32", f.emit_op("mul", "i32", row, factor_a.columns), depth)
            b_number = f.emit_op("add", "i32", column, depth * factor_b.columns)
            a_element = _load_element(f, factor_a, a_number, a_offset)
            pairs.append((a_element, _load_element(f, factor_b, b_number, b_offset)))
        c_bits = f.load(f"i{addend.bits}", "%registers", c_offset + index * addend.bits // 8)
        c_element = decode_element(f, addend.element_type, c_bits)
        total = sum_of_products(f, result.element_type, pairs, c_element, saturates=saturates)
        d_bits = encode_sum(f, result.element_type, total)
        f.store(f"i{result.bits}", d_bits, "%registers", d_offset + index * result.bits // 8)
    f.end_block("ret void")
    return f.to_text(f"internal void @{name}(ptr %first_record, i32 %lane, ptr %registers) noinline")


def _load_element(f: IRBuilder, matrix: _Matrix, number: str, matrix_offset: int) -> str:
    """Return the value of the element *number*, from the copy of the registers of the lane that has it."""
    lane, index = (f.emit_op(op, "i32", number, matrix.lane_elements) for op in ("udiv", "urem"))
    offset = f.emit_op("mul", "i32", index, matrix.bits // 8)
    registers = registers_of(f, "%first_record", lane)
    pointer = f.emit_value(f"getelementptr i8, ptr {registers}, i32 {offset}")
    return decode_element(f, matrix.element_type, f.load(f"i{matrix.bits}", pointer, matrix_offset))


WARP_MATRIX_HANDLERS = {"wmma": execute}
