"""
Translate matrix instructions: each thread of a warp has some elements of the matrices in its registers.

A thread writes its registers to memory, and the address of the memory to its ThreadRecord, where the other
threads read it. A second exchange ensures that all threads have read before one of them overwrites its
registers. The layouts are those of "Matrix Fragments for mma" in the PTX ISA.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx

from . import arithmetic
from .ir_builder import IRBuilder
from .memory import effective_address, region_pointer, report_access
from .mnemonics import UnsupportedInstruction
from .runtime import THREAD_RECORD_SIZE, Access, Fault, thread_field_offset
from .warps import exchange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .mnemonics import Mnemonic
    from .translator import Translator

ALL_LANES = "-1"
ELEMENT_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}
ACCUMULATORS = {"f16", "f32", "f64", "s32"}
_SHAPE = re.compile(r"m(8|16)n8k(\d+)")


class _Product(NamedTuple):
    """
    A matrix product of `mma`.

    Args:
        rows: The rows of the first matrix and of the result; the second one has 8 columns.
        depth: The columns of the first matrix, which are the rows of the second.
        a: The type of the first matrix's elements.
        b: The type of the second matrix's elements.
        c: The type of the matrix that is added.
        d: The type of the result.
        saturates: Whether integers are clamped.
    """

    rows: int
    depth: int
    a: str
    b: str
    c: str
    d: str
    saturates: bool

    @property
    def register_bytes(self) -> int:
        """The bytes of a register of the first two matrices."""
        return 8 if self.a == "f64" else 4

    @property
    def packed(self) -> int:
        """The number of elements in a register of the first two matrices."""
        return 8 * self.register_bytes // ELEMENT_BITS[self.a]

    @property
    def offsets(self) -> tuple[int, int, int]:
        """The bytes from the start of a thread's registers to the second matrix, the third, and the end."""
        # Four lanes share a row of the first matrix, and a column of the second.
        registers_per_line = -(-self.depth // (4 * self.packed))
        second = self.rows // 8 * registers_per_line * self.register_bytes
        third = second + registers_per_line * self.register_bytes
        # A lane has two elements of each eighth row of the result, with 8 bytes of room for each.
        return second, third, third + self.rows // 4 * 8

    @property
    def name(self) -> str:
        """The name of the function that computes the product."""
        types = f"{self.a}.{self.b}.{self.c}.{self.d}"
        return f"ptxlink.mma.m{self.rows}k{self.depth}.{types}{'.sat' if self.saturates else ''}"


def exchange_all(b: Translator, value: str) -> str:
    """Exchange values between all lanes of a warp; return the address of the first lane's ThreadRecord."""
    group, first_record = exchange(b, value, ALL_LANES)
    b.fault_unless(b.emit_op("icmp eq", "i32", group, -1), Fault.DEADLOCK)
    return first_record


def multiply(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `mma.sync`: D = A * B + C, without sparsity; floats are summed in double, then rounded."""
    product = _parse_product(mnemonic)
    second, third, end = product.offsets
    registers = b.alloca(f"[{end // 8 + 1} x i64]")
    size = product.register_bytes
    for operand, start, register_size in (
        (operands[1], 0, size),
        (operands[2], second, size),
        (operands[3], third, _accumulator_bytes(product.c)),
    ):
        for index, register in enumerate(ptx.elements(operand)):
            value = b.read_operand(register, 8 * register_size)
            b.store(f"i{8 * register_size}", value, registers, start + index * register_size)
    if product.name not in b.global_values:
        b.global_values[product.name] = _product_function(b.global_values, product)
    first_record = exchange_all(b, b.emit_value(f"ptrtoint ptr {registers} to i64"))
    b.emit(f"call void @{product.name}(ptr {first_record}, i32 {b.expand('%laneid')}, ptr {registers})")
    exchange(b, "0", ALL_LANES)
    size = _accumulator_bytes(product.d)
    for index, register in enumerate(ptx.elements(operands[0])):
        b.write_register(register, b.load(f"i{8 * size}", registers, third + index * size), 8 * size)


def _parse_product(mnemonic: Mnemonic) -> _Product:
    """
    Return the product of an instruction.

    Raises:
        UnsupportedInstruction: The matrices are sparse, of single bits, or laid out as for Volta.
    """
    flags = set(mnemonic.modifiers) - {"sync", "aligned", "row", "col", "satfinite", *ELEMENT_BITS}
    shape = _SHAPE.fullmatch(flags.pop()) if len(flags) == 1 else None
    names = [f"{ptx_type.letter}{ptx_type.bits}" for ptx_type in mnemonic.types]
    # Types that the PTX ISA has for matrices alone are parsed as modifiers.
    matrix_types = [flag for flag in mnemonic.modifiers if flag in ELEMENT_BITS]
    factors = matrix_types or names[1:-1]
    if (
        not shape
        or len(factors) != 2
        or not {*factors} <= ELEMENT_BITS.keys()
        or "row" not in mnemonic.modifiers
        or len(names) < 2
        or not {names[0], names[-1]} <= ACCUMULATORS
    ):
        raise UnsupportedInstruction
    rows, depth = int(shape[1]), int(shape[2])
    saturates = "satfinite" in mnemonic.modifiers
    product = _Product(rows, depth, a=factors[0], b=factors[1], c=names[-1], d=names[0], saturates=saturates)
    # `m8n8k4` of halves has the layout of Volta.
    if rows == 8 and product.packed == 2:
        raise UnsupportedInstruction
    return product


def _accumulator_bytes(kind: str) -> int:
    """Return the bytes of a register of the third matrix or of the result."""
    return 8 if kind == "f64" else 4


def _product_function(global_values: dict[str, str], product: _Product) -> str:
    """
    Return a function that computes the elements of the result that one lane has.

    A lane has the columns 2t and 2t + 1 of each eighth row, where t is the lane's number modulo 4. Four lanes
    share a row of the first matrix, and four lanes a column of the second.
    """
    f = IRBuilder(global_values)
    second, third, _ = product.offsets
    quad, lane_in_quad = f.emit_op("and", "i32", "%lane", -4), f.emit_op("and", "i32", "%lane", 3)
    row_holders = [registers_of(f, f.emit_op("add", "i32", quad, lane)) for lane in range(4)]
    columns = []
    for column in range(2):
        column_index = f.emit_op("add", "i32", f.emit_op("shl", "i32", lane_in_quad, 1), column)
        first_lane = f.emit_op("shl", "i32", column_index, 2)
        holders = [registers_of(f, f.emit_op("add", "i32", first_lane, lane)) for lane in range(4)]
        columns.append(_load_line(f, product, product.b, holders, second, 1, 0))
    results = []
    for block in range(product.rows // 8):
        row = _load_line(f, product, product.a, row_holders, 0, product.rows // 8, block)
        for column, elements in enumerate(columns):
            addend = _load_addend(f, product, third, 2 * block + column)
            pairs = zip(row, elements, strict=True)
            total = sum_of_products(f, product.d, pairs, addend, saturates=product.saturates)
            results.append(encode_sum(f, product.d, total))
    for position, result in enumerate(results):
        bits, offset = _accumulator_element(product.d, third, position)
        f.store(f"i{bits}", result, "%registers", offset)
    f.end_block("ret void")
    return f.to_text(f"internal void @{product.name}(ptr %first, i32 %lane, ptr %registers) noinline")


def registers_of(f: IRBuilder, lane: str) -> str:
    """Return the address of the registers of a lane, from its ThreadRecord."""
    record = f.emit_value(f"getelementptr [{THREAD_RECORD_SIZE} x i8], ptr %first, i32 {lane}")
    return f.load("ptr", record, thread_field_offset("seen"))


def _load_line(
    f: IRBuilder, product: _Product, kind: str, holders: Sequence[str], start: int, step: int, block: int
) -> list[str]:
    """
    Return the elements of a row of the first matrix or a column of the second, which four lanes share.

    Args:
        f: The function.
        product: The matrix product.
        kind: The type of the elements.
        holders: The addresses of the four lanes' registers.
        start: The offset of the matrix in a lane's registers, in bytes.
        step: The number of rows or columns of the matrix of which a lane has elements.
        block: The index of the row or column among these.
    """
    packed, bits = product.packed, ELEMENT_BITS[kind]
    elements = []
    for position in range(product.depth):
        register = block + step * (position // (4 * packed))
        offset = start + register * product.register_bytes + position % packed * bits // 8
        holder = holders[position // packed % 4]
        elements.append(decode_element(f, kind, f.load(f"i{bits}", holder, offset)))
    return elements


def decode_element(f: IRBuilder, kind: str, bits: str) -> str:
    """Return an element as a double, or as an integer of 32 bits."""
    if kind in ("s8", "u8"):
        return f.resize(bits, 8, 32, signed=kind == "s8")
    if kind == "s32":
        return bits
    if kind == "f64":
        return f.emit_value(f"bitcast i64 {bits} to double")
    if kind in ("f32", "tf32"):
        # Tensor cores ignore the lower 13 bits of a tf32.
        kept = f.emit_op("and", "i32", bits, -8192) if kind == "tf32" else bits
        value = f.emit_value(f"bitcast i32 {kept} to float")
    else:
        value = f.call(f"ptxlink.{kind}.decode", "float", f"i{ELEMENT_BITS[kind]} {bits}")
    return f.emit_value(f"fpext float {value} to double")


def _accumulator_element(kind: str, start: int, position: int) -> tuple[int, int]:
    """Return the width in bits of an element of the third matrix or the result, and its offset in bytes."""
    size = {"f16": 2, "f64": 8}.get(kind, 4)
    return 8 * size, start + position * size


def _load_addend(f: IRBuilder, product: _Product, start: int, position: int) -> str:
    bits, offset = _accumulator_element(product.c, start, position)
    return decode_element(f, product.c, f.load(f"i{bits}", "%registers", offset))


def sum_of_products(
    f: IRBuilder, kind: str, pairs: Iterable[tuple[str, str]], addend: str, *, saturates: bool
) -> str:
    """Return the sum of products and of the third matrix's element, in the types of `decode_element`."""
    if kind == "s32":
        total = "0"
        for factor_a, factor_b in pairs:
            total = f.emit_op("add", "i32", total, f.emit_op("mul", "i32", factor_a, factor_b))
        if saturates:
            return f.call("llvm.sadd.sat.i32", "i32", f"i32 {total}", f"i32 {addend}")
        return f.emit_op("add", "i32", total, addend)
    value = addend
    for factor_a, factor_b in pairs:
        factors = f"double {factor_a}", f"double {factor_b}"
        value = f.call("llvm.fma.f64", "double", *factors, f"double {value}")
    return value


def encode_sum(f: IRBuilder, kind: str, value: str) -> str:
    """Return the bits of an element of the result."""
    if kind == "s32":
        return value
    if kind == "f64":
        return f.emit_value(f"bitcast double {value} to i64")
    if kind == "f16":
        # Rounding to odd first: the second rounding then returns the same as a single one.
        odd = f.call("ptxlink.odd", "float", f"double {value}")
        return f.call("ptxlink.f16.encode", "i16", f"float {odd}", "i32 1")
    result = f.emit_value(f"fptrunc double {value} to float")
    return arithmetic.emit_gpu_nan(f, f.emit_value(f"bitcast float {result} to i32"))


def transpose(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `movmatrix`: the transpose of 8 rows of 8 halves; each lane has two neighbours of a row."""
    if set(mnemonic.modifiers) != {"sync", "aligned", "m8n8", "trans"}:
        raise UnsupportedInstruction
    value = b.resize(b.read_operand(operands[1], 32), 32, 64)
    first_record = exchange_all(b, value)
    lane = b.expand("%laneid")
    # Lane i has the columns 2(i % 4) and 2(i % 4) + 1 of row i / 4: element (row, column) is in lane
    # 4 row + column / 2. The result has the row i / 4 of the transpose: the column i / 4 of the matrix.
    column = b.emit_op("lshr", "i32", lane, 2)
    parts = []
    for part in range(2):
        row = b.emit_op("add", "i32", b.emit_op("shl", "i32", b.emit_op("and", "i32", lane, 3), 1), part)
        start = b.emit_op("shl", "i32", row, 2)
        holder = b.emit_op("add", "i32", start, b.emit_op("lshr", "i32", column, 1))
        record = b.emit_value(f"getelementptr [{THREAD_RECORD_SIZE} x i8], ptr {first_record}, i32 {holder}")
        shift = b.emit_op("shl", "i32", b.emit_op("and", "i32", column, 1), 4)
        moved = b.emit_op("lshr", "i32", b.load("i32", record, thread_field_offset("seen")), shift)
        parts.append(b.resize(moved, 32, 16))
    b.write_register(operands[0], b.join_bits(parts, 16), 32)


def load_matrices(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `ldmatrix`: one, two or four matrices of 8 rows of 8 halves from shared memory.

    The lanes 8i to 8i + 7 have the addresses of the rows of matrix i. Each lane gets two neighbours of a row,
    or with `.trans` of a column.
    """
    targets = ptx.elements(operands[0])
    _check_matrices(mnemonic, len(targets))
    first_record = _exchange_addresses(b, operands[1])
    row, column = _fragment_position(b)
    for number, target in enumerate(targets):
        if "trans" in mnemonic.modifiers:
            halves = []
            for part in range(2):
                start = _row_address(b, first_record, number, b.emit_op("add", "i32", column, part))
                address = b.emit_op("add", "i64", start, b.resize(b.emit_op("shl", "i32", row, 1), 32, 64))
                pointer = region_pointer(b, address, 2, write=False)
                report_access(b, pointer, 2, Access.READ)
                halves.append(b.emit_value(f"load i16, ptr {pointer}"))
            value = b.join_bits(halves, 16)
        else:
            pointer = region_pointer(b, _pair_address(b, first_record, number, row, column), 4, write=False)
            report_access(b, pointer, 4, Access.READ)
            value = b.emit_value(f"load i32, ptr {pointer}")
        b.write_register(target, value, 32)
    exchange(b, "0", ALL_LANES)


def store_matrices(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `stmatrix`: the inverse of `ldmatrix`."""
    sources = ptx.elements(operands[1])
    _check_matrices(mnemonic, len(sources))
    first_record = _exchange_addresses(b, operands[0])
    row, column = _fragment_position(b)
    for number, source in enumerate(sources):
        value = b.read_operand(source, 32)
        if "trans" in mnemonic.modifiers:
            for part, half in enumerate(b.split_bits(value, 32, 2)):
                start = _row_address(b, first_record, number, b.emit_op("add", "i32", column, part))
                address = b.emit_op("add", "i64", start, b.resize(b.emit_op("shl", "i32", row, 1), 32, 64))
                pointer = region_pointer(b, address, 2, write=True)
                report_access(b, pointer, 2, Access.WRITE, b.resize(half, 16, 64))
                b.emit(f"store i16 {half}, ptr {pointer}")
        else:
            pointer = region_pointer(b, _pair_address(b, first_record, number, row, column), 4, write=True)
            report_access(b, pointer, 4, Access.WRITE, b.resize(value, 32, 64))
            b.emit(f"store i32 {value}, ptr {pointer}")
    exchange(b, "0", ALL_LANES)


def _check_matrices(mnemonic: Mnemonic, count: int) -> None:
    """Raise UnsupportedInstruction for other matrices than those of 8 by 8 halves."""
    modifiers = {modifier.partition("::")[0] for modifier in mnemonic.modifiers} - {"trans"}
    is_known = modifiers == {"sync", "aligned", "m8n8", f"x{count}", "shared"}
    if not is_known or mnemonic.type.width != 16:
        raise UnsupportedInstruction


def _exchange_addresses(b: Translator, operand: str) -> str:
    """Exchange the generic addresses of rows; return the address of the first lane's ThreadRecord."""
    parsed = ptx.address(operand)
    if parsed is None:
        raise UnsupportedInstruction
    address = b.emit_op("add", "i64", effective_address(b, *parsed), b.load_context_field("shared_base"))
    return exchange_all(b, address)


def _fragment_position(b: Translator) -> tuple[str, str]:
    """Return the row of a lane in a matrix, and the first of its two columns."""
    lane = b.expand("%laneid")
    return b.emit_op("lshr", "i32", lane, 2), b.emit_op("shl", "i32", b.emit_op("and", "i32", lane, 3), 1)


def _row_address(b: Translator, first_record: str, number: int, row: str) -> str:
    """Return the address of a row of the matrix *number*, which lane 8 * number + row passed."""
    lane = b.emit_op("add", "i32", row, 8 * number)
    record = b.emit_value(f"getelementptr [{THREAD_RECORD_SIZE} x i8], ptr {first_record}, i32 {lane}")
    return b.load("i64", record, thread_field_offset("seen"))


def _pair_address(b: Translator, first_record: str, number: int, row: str, column: str) -> str:
    """Return the address of the two neighbouring halves of a row that begin at *column*."""
    start = _row_address(b, first_record, number, row)
    return b.emit_op("add", "i64", start, b.resize(b.emit_op("shl", "i32", column, 1), 32, 64))


MATRIX_HANDLERS = {
    "mma": multiply,
    "movmatrix": transpose,
    "ldmatrix": load_matrices,
    "stmatrix": store_matrices,
}
