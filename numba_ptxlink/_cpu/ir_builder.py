"""LLVM IR as text: what types and opcodes of PTX are in it, and a function to which lines are added."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Two kinds of memory that never overlap: what this package keeps for a launch, and what PTX accesses.
RUNTIME_MEMORY, PROGRAM_MEMORY = "!tbaa !1", "!tbaa !2"
_FLOATS = {16: "float", 32: "float", 64: "double"}
_TYPE = re.compile(r"(bf|[busf])(8|16|32|64|128)(?:x(2))?")


@dataclass(frozen=True)
class PtxType:
    """
    A type of PTX.

    Args:
        letter: What its name begins with: "b", "u", "s", "f", "bf", or "pred".
        bits: The width of an element.
        lanes: How many elements are packed into one register.
    """

    letter: str
    bits: int
    elements: int = 1

    @property
    def is_float(self) -> bool:
        """Whether it is computed with as a float."""
        return self.letter in ("f", "bf")

    @property
    def is_signed(self) -> bool:
        """Whether it is a signed integer."""
        return self.letter == "s"

    @property
    def raw(self) -> str:
        """The type of an element's bits in LLVM IR."""
        return f"i{self.bits}"

    @property
    def ir(self) -> str:
        """The type that LLVM computes with; halves are computed with as floats."""
        return _FLOATS[self.bits] if self.is_float else self.raw

    @property
    def suffix(self) -> str:
        """What LLVM's functions of floats have at the end of their names."""
        return "f64" if self.bits == 64 else "f32"

    @property
    def width(self) -> int:
        """The bits of all its elements."""
        return self.bits * self.elements

    @property
    def element(self) -> PtxType:
        """The type of an element."""
        return PtxType(self.letter, self.bits)


PRED, U32 = PtxType("pred", 1), PtxType("u", 32)


@lru_cache(maxsize=256)
def _parse_type(modifier: str) -> PtxType | None:
    """Return the type that a modifier names, None for another."""
    if modifier == "pred":
        return PRED
    match = _TYPE.fullmatch(modifier)
    return PtxType(match[1], int(match[2]), int(match[3] or 1)) if match else None


class Mnemonic(NamedTuple):
    """
    An opcode with its modifiers.

    Args:
        opcode: The name alone.
        flags: The modifiers that are no types.
        types: Those that are, in order.
    """

    opcode: str
    modifiers: tuple[str, ...]
    types: tuple[PtxType, ...]

    @property
    def type(self) -> PtxType:
        """Its last type, which is that of the operands."""
        return self.types[-1]


@lru_cache(maxsize=4096)
def parse_mnemonic(text: str) -> Mnemonic:
    """Return the opcode that *text* spells."""
    opcode, *modifiers = text.split(".")
    types = tuple(found for each in modifiers if (found := _parse_type(each)))
    return Mnemonic(opcode, tuple(each for each in modifiers if not _parse_type(each)), types)


class UnsupportedInstruction(Exception):  # noqa: N818 - no error: the instruction becomes a fault where it is reached
    """What the translation does not know."""


class IRBuilder:
    """
    The text of one LLVM function, a line for each instruction.

    Args:
        defined: Functions that the module has for it, by name.

    Attributes:
        open: Whether the block that was begun last has no end yet.
    """

    def __init__(self, helpers: dict[str, str]) -> None:
        self.helpers = helpers
        self.prologue: list[str] = []
        self.lines: list[str] = []
        self.block_is_open = True
        self._count = 0

    def unique_name(self, stem: str = "b") -> str:
        """Return a name that is not used yet."""
        self._count += 1
        return f"{stem}{self._count}"

    def emit_value(self, text: str) -> str:
        """Add an instruction; return the value that it computes."""
        name = f"%{self.unique_name('t')}"
        self.lines.append(f"  {name} = {text}")
        return name

    def emit(self, text: str) -> None:
        """Add an instruction without a value."""
        self.lines.append(f"  {text}")

    def emit_op(self, opcode: str, kind: str, *values: str | int) -> str:
        """Return what an instruction computes of values of one type."""
        return self.emit_value(f"{opcode} {kind} {', '.join(map(str, values))}")

    def call(self, name: str, result: str, *arguments: str) -> str:
        """Call a function with arguments such as "i32 %a"; return its value."""
        return self.emit_value(f"call {result} @{name}({', '.join(arguments)})")

    def select(self, condition: str, kind: str, yes: str, no: str) -> str:
        """Return one of two values."""
        return self.emit_value(f"select i1 {condition}, {kind} {yes}, {kind} {no}")

    def emit_text(self, text: str, values: dict[str, Any]) -> str:
        """
        Add instructions as LLVM spells them, one a line; return what the last computes.

        A line begins with a name and an equals sign: in the lines after it, the name in braces is what it
        computes. So are *values*.
        """
        result = ""
        for line in text.strip().splitlines():
            name, _, instruction = line.strip().partition(" = ")
            values[name] = result = self.emit_value(instruction.format_map(values))
        return result

    def alloca(self, kind: str) -> str:
        """Return a variable of the function, which the optimiser makes values of."""
        name = f"%{self.unique_name('v')}"
        self.prologue.append(f"  {name} = alloca {kind}")
        return name

    def begin_block(self, name: str) -> None:
        """Begin a block."""
        if self.block_is_open:
            self.emit(f"br label %{name}")
        self.lines.append(f"{name}:")
        self.block_is_open = True

    def end_block(self, text: str) -> None:
        """End a block by a jump or a return."""
        self.emit(text)
        self.block_is_open = False

    def cond_branch(self, condition: str, yes: str, no: str, *, likely: bool = False) -> None:
        """Jump by a condition, which usually holds if it is *likely*."""
        self.end_block(f"br i1 {condition}, label %{yes}, label %{no}{', !prof !5' if likely else ''}")

    def offset_pointer(self, base: str, offset: int) -> str:
        """Return a pointer that is *offset* bytes after another."""
        return self.emit_value(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def load(self, kind: str, base: str, offset: int = 0) -> str:
        """Return what this package keeps at a pointer."""
        return self.emit_value(f"load {kind}, ptr {self.offset_pointer(base, offset)}, {RUNTIME_MEMORY}")

    def store(self, kind: str, value: str | int, base: str, offset: int = 0) -> None:
        """Keep something there."""
        self.emit(f"store {kind} {value}, ptr {self.offset_pointer(base, offset)}, {RUNTIME_MEMORY}")

    def resize(self, value: str, before: int, after: int, *, signed: bool = False) -> str:
        """Return an integer of so many bits in another width."""
        if before == after:
            return value
        opcode = "trunc" if before > after else "sext" if signed else "zext"
        return self.emit_value(f"{opcode} i{before} {value} to i{after}")

    def split_bits(self, value: str, bits: int, count: int) -> list[str]:
        """Return the parts of an integer of *bits*, the lowest first."""
        size = bits // count
        moved = [
            value,
            *(self.emit_op("lshr", f"i{bits}", value, size * number) for number in range(1, count)),
        ]
        return [self.resize(each, bits, size) for each in moved]

    def join_bits(self, parts: Sequence[str], size: int) -> str:
        """Return the integer of parts of *size* bits."""
        whole = size * len(parts)
        result = self.resize(parts[0], size, whole)
        for number, part in enumerate(parts[1:], start=1):
            moved = self.emit_op("shl", f"i{whole}", self.resize(part, size, whole), size * number)
            result = self.emit_op("or", f"i{whole}", result, moved)
        return result

    def to_text(self, signature: str) -> str:
        """Return the function."""
        return "\n".join(
            (
                f"define {signature} {{",
                "entry:",
                *self.prologue,
                "  br label %start",
                "start:",
                *self.lines,
                "}",
            )
        )
