"""
Scalar replacement: split a variable into registers at the boundaries of its accesses.

Example: 8 bytes, stored as `.b64` and loaded as two `.b32`, become two 32-bit registers. All accesses to the
variable are known, within it, and aligned. So a byte is in one register, whatever reads or writes it, and
whole registers of 32 and 64 bits are joined and split. A variable whose words are split stays in memory
(`cuts_words`): ptxas takes any bits for an undefined register, even where a mask clears them, so an undefined
piece would change its neighbours. For the same reason registers of less than 32 bits begin as zero, which
defines the bits that they are extended with; ptxas drops the zero if a store follows.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Find = Callable[[str], ptx.Register | None]
    Edits = dict[int, list[ptx.Statement]]

VECTOR_LENGTHS = {"v2": 2, "v4": 4, "v8": 8}
"""The number of elements of a vector, by its modifier."""

# A move of 128 bits in one register requires PTX 8.3; two moves of 64 bits do not.
_MAX_PIECE_BYTES = 8
_WORD_BYTES = 4


@dataclass(frozen=True, eq=False)
class Access:
    """
    A load or store at a constant offset.

    Args:
        guard: The predicate with the blank after it, such as "@%p1 "; "" if there is none.
        stores: Whether it stores.
        offset: Bytes from the start of the variable.
        type: The type of an element without its dot, such as "f32".
        values: The operands that are loaded or stored, one for each element.
        bits: The widths of these operands in bits; None for an immediate.
    """

    guard: str
    stores: bool
    offset: int
    type: str
    values: tuple[str, ...]
    bits: tuple[int | None, ...]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Offset and size of each element, in bytes."""
        size = ptx.width(self.type) // 8
        return [(self.offset + size * number, size) for number in range(len(self.values))]

    @classmethod
    def of(cls, instruction: ptx.Instruction, find: Find, offset: int = 0) -> Access | None:
        """
        Return *instruction* as an access; None for another form.

        Args:
            instruction: The instruction.
            find: Returns the register that a name means.
            offset: The offset of the address register from the variable, in bytes.
        """
        form = _access_form(instruction.mnemonic)
        operands = instruction.operands if form else ()
        if form is None or len(operands) != 2:
            return None
        stores, kind, vector_length = form
        address, values = instruction.address, ptx.elements(operands[stores])
        if address is None or len(values) != vector_length:
            return None
        bits: list[int | None] = []
        for value in values:
            register = find(value)
            bits.append(ptx.width(register.type) if register else None)
            # Elements of vectors, symbols and predicates are not replaced.
            if not bits[-1] if register else not (value == "_" or value.lstrip("- \t\r\n\f")[:1].isdigit()):
                return None
        return cls(instruction.guard, stores, offset + address[1], kind, values, tuple(bits))


@functools.lru_cache(maxsize=1024)
def _access_form(mnemonic: str) -> tuple[bool, str, int] | None:
    """Return whether *mnemonic* stores, the type of an element and their number; None if neither."""
    opcode, *modifiers = mnemonic.split(".")
    lengths = [VECTOR_LENGTHS[modifier] for modifier in modifiers if modifier in VECTOR_LENGTHS]
    kind = modifiers[-1] if modifiers else ""
    if opcode not in ("ld", "st") or len(modifiers) - len(lengths) > 2:
        return None
    return (opcode == "st", kind, sum(lengths) or 1) if ptx.width(kind) in (8, 16, 32, 64, 128) else None


def _enclosing_ranges(offset: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the aligned ranges of larger accesses that contain a range."""
    while size <= _MAX_PIECE_BYTES:
        size *= 2
        yield offset - offset % size, size


@dataclass(eq=False)
class MemorySlot:
    """
    A variable, parameter or result of a function, with its uses.

    Args:
        variable: The variable.
        declaration: The index of the statement that declares it, -1 for parameters and results.
        accesses: The loads and stores, by the index of the statement.
        addresses: The indices of the instructions that only compute its address.
        calls: The number of calls that pass it.
        escapes: Whether it is used in another way, so that its bytes may be accessed elsewhere.
    """

    variable: ptx.Variable
    declaration: int = -1
    accesses: dict[int, Access] = field(default_factory=dict)
    addresses: list[int] = field(default_factory=list)
    calls: int = 0
    escapes: bool = False

    @property
    def name(self) -> str:
        """The symbol."""
        return self.variable.name

    @property
    def size(self) -> int:
        """The size in bytes; C++ passes an empty struct as one byte."""
        return self.variable.size or 1

    @property
    def alignment(self) -> int:
        """The alignment in bytes."""
        return self.variable.alignment or max(1, ptx.width(self.variable.type) // 8)

    def moves(self, move: Callable[[Access], list[ptx.Statement]]) -> Edits:
        """Return the edits that replace its accesses by the statements that *move* returns."""
        return {index: move(access) for index, access in self.accesses.items()}


class RegisterPieces:
    """
    The registers that hold the bytes of a variable.

    Accesses are aligned and their sizes are powers of two, so any two are nested or disjoint: a range that
    contains smaller ones is halved until it contains none.

    Args:
        prefix: The prefix of the registers' names.
        size: The size of the variable in bytes.
        accesses: All accesses to it.

    Raises:
        ValueError: An access is not aligned, or is outside of the variable.
    """

    def __init__(self, prefix: str, size: int, accesses: Iterable[Access]) -> None:
        self._prefix = prefix
        self._ranges = {part for access in accesses for part in access.ranges}
        self._cut = {outer for part in self._ranges for outer in _enclosing_ranges(*part)}
        self._pieces: dict[tuple[int, int], str] = {}
        for offset, length in sorted(self._ranges):
            if offset % length or not 0 <= offset <= size - length:
                raise ValueError(f"an access to {length} bytes at offset {offset} of {size}")
            self._split(offset, length)

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def cuts_words(self) -> bool:
        """Whether an access covers several pieces of less than a word."""
        narrow = (piece for piece in self._pieces if piece[1] < _WORD_BYTES)
        return any(not self._ranges.isdisjoint(_enclosing_ranges(*piece)) for piece in narrow)

    def declarations(self) -> list[ptx.Statement]:
        """Return the declarations of the registers, and zeros for those of less than a word."""
        names: dict[int, list[str]] = {}
        for (_, size), name in self._pieces.items():
            names.setdefault(max(16, size * 8), []).append(name)
        return [
            *(ptx.Declaration.registers(f"b{bits}", listed) for bits, listed in names.items()),
            *(ptx.Instruction.of("mov.b16", name, "0") for name in names.get(16, ())),
        ]

    def moves(self, access: Access) -> list[ptx.Statement]:
        """
        Return the statements that replace *access*.

        Raises:
            ValueError: A register is narrower than its element, or a byte is set to a value that is no
                integer.
        """
        moves = _Moves(self._pieces, f"{self._prefix}t", access.guard)
        for value, bits, (offset, size) in zip(access.values, access.bits, access.ranges, strict=True):
            if value == "_":
                continue
            if bits is not None and bits < size * 8:
                raise ValueError(f"{value} has {bits} bits for {size} bytes")
            if access.stores:
                moves.store(value, bits, access.type, offset, size)
            else:
                moves.load(value, bits or 0, access.type, offset, size)
        return moves.statements()

    def _split(self, offset: int, size: int) -> None:
        if size > _MAX_PIECE_BYTES or (offset, size) in self._cut:
            self._split(offset, size // 2)
            self._split(offset + size // 2, size // 2)
        else:
            self._pieces.setdefault((offset, size), f"{self._prefix}{offset}")


class _Moves:
    """Moves between registers of the program and the pieces of a variable."""

    def __init__(self, pieces: Mapping[tuple[int, int], str], temporary: str, guard: str) -> None:
        self._pieces = pieces
        self._prefix = temporary
        self._guard = guard
        self._moves: list[ptx.Statement] = []
        self._temporaries: list[ptx.Statement] = []

    def statements(self) -> list[ptx.Statement]:
        """Return the moves, in a block if they need temporary registers."""
        if not self._temporaries:
            return self._moves
        return [ptx.OPEN, *self._temporaries, *self._moves, ptx.CLOSE]

    def load(self, target: str, bits: int, kind: str, offset: int, size: int) -> None:
        """Move *size* bytes at *offset* to *target*, extended to its width as `ld` does."""
        source = self._join(offset, size)
        sign = "s" if kind[0] == "s" else "u"
        if size == 1 or bits > size * 8:
            self._add(f"cvt.{sign}{bits}.{sign}{size * 8}", target, source)
        else:
            self._add(f"mov.b{bits}", target, source)

    def store(self, source: str, bits: int | None, kind: str, offset: int, size: int) -> None:
        """Move *source*, an immediate or the lower bytes of a register, to *size* bytes at *offset*."""
        piece = self._pieces.get((offset, size))
        if size > _MAX_PIECE_BYTES and bits is not None:
            self._spread(source, offset, size)
            return
        whole = piece or self._temporary(size * 8)
        if size == 1 and bits is None:
            number = ptx.number(source)
            if number is None:
                raise ValueError(f"{source} is stored to a byte")
            self._add("mov.b16", whole, str(number & 255))
        elif size == 1:
            self._add("cvt.u16.u8", whole, source)
        elif bits is None:
            # A move of bits rejects a decimal float.
            self._add(f"mov.{'f' if kind in ('f32', 'f64') else 'b'}{size * 8}", whole, source)
        elif bits > size * 8:
            self._add(f"cvt.u{size * 8}.u{bits}", whole, source)
        else:
            self._add(f"mov.b{bits}", whole, source)
        if not piece:
            self._spread(whole, offset, size)

    def _join(self, offset: int, size: int) -> str:
        """Return a register that holds *size* bytes at *offset*."""
        piece = self._pieces.get((offset, size))
        if piece:
            return piece
        half = size // 2
        low, high = self._join(offset, half), self._join(offset + half, half)
        whole = self._temporary(size * 8)
        self._add(f"mov.b{size * 8}", whole, f"{{{low}, {high}}}")
        return whole

    def _spread(self, whole: str, offset: int, size: int) -> None:
        """Move the halves of *whole* to the pieces of the *size* bytes at *offset*."""
        half = size // 2
        ranges = (offset, half), (offset + half, half)
        low, high = (self._pieces.get(part_range) or self._temporary(half * 8) for part_range in ranges)
        self._add(f"mov.b{size * 8}", f"{{{low}, {high}}}", whole)
        for part, part_range in zip((low, high), ranges, strict=True):
            if part_range not in self._pieces:
                self._spread(part, *part_range)

    def _temporary(self, bits: int) -> str:
        name = f"{self._prefix}{len(self._temporaries)}"
        self._temporaries.append(ptx.Declaration.registers(f"b{max(16, bits)}", [name]))
        return name

    def _add(self, mnemonic: str, *operands: str) -> None:
        self._moves.append(ptx.Instruction.of(mnemonic, *operands, guard=self._guard))
