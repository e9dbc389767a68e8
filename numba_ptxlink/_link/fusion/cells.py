"""Keep a parameter in registers in place of memory: one for each part that accesses never cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numba_ptxlink._formats import ptx

    from .body import Access

# A move of 128 bits in one register wants PTX 8.3; two of 64 do not.
_WIDEST = 8


class Cells:
    """
    The registers that hold the bytes of a parameter.

    Accesses are aligned and have sizes that are powers of two, so any two are nested or apart: a range that
    has smaller ones in it is halved until it has none.

    Args:
        prefix: What the names of the registers begin with.
        size: Bytes of the parameter.
        accesses: All accesses to it.

    Raises:
        ValueError: An access is not aligned, or lies outside of the parameter.
    """

    def __init__(self, prefix: str, size: int, accesses: Iterable[Access]) -> None:
        self._prefix = prefix
        self._ranges = {part for access in accesses for part in access.ranges}
        self._cells: dict[tuple[int, int], str] = {}
        for offset, length in sorted(self._ranges):
            if offset % length or not 0 <= offset <= size - length:
                raise ValueError(f"an access to {length} bytes at offset {offset} of {size}")
            self._split(offset, length)

    def __len__(self) -> int:
        return len(self._cells)

    def declarations(self) -> str:
        """Return the `.reg` statements of the registers."""
        names: dict[int, list[str]] = {}
        for (_, size), name in self._cells.items():
            names.setdefault(max(16, size * 8), []).append(name)
        return " ".join(f".reg .b{bits} {', '.join(listed)};" for bits, listed in names.items())

    def moves(self, access: Access) -> str:
        """
        Return the statements that stand for *access*.

        Raises:
            ValueError: A register is narrower than its element.
        """
        moves = _Moves(self._cells, f"{self._prefix}t", access.guard)
        for value, bits, (offset, size) in zip(access.values, access.bits, access.ranges, strict=True):
            if str(value) == "_":
                continue
            if bits is not None and bits < size * 8:
                raise ValueError(f"{value} has {bits} bits for {size} bytes")
            if access.stores:
                moves.store(value, bits, access.type, offset, size)
            else:
                moves.load(value, bits or 0, access.type, offset, size)
        return moves.text()

    def _split(self, offset: int, size: int) -> None:
        inner = any(offset <= start < offset + size and length < size for start, length in self._ranges)
        if inner or size > _WIDEST:
            self._split(offset, size // 2)
            self._split(offset + size // 2, size // 2)
        else:
            self._cells.setdefault((offset, size), f"{self._prefix}{offset}")


class _Moves:
    """
    Moves between registers of the program and the cells of a parameter.

    A cell of one byte is a register of 16 bits whose upper half is zero.
    """

    def __init__(self, cells: Mapping[tuple[int, int], str], temporary: str, guard: str) -> None:
        self._cells = cells
        self._prefix = temporary
        self._guard = guard
        self._lines: list[str] = []
        self._temporaries: list[int] = []

    def text(self) -> str:
        """Return the moves, in a block of their own if they need further registers."""
        if not self._temporaries:
            return " ".join(self._lines)
        registers = (
            f".reg .b{bits} {self._prefix}{number};" for number, bits in enumerate(self._temporaries)
        )
        return " ".join(("{", *registers, *self._lines, "}"))

    def load(self, target: ptx.Operand, bits: int, kind: str, offset: int, size: int) -> None:
        """Move *size* bytes at *offset* to *target*, which is wider or as wide, extended as `ld` does."""
        source = self._joined(offset, size)
        sign = "s" if kind[0] == "s" else "u"
        if size == 1 and (sign == "s" or bits != 16):
            self._add(f"cvt.{sign}{bits}.{sign}8 {target}, {source};")
        elif bits > max(16, size * 8):
            self._add(f"cvt.{sign}{bits}.{sign}{size * 8} {target}, {source};")
        else:
            self._add(f"mov.b{bits} {target}, {source};")

    def store(self, source: ptx.Operand, bits: int | None, kind: str, offset: int, size: int) -> None:
        """Move *source*, an immediate or the lower bytes of a register, to *size* bytes at *offset*."""
        cell = self._cells.get((offset, size))
        if size > _WIDEST and bits is not None:
            self._spread(str(source), offset, size)
            return
        whole = cell or self._temporary(size * 8)
        if size == 1 and bits is None:
            self._add(f"mov.b16 {whole}, {_integer(source) & 255};")
        elif size == 1:
            self._add(f"cvt.u16.u8 {whole}, {source};")
        elif bits is None:
            # A decimal point has no meaning in a move of bits.
            self._add(f"mov.{'f' if kind in ('f32', 'f64') else 'b'}{size * 8} {whole}, {source};")
        elif bits > size * 8:
            self._add(f"cvt.u{size * 8}.u{bits} {whole}, {source};")
        else:
            self._add(f"mov.b{bits} {whole}, {source};")
        if not cell:
            self._spread(whole, offset, size)

    def _joined(self, offset: int, size: int) -> str:
        """Return a register that holds *size* bytes at *offset*."""
        cell = self._cells.get((offset, size))
        if cell:
            return cell
        half = size // 2
        low, high = self._joined(offset, half), self._joined(offset + half, half)
        whole = self._temporary(size * 8)
        if size == 2:
            self._add(f"shl.b16 {whole}, {high}, 8;")
            self._add(f"or.b16 {whole}, {whole}, {low};")
        else:
            self._add(f"mov.b{size * 8} {whole}, {{{low}, {high}}};")
        return whole

    def _spread(self, whole: str, offset: int, size: int) -> None:
        """Move the halves of *whole* to the cells of *size* bytes at *offset*."""
        half = size // 2
        cells = [self._cells.get((start, half)) for start in (offset, offset + half)]
        low, high = (cell or self._temporary(half * 8) for cell in cells)
        if size == 2:
            self._add(f"and.b16 {low}, {whole}, 255;")
            self._add(f"shr.u16 {high}, {whole}, 8;")
        else:
            self._add(f"mov.b{size * 8} {{{low}, {high}}}, {whole};")
        for part, cell, start in ((low, cells[0], offset), (high, cells[1], offset + half)):
            if not cell:
                self._spread(part, start, half)

    def _temporary(self, bits: int) -> str:
        self._temporaries.append(max(16, bits))
        return f"{self._prefix}{len(self._temporaries) - 1}"

    def _add(self, line: str) -> None:
        self._lines.append(f"{self._guard}{line}")


def _integer(immediate: ptx.Operand) -> int:
    return int(str(immediate).rstrip("U"), 0)
