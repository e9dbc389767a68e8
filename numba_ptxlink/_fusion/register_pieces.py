"""
Scalar replacement: split a variable into registers at the boundaries of its accesses.

Example: 8 bytes, stored as `.b64` and loaded as two `.b32`, become two 32-bit registers: the store splits its
value into the two. These registers are called the pieces of the variable; each access covers whole pieces. A
caller passes all accesses to the variable. For an access that is not aligned, or is outside of the variable,
`RegisterPieces` raises ValueError.

Callers keep a variable in memory if an access would join several pieces of less than 32 bits
(`joins_narrow_pieces`). ptxas would join them by shifts, masks and `or`. If one piece is undefined, ptxas
treats all bits of its shifted and masked value as arbitrary, even those that the mask clears. The `or` with
that value would then change the bytes of the other pieces. For the same reason pieces of less than 32 bits
are set to zero where they are declared: a load that extends an undefined piece then gives defined upper bits.
ptxas drops the zero if a store follows.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Find = Callable[[str], ptx.Register | None]
    # The statements that replace a statement, by the index of the replaced one.
    Edits = dict[int, list[ptx.Statement]]

VECTOR_LENGTHS = {"v2": 2, "v4": 4, "v8": 8}
"""The number of elements of a vector, by its modifier."""

# The size of the largest element, which has the type b128.
_MAX_ELEMENT_BYTES = 16
# PTX before version 8.3 has no registers of 128 bits: an element of that size covers two pieces or more.
_MAX_PIECE_BYTES = 8
_WORD_BYTES = 4
# Moves have no 8-bit form, so a piece of one byte is the lower half of a register of 16 bits.
_MIN_REGISTER_BITS = 16


@dataclass(frozen=True, eq=False)
class Access:
    """
    A load or store at a constant offset.

    Args:
        guard: The predicate with a blank after it, such as "@%p1 "; "" if there is none.
        is_store: Whether it is a store, not a load.
        offset: The offset from the start of the variable in bytes.
        type: The type of an element without its dot, such as "f32".
        values: The operands that are loaded or stored, one for each element.
        bits: The width in bits of each operand's register; None for an immediate, and for `_`, which discards
            an element.
    """

    guard: str
    is_store: bool
    offset: int
    type: str
    values: tuple[str, ...]
    bits: tuple[int | None, ...]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The offset and the size of each element, in bytes."""
        size = ptx.width(self.type) // 8
        return [(self.offset + size * index, size) for index in range(len(self.values))]

    @classmethod
    def of(cls, instruction: ptx.Instruction, find: Find, offset: int = 0) -> Access | None:
        """
        Return *instruction* as an access; None if it is no load or store that moves could replace.

        Args:
            instruction: The instruction.
            find: Returns the register of a name; for a variable, a register whose type is ""; None for
                other names.
            offset: The offset of the address register from the variable, in bytes.
        """
        form = _access_form(instruction.mnemonic)
        operands = instruction.operands if form else ()
        if form is None or len(operands) != 2:
            return None
        is_store, element_type, vector_length = form
        # The value is the second operand of a store, and the first operand of a load.
        values = ptx.split_vector(operands[1 if is_store else 0])
        address = instruction.address
        if address is None or len(values) != vector_length:
            return None
        bits: list[int | None] = []
        for value in values:
            register = find(value)
            register_bits = ptx.width(register.type) if register else None
            is_discarded_or_immediate = value == "_" or value.lstrip("- \t\r\n\f")[:1].isdigit()
            # Neither a variable, whose type "" has a width of 0, nor an element of a vector, such as
            # %r1.x, which `find` does not know, can be moved to or from a piece.
            if register_bits == 0 or (register is None and not is_discarded_or_immediate):
                return None
            bits.append(register_bits)
        return cls(instruction.guard, is_store, offset + address[1], element_type, values, tuple(bits))


@functools.lru_cache(maxsize=1024)
def _access_form(mnemonic: str) -> tuple[bool, str, int] | None:
    """
    Return whether *mnemonic* is a store, the type of an element, and the number of elements.

    The result is None if it is no load or store, or has several modifiers beside the vector length and type.
    """
    opcode, *modifiers = mnemonic.split(".")
    lengths = [VECTOR_LENGTHS[modifier] for modifier in modifiers if modifier in VECTOR_LENGTHS]
    element_type = modifiers[-1] if modifiers else ""
    # A modifier may remain beside the vector length and the type. Callers check that it is a state space.
    if opcode not in ("ld", "st") or len(modifiers) - len(lengths) > 2:
        return None
    if ptx.width(element_type) not in (8, 16, 32, 64, 128):
        return None
    # Valid PTX has one vector length at most.
    return opcode == "st", element_type, sum(lengths) or 1


def _enclosing_ranges(offset: int, size: int) -> Iterator[tuple[int, int]]:
    """
    Yield the offset and size of each larger aligned range that contains this range, up to 16 bytes.

    For example, 4 bytes at offset 12 are contained in 8 bytes at offset 8, and in 16 bytes at offset 0.
    """
    while size < _MAX_ELEMENT_BYTES:
        size *= 2
        yield offset - offset % size, size


@dataclass(eq=False)
class MemorySlot:
    """
    A variable, parameter or result of a function, with its uses.

    Args:
        variable: The variable.
        declaration_index: The index of the statement that declares the variable; -1 for parameters and
            results.
        accesses: The loads and stores of the variable, by the index of the statement.
        address_indices: The indices of the instructions that only compute the variable's address.
        calls: The number of calls that pass the variable.
        escapes: Whether the variable has a use that is none of these, so that instructions which are not in
            *accesses* may access its bytes.
    """

    variable: ptx.Variable
    declaration_index: int = -1
    accesses: dict[int, Access] = field(default_factory=dict)
    address_indices: list[int] = field(default_factory=list)
    calls: int = 0
    escapes: bool = False

    @property
    def name(self) -> str:
        """The name of the variable."""
        return self.variable.name

    @property
    def size(self) -> int:
        """The size in bytes; C++ passes an empty struct as one byte."""
        return self.variable.size or 1

    @property
    def alignment(self) -> int:
        """The alignment in bytes."""
        return self.variable.alignment or max(1, ptx.width(self.variable.type) // 8)

    def access_edits(self, move: Callable[[Access], list[ptx.Statement]]) -> Edits:
        """Return the edits that replace each access by the statements that *move* returns for it."""
        return {index: move(access) for index, access in self.accesses.items()}


class RegisterPieces:
    """
    The registers that hold the bytes of a variable.

    The sizes of elements are powers of two, and an element that is not aligned is refused, so the ranges of
    any two elements are nested or disjoint. A range is halved until it contains no smaller range of an
    element; each part is a piece, which one register holds.

    Args:
        prefix: The prefix of the registers' names.
        size: The size of the variable in bytes.
        accesses: All accesses to the variable. The order has no effect.

    Raises:
        ValueError: An access is not aligned, or is outside of the variable.
    """

    def __init__(self, prefix: str, size: int, accesses: Iterable[Access]) -> None:
        self._prefix = prefix
        self._ranges = {access_range for access in accesses for access_range in access.ranges}
        # Each of these ranges contains a smaller range of an element.
        self._ranges_to_halve = {outer for inner in self._ranges for outer in _enclosing_ranges(*inner)}
        # The register of each piece, by the offset and the size of the piece in bytes.
        self._pieces: dict[tuple[int, int], str] = {}
        for offset, access_size in sorted(self._ranges):
            if offset % access_size or not 0 <= offset <= size - access_size:
                raise ValueError(
                    f"an access to {access_size} bytes at offset {offset} is not aligned, or is outside of "
                    f"the variable of {size} bytes"
                )
            self._split(offset, access_size)

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def joins_narrow_pieces(self) -> bool:
        """Whether an element covers several pieces of less than 32 bits, which a move would have to join."""
        narrow_pieces = ((offset, size) for offset, size in self._pieces if size < _WORD_BYTES)
        return any(
            not self._ranges.isdisjoint(_enclosing_ranges(offset, size)) for offset, size in narrow_pieces
        )

    def declarations(self) -> list[ptx.Statement]:
        """Return the declarations of the registers, and moves of zero to pieces of one or two bytes."""
        # The names of the registers by their width in bits.
        registers: dict[int, list[str]] = {}
        for (_, size), name in self._pieces.items():
            registers.setdefault(max(_MIN_REGISTER_BITS, size * 8), []).append(name)
        return [
            *(ptx.Declaration.registers(f"b{bits}", names) for bits, names in registers.items()),
            *(ptx.Instruction.of("mov.b16", name, "0") for name in registers.get(_MIN_REGISTER_BITS, ())),
        ]

    def moves(self, access: Access) -> list[ptx.Statement]:
        """
        Return the statements that replace *access*.

        Raises:
            ValueError: A register is narrower than its element, or an immediate that is no integer is stored
                to a byte.
        """
        moves = _Moves(self._pieces, f"{self._prefix}t", access.guard)
        for value, bits, (offset, size) in zip(access.values, access.bits, access.ranges, strict=True):
            if value == "_":
                continue
            if bits is not None and bits < size * 8:
                raise ValueError(f"{value} has {bits} bits, but the access has {size * 8}")
            if access.is_store:
                moves.store(value, bits, access.type, offset, size)
            else:
                # In valid PTX, a load has no immediate operand: *bits* is not None.
                moves.load(value, bits or 0, access.type, offset, size)
        return moves.statements()

    def _split(self, offset: int, size: int) -> None:
        """Add the pieces of the range with this offset and size, unless another range has added them."""
        if size > _MAX_PIECE_BYTES or (offset, size) in self._ranges_to_halve:
            self._split(offset, size // 2)
            self._split(offset + size // 2, size // 2)
        else:
            self._pieces.setdefault((offset, size), f"{self._prefix}{offset}")


class _Moves:
    """
    Moves between registers of the program and the pieces of a variable.

    Args:
        pieces: The register of each piece, by the offset and the size of the piece in bytes.
        prefix: The prefix of the names of temporary registers.
        guard: The predicate of the access, as in `Access`.
    """

    def __init__(self, pieces: Mapping[tuple[int, int], str], prefix: str, guard: str) -> None:
        self._pieces = pieces
        self._prefix = prefix
        self._guard = guard
        self._moves: list[ptx.Statement] = []
        self._temporaries: list[ptx.Statement] = []

    def statements(self) -> list[ptx.Statement]:
        """Return the moves, in a block if they need temporary registers."""
        if not self._temporaries:
            return self._moves
        return [ptx.OPEN, *self._temporaries, *self._moves, ptx.CLOSE]

    def load(self, target: str, bits: int, element_type: str, offset: int, size: int) -> None:
        """Move *size* bytes at *offset* to *target*, extended to its *bits* as `ld` does."""
        source = self._join(offset, size)
        # A byte is the lower half of a 16-bit register, so it is always extended.
        sign = "s" if element_type[0] == "s" else "u"
        if size == 1 or bits > size * 8:
            self._add(f"cvt.{sign}{bits}.{sign}{size * 8}", target, source)
        else:
            self._add(f"mov.b{bits}", target, source)

    def store(self, source: str, bits: int | None, element_type: str, offset: int, size: int) -> None:
        """
        Move *source* to *size* bytes at *offset*.

        Args:
            source: An immediate, or a register, whose lower bytes are moved.
            bits: The width of the register in bits; None for an immediate.
            element_type: The type that is stored, such as "f32".
            offset: The offset in the variable, in bytes.
            size: The size of *element_type*, in bytes.
        """
        piece = self._pieces.get((offset, size))
        if size > _MAX_PIECE_BYTES and bits is not None:
            # A register of 128 bits can be split without a temporary copy; an immediate cannot.
            self._spread(source, offset, size)
            return
        # If several pieces hold the range, the source is moved to a temporary register, which is then spread.
        whole = piece or self._temporary(size * 8)
        if size == 1 and bits is None:
            number = ptx.parse_integer(source)
            if number is None:
                raise ValueError(f"{source}, which is no integer, is stored to a byte")
            self._add("mov.b16", whole, str(number & 255))
        elif size == 1:
            self._add("cvt.u16.u8", whole, source)
        elif bits is None:
            # A move of bits, such as `mov.b32`, rejects a decimal float.
            letter = "f" if element_type in ("f32", "f64") else "b"
            self._add(f"mov.{letter}{size * 8}", whole, source)
        elif bits > size * 8:
            self._add(f"cvt.u{size * 8}.u{bits}", whole, source)
        else:
            self._add(f"mov.b{bits}", whole, source)
        if not piece:
            self._spread(whole, offset, size)

    def _join(self, offset: int, size: int) -> str:
        """Return the register of *size* bytes at *offset*: a piece, or a temporary that joins several."""
        piece = self._pieces.get((offset, size))
        if piece:
            return piece
        half = size // 2
        low, high = self._join(offset, half), self._join(offset + half, half)
        whole = self._temporary(size * 8)
        self._add(f"mov.b{size * 8}", whole, f"{{{low}, {high}}}")
        return whole

    def _spread(self, whole: str, offset: int, size: int) -> None:
        """Split the register *whole* into the several pieces of *size* bytes at *offset*."""
        half = size // 2
        ranges = (offset, half), (offset + half, half)
        low, high = (self._pieces.get(half_range) or self._temporary(half * 8) for half_range in ranges)
        self._add(f"mov.b{size * 8}", f"{{{low}, {high}}}", whole)
        for register, half_range in zip((low, high), ranges, strict=True):
            if half_range not in self._pieces:
                self._spread(register, *half_range)

    def _temporary(self, bits: int) -> str:
        """Declare a register of at least *bits*, and return its name."""
        name = f"{self._prefix}{len(self._temporaries)}"
        self._temporaries.append(ptx.Declaration.registers(f"b{max(_MIN_REGISTER_BITS, bits)}", [name]))
        return name

    def _add(self, mnemonic: str, *operands: str) -> None:
        self._moves.append(ptx.Instruction.of(mnemonic, *operands, guard=self._guard))
