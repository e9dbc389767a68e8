"""
Translate matrix instructions: each lane of a warp has some elements of the matrices in its registers.

For `mma`, each lane copies its registers to memory, gets the addresses of the copies of all lanes by an
exchange (warps.py), and computes its elements of the result. A second exchange makes each lane wait until all
have read its copy. The layouts are those of "Matrix Fragments for mma" in the PTX ISA. In names and comments,
a half is an element of 16 bits.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx

from . import arithmetic
from .ir_builder import IRBuilder
from .memory import effective_address, region_pointer, report_access
from .mnemonics import UnsupportedInstruction
from .runtime import Access, Fault
from .warps import exchange, load_lane_operand

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .mnemonics import Mnemonic
    from .translator import Translator

ALL_LANES = "-1"  # The mask of all 32 lanes of a warp, as an operand of PTX.
# The bits of an element of the factors A and B, by its type.
FACTOR_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}
ACCUMULATOR_TYPES = {"f16", "f32", "f64", "s32"}  # The element types of the addend C and of the result D.
_SHAPE = re.compile(r"m(8|16)n8k(\d+)")  # Such as m16n8k16.
_FRAGMENT_BYTES = 4  # A lane has two halves of each matrix of `ldmatrix` and `stmatrix`.


class _Product(NamedTuple):
    """
    The product D = A * B + C of `mma`.

    Args:
        rows: The rows of A, C and D; B, C and D have 8 columns.
        depth: The columns of A, which are also the rows of B.
        a_type: The type of A's elements.
        b_type: The type of B's elements.
        c_type: The type of C's elements.
        d_type: The type of D's elements.
        saturates: Whether integer sums are clamped to the range of s32.
    """

    rows: int
    depth: int
    a_type: str
    b_type: str
    c_type: str
    d_type: str
    saturates: bool

    @property
    def register_bytes(self) -> int:
        """The size in bytes of a register with elements of A or B."""
        return 8 if self.a_type == "f64" else 4

    @property
    def register_elements(self) -> int:
        """The number of elements of A or B in a register."""
        return 8 * self.register_bytes // FACTOR_BITS[self.a_type]

    @property
    def lane_rows(self) -> int:
        """The number of rows of A, C or D of which a lane has elements: lane 0 has the rows 0 and 8 of 16."""
        return self.rows // 8

    @property
    def offsets(self) -> tuple[int, int, int]:
        """
        The offset of B, the offset of C, and the end of C, in bytes.

        The copy of a lane's registers has the lane's elements of A, B and C, in this order.
        """
        # Four lanes share a row of A, and four lanes a column of B. A lane has elements of one column of B.
        registers_per_line = -(-self.depth // (4 * self.register_elements))
        b_offset = self.lane_rows * registers_per_line * self.register_bytes
        c_offset = b_offset + registers_per_line * self.register_bytes
        # D later replaces C. Of each of its rows of C, a lane has two elements of at most 8 bytes.
        return b_offset, c_offset, c_offset + self.lane_rows * 2 * 8

    @property
    def name(self) -> str:
        """The name of the function that computes the product."""
        types = f"{self.a_type}.{self.b_type}.{self.c_type}.{self.d_type}"
        return f"ptxlink.mma.m{self.rows}k{self.depth}.{types}{'.sat' if self.saturates else ''}"


def exchange_all(b: Translator, value: str) -> str:
    """Exchange values between all 32 lanes of a warp; return the address of the ThreadRecord of lane 0."""
    group, first_record = exchange(b, value, ALL_LANES)
    # Fault if a lane of the warp is missing or has exited: on a GPU, the instruction would not return.
    b.fault_unless(b.emit_op("icmp eq", "i32", group, -1), Fault.DEADLOCK)
    return first_record


def multiply(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `mma.sync` without sparsity. Floats are summed in double precision, and then rounded."""
    product = _parse_product(mnemonic)
    b_offset, c_offset, end = product.offsets
    # The copy of the lane's registers. Its size is rounded up to words of 64 bits, for their alignment.
    registers = b.alloca(f"[{end // 8 + 1} x i64]")
    # Copy A, B and C; the first operand is D.
    for operand, offset, register_bytes in (
        (operands[1], 0, product.register_bytes),
        (operands[2], b_offset, product.register_bytes),
        (operands[3], c_offset, _accumulator_register_bytes(product.c_type)),
    ):
        for index, register in enumerate(ptx.split_vector(operand)):
            value = b.read_operand(register, 8 * register_bytes)
            b.store(f"i{8 * register_bytes}", value, registers, offset + index * register_bytes)
    if product.name not in b.global_values:
        b.global_values[product.name] = _product_function(b.global_values, product)
    first_record = exchange_all(b, b.emit_value(f"ptrtoint ptr {registers} to i64"))
    b.emit(f"call void @{product.name}(ptr {first_record}, i32 {b.expand('%laneid')}, ptr {registers})")
    # Other lanes may still read this lane's copy: wait for them.
    exchange(b, "0", ALL_LANES)
    # The function has written D in place of C.
    result_bytes = _accumulator_register_bytes(product.d_type)
    for index, register in enumerate(ptx.split_vector(operands[0])):
        value = b.load(f"i{8 * result_bytes}", registers, c_offset + index * result_bytes)
        b.write_register(register, value, 8 * result_bytes)


def _parse_product(mnemonic: Mnemonic) -> _Product:
    """
    Return the product of an instruction, such as `mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32`.

    Raises:
        UnsupportedInstruction: The matrices are sparse, of single bits, or laid out as for Volta.
    """
    # The only other modifier is the shape.
    other_flags = set(mnemonic.modifiers) - {"sync", "aligned", "row", "col", "satfinite", *FACTOR_BITS}
    shape = _SHAPE.fullmatch(other_flags.pop()) if len(other_flags) == 1 else None
    # The types of D, A, B and C, in this order. Types that only matrices have, such as tf32, are parsed as
    # modifiers. If those of A and B are such types, the list has the types of D and C alone.
    type_names = [f"{ptx_type.letter}{ptx_type.bits}" for ptx_type in mnemonic.types]
    matrix_types = [flag for flag in mnemonic.modifiers if flag in FACTOR_BITS]
    factor_types = matrix_types or type_names[1:-1]
    if (
        not shape
        or len(factor_types) != 2
        or not {*factor_types} <= FACTOR_BITS.keys()
        or "row" not in mnemonic.modifiers
        or len(type_names) < 2
        or not {type_names[0], type_names[-1]} <= ACCUMULATOR_TYPES
    ):
        raise UnsupportedInstruction
    (a_type, b_type), c_type, d_type = factor_types, type_names[-1], type_names[0]
    saturates = "satfinite" in mnemonic.modifiers
    product = _Product(int(shape[1]), int(shape[2]), a_type, b_type, c_type, d_type, saturates)
    # `m8n8k4` with elements of 16 bits, of which a register has two, has a layout of its own, for Volta.
    if product.rows == 8 and product.register_elements == 2:
        raise UnsupportedInstruction
    return product


def _accumulator_register_bytes(element_type: str) -> int:
    """Return the size in bytes of a register with elements of C or D."""
    return 8 if element_type == "f64" else 4


def _product_function(global_values: dict[str, str], product: _Product) -> str:
    """
    Return an LLVM function that computes the elements of D that one lane has.

    The lane 4i + t, where t is 0 to 3, has the columns 2t and 2t + 1 of row i, and of row i + 8 if there are
    16 rows.
    """
    f = IRBuilder(global_values)
    b_offset, c_offset, _ = product.offsets
    # The lanes 4i to 4i + 3 have row i of A, and row i + 8. The lanes 4j to 4j + 3 have column j of B.
    row_lane, lane_in_row = f.emit_op("and", "i32", "%lane", -4), f.emit_op("and", "i32", "%lane", 3)
    row_holders = [
        registers_of(f, "%first_record", f.emit_op("add", "i32", row_lane, index)) for index in range(4)
    ]
    columns = []
    for column in range(2):
        column_index = f.emit_op("add", "i32", f.emit_op("shl", "i32", lane_in_row, 1), column)
        column_lane = f.emit_op("shl", "i32", column_index, 2)
        holders = [
            registers_of(f, "%first_record", f.emit_op("add", "i32", column_lane, index))
            for index in range(4)
        ]
        columns.append(_load_line(f, product, product.b_type, holders, b_offset, line_count=1, line=0))
    results = []
    for row in range(product.lane_rows):
        row_elements = _load_line(
            f, product, product.a_type, row_holders, offset=0, line_count=product.lane_rows, line=row
        )
        for column, column_elements in enumerate(columns):
            bits, offset = _accumulator_element(product.c_type, c_offset, 2 * row + column)
            addend = decode_element(f, product.c_type, f.load(f"i{bits}", "%registers", offset))
            pairs = zip(row_elements, column_elements, strict=True)
            total = sum_of_products(f, product.d_type, pairs, addend, saturates=product.saturates)
            results.append(encode_sum(f, product.d_type, total))
    for index, result in enumerate(results):
        bits, offset = _accumulator_element(product.d_type, c_offset, index)
        f.store(f"i{bits}", result, "%registers", offset)
    f.end_block("ret void")
    return f.to_text(f"internal void @{product.name}(ptr %first_record, i32 %lane, ptr %registers) noinline")


def registers_of(f: IRBuilder, first_record: str, lane: str) -> str:
    """
    Return the address of the copy of a lane's registers, which the lane has passed to `exchange_all`.

    *first_record* is the ThreadRecord of lane 0, as `exchange_all` returns it.
    """
    return load_lane_operand(f, "ptr", first_record, lane)


def _load_line(
    f: IRBuilder,
    product: _Product,
    element_type: str,
    holders: Sequence[str],
    offset: int,
    line_count: int,
    line: int,
) -> list[str]:
    """
    Return the elements of a line, which is a row of A or a column of B; four lanes share it.

    Args:
        f: The function under construction.
        product: The matrix product.
        element_type: The type of the elements.
        holders: The addresses of the copies of the four lanes' registers, the lowest lane first.
        offset: The offset of the matrix in the copy of a lane's registers, in bytes.
        line_count: The number of lines of the matrix of which a lane has elements.
        line: The index of the line among those of the lane.
    """
    bits = FACTOR_BITS[element_type]
    elements = []
    for position in range(product.depth):
        # Along a line, the registers are those of the holders 0, 1, 2, 3, and again 0. In the copy of a
        # lane's registers, those of its lines alternate: line 0, line 1, line 0, line 1.
        register_in_line, element_in_register = divmod(position, product.register_elements)
        round_index, holder_index = divmod(register_in_line, 4)
        register_index = line + line_count * round_index
        register_offset = offset + register_index * product.register_bytes
        element = f.load(f"i{bits}", holders[holder_index], register_offset + element_in_register * bits // 8)
        elements.append(decode_element(f, element_type, element))
    return elements


def decode_element(f: IRBuilder, element_type: str, element: str) -> str:
    """Return the value of an element, given by its bits: an i32 for an integer type, else a double."""
    if element_type in ("s8", "u8"):
        return f.resize(element, 8, 32, signed=element_type == "s8")
    if element_type == "s32":
        return element
    if element_type == "f64":
        return f.emit_value(f"bitcast i64 {element} to double")
    if element_type in ("f32", "tf32"):
        # Tensor cores ignore the lower 13 bits of a tf32.
        kept = f.emit_op("and", "i32", element, -(1 << 13)) if element_type == "tf32" else element
        value = f.emit_value(f"bitcast i32 {kept} to float")
    else:
        value = f.call(f"ptxlink.{element_type}.decode", "float", f"i{FACTOR_BITS[element_type]} {element}")
    return f.emit_value(f"fpext float {value} to double")


def _accumulator_element(element_type: str, offset: int, index: int) -> tuple[int, int]:
    """
    Return the width of an element of C or D in bits, and its offset in the copy of the registers in bytes.

    Args:
        element_type: The type of the element.
        offset: The offset of the matrix in the copy.
        index: The index of the element among those that the lane has of the matrix.
    """
    size = {"f16": 2, "f64": 8}.get(element_type, 4)
    return 8 * size, offset + index * size


def sum_of_products(
    f: IRBuilder, result_type: str, pairs: Iterable[tuple[str, str]], addend: str, *, saturates: bool
) -> str:
    """
    Return the sum of *addend* and of the product of each pair.

    Args:
        f: The function under construction.
        result_type: The element type of D.
        pairs: The factors, as `decode_element` returns them.
        addend: The element of C, as `decode_element` returns it.
        saturates: Whether the addition of *addend* to a sum of integers is clamped, and does not wrap around.
    """
    if result_type == "s32":
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


def encode_sum(f: IRBuilder, result_type: str, value: str) -> str:
    """Return the bits of an element of D; *value* is an i32 or a double, as `sum_of_products` returns it."""
    if result_type == "s32":
        return value
    if result_type == "f64":
        return f.emit_value(f"bitcast double {value} to i64")
    if result_type == "f16":
        # The float is rounded to odd: if it is inexact, its last bit is 1. Rounding it to f16 then gives the
        # result of rounding the double once. The mode 1 is `rn`: to nearest, ties to even.
        rounded_to_odd = f.call("ptxlink.round_to_odd", "float", f"double {value}")
        return f.call("ptxlink.f16.encode", "i16", f"float {rounded_to_odd}", "i32 1")
    result = f.emit_value(f"fptrunc double {value} to float")
    return arithmetic.emit_gpu_nan(f, f.emit_value(f"bitcast float {result} to i32"))


def transpose(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `movmatrix`: the transpose of a matrix of 8 rows of 8 halves.

    Each lane has two halves, which are neighbours in a row, in one register.
    """
    if set(mnemonic.modifiers) != {"sync", "aligned", "m8n8", "trans"}:
        raise UnsupportedInstruction
    value = b.resize(b.read_operand(operands[1], 32), 32, 64)
    first_record = exchange_all(b, value)
    lane = b.expand("%laneid")
    # Lane i has the columns 2(i % 4) and 2(i % 4) + 1 of row i / 4, so that element (row, column) is in lane
    # 4 row + column / 2. Lane i gets these positions of the transpose, which are, in the matrix, the rows
    # 2(i % 4) and 2(i % 4) + 1 of column i / 4.
    column = b.emit_op("lshr", "i32", lane, 2)
    halves = []
    for half_index in range(2):
        even_row = b.emit_op("shl", "i32", b.emit_op("and", "i32", lane, 3), 1)
        row = b.emit_op("add", "i32", even_row, half_index)
        row_lane = b.emit_op("shl", "i32", row, 2)
        holder = b.emit_op("add", "i32", row_lane, b.emit_op("lshr", "i32", column, 1))
        # The half of an odd column is the upper one: shift by 16 bits.
        shift = b.emit_op("shl", "i32", b.emit_op("and", "i32", column, 1), 4)
        shifted = b.emit_op("lshr", "i32", load_lane_operand(b, "i32", first_record, holder), shift)
        halves.append(b.resize(shifted, 32, 16))
    b.write_register(operands[0], b.join_bits(halves, 16), 32)


def load_matrices(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `ldmatrix`: one, two or four matrices of 8 rows of 8 halves from shared memory.

    The lanes 8i to 8i + 7 pass the addresses of the rows of matrix i. Each lane gets two halves of each
    matrix: neighbours in a row, or with `.trans` in a column.
    """
    targets = ptx.split_vector(operands[0])
    matrix_addresses = _lane_addresses(b, mnemonic, operands[1], len(targets))
    for target, addresses in zip(targets, matrix_addresses, strict=True):
        # The bytes at each address: 4 for two neighbours, else 2.
        size = _FRAGMENT_BYTES // len(addresses)
        parts = []
        for address in addresses:
            pointer = region_pointer(b, address, size, write=False)
            report_access(b, pointer, size, Access.READ)
            parts.append(b.emit_value(f"load i{8 * size}, ptr {pointer}"))
        b.write_register(target, b.join_bits(parts, 8 * size), 32)
    # Wait until all lanes have loaded, since a lane may then store to the matrices.
    exchange(b, "0", ALL_LANES)


def store_matrices(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `stmatrix`: the inverse of `ldmatrix`."""
    sources = ptx.split_vector(operands[1])
    matrix_addresses = _lane_addresses(b, mnemonic, operands[0], len(sources))
    for source, addresses in zip(sources, matrix_addresses, strict=True):
        # The bytes at each address: 4 for two neighbours, else 2.
        size = _FRAGMENT_BYTES // len(addresses)
        parts = b.split_bits(b.read_operand(source, 32), 32, len(addresses))
        for address, part in zip(addresses, parts, strict=True):
            pointer = region_pointer(b, address, size, write=True)
            report_access(b, pointer, size, Access.WRITE, b.resize(part, 8 * size, 64))
            b.emit(f"store i{8 * size} {part}, ptr {pointer}")
    # Wait until all lanes have stored, since a lane may then load from the matrices.
    exchange(b, "0", ALL_LANES)


def _lane_addresses(b: Translator, mnemonic: Mnemonic, operand: str, count: int) -> Iterator[Sequence[str]]:
    """
    Yield the addresses of the two halves that this lane has of a matrix, for each of *count* matrices.

    Two halves of a row are neighbours in memory, and have a single address. With `.trans`, each half has an
    address of its own. *operand* is the address of the row that this lane passes to the others.
    """
    # "shared::cta" is "shared".
    modifiers = {modifier.partition("::")[0] for modifier in mnemonic.modifiers} - {"trans"}
    is_supported = modifiers == {"sync", "aligned", "m8n8", f"x{count}", "shared"}
    parsed = ptx.address(operand)
    if not is_supported or mnemonic.type.width != 16 or parsed is None:
        raise UnsupportedInstruction
    # The host address of the row.
    row_address = b.emit_op("add", "i64", effective_address(b, *parsed), b.load_context_field("shared_base"))
    first_record = exchange_all(b, row_address)
    # Lane i has the columns 2(i % 4) and 2(i % 4) + 1 of row i / 4.
    lane = b.expand("%laneid")
    row = b.emit_op("lshr", "i32", lane, 2)
    column = b.emit_op("shl", "i32", b.emit_op("and", "i32", lane, 3), 1)
    for matrix_index in range(count):
        if "trans" in mnemonic.modifiers:
            # Element (row, column) of the transpose is element (column, row) of the matrix.
            columns = column, b.emit_op("add", "i32", column, 1)
            yield [_half_address(b, first_record, matrix_index, index, row) for index in columns]
        else:
            yield [_half_address(b, first_record, matrix_index, row, column)]


def _half_address(b: Translator, first_record: str, matrix_index: int, row: str, column: str) -> str:
    """Return the address of one half; lane 8 * matrix_index + row has passed the address of its row."""
    lane = b.emit_op("add", "i32", row, 8 * matrix_index)
    row_address = load_lane_operand(b, "i64", first_record, lane)
    return b.emit_op("add", "i64", row_address, b.resize(b.emit_op("shl", "i32", column, 1), 32, 64))


MATRIX_HANDLERS = {
    "mma": multiply,
    "movmatrix": transpose,
    "ldmatrix": load_matrices,
    "stmatrix": store_matrices,
}
