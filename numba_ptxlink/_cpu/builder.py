"""Write LLVM IR as text: values, blocks, loops, and the tags that tell the optimiser what is whose memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Two kinds of memory that never overlap: what this package keeps for a launch, and what PTX accesses.
OWN, THEIRS = "!tbaa !1", "!tbaa !2"
METADATA = """
!0 = !{!"numba-ptxlink"}
!1 = !{!3, !3, i64 0}
!2 = !{!4, !4, i64 0}
!3 = !{!"own", !0, i64 0}
!4 = !{!"theirs", !0, i64 0}
!5 = !{!"branch_weights", i32 2000, i32 1}
"""
_FLOATS = {16: "float", 32: "float", 64: "double"}
_KIND = re.compile(r"(bf|[busf])(8|16|32|64)(?:x(2))?")


@dataclass(frozen=True)
class Kind:
    """
    A type of PTX.

    Args:
        letter: What its name begins with: "b", "u", "s", "f", "bf", or "pred".
        bits: The width of an element.
        lanes: How many elements are packed into one register.
    """

    letter: str
    bits: int
    lanes: int = 1

    @property
    def floating(self) -> bool:
        """Whether it is computed with as a float."""
        return self.letter in ("f", "bf")

    @property
    def signed(self) -> bool:
        """Whether it is a signed integer."""
        return self.letter == "s"

    @property
    def raw(self) -> str:
        """The type of its bits in LLVM IR."""
        return f"i{self.bits}"

    @property
    def ir(self) -> str:
        """The type that LLVM computes with; halves are computed with as floats."""
        return _FLOATS[self.bits] if self.floating else self.raw

    @property
    def suffix(self) -> str:
        """What LLVM's functions of floats have at the end of their names."""
        return "f64" if self.bits == 64 else "f32"

    @property
    def width(self) -> int:
        """The bits of all its elements."""
        return self.bits * self.lanes

    @property
    def one(self) -> Kind:
        """The type of an element."""
        return Kind(self.letter, self.bits)


PRED, U32, U64 = Kind("pred", 1), Kind("u", 32), Kind("u", 64)


@lru_cache(maxsize=256)
def kind_of(modifier: str) -> Kind | None:
    """Return the type that a modifier names, None for another."""
    if modifier == "pred":
        return PRED
    match = _KIND.fullmatch(modifier)
    return Kind(match[1], int(match[2]), int(match[3] or 1)) if match else None


class Word(NamedTuple):
    """
    An opcode with its modifiers.

    Args:
        opcode: The name alone.
        flags: The modifiers that are no types.
        kinds: Those that are, in order.
    """

    opcode: str
    flags: tuple[str, ...]
    kinds: tuple[Kind, ...]

    @property
    def kind(self) -> Kind:
        """Its last type, which is that of the operands."""
        return self.kinds[-1]


@lru_cache(maxsize=4096)
def word_of(text: str) -> Word:
    """Return the opcode that *text* spells."""
    opcode, *modifiers = text.split(".")
    kinds = tuple(kind for each in modifiers if (kind := kind_of(each)))
    return Word(opcode, tuple(each for each in modifiers if not kind_of(each)), kinds)


class Unknown(Exception):  # noqa: N818 - no error: the instruction becomes a fault where it is reached
    """What the translation does not know."""


class Builder:
    """
    The text of one LLVM function.

    Attributes:
        defined: Functions that the module has for it, by name.
    """

    def __init__(self, defined: dict[str, str]) -> None:
        self.defined = defined
        self.head: list[str] = []
        self.lines: list[str] = []
        self._count = 0
        self.open = True

    def fresh(self, stem: str = "b") -> str:
        """Return a name that is not used yet."""
        self._count += 1
        return f"{stem}{self._count}"

    def let(self, text: str) -> str:
        """Add an instruction; return the value that it computes."""
        self._count += 1
        self.lines.append(f"  %t{self._count} = {text}")
        return f"%t{self._count}"

    def op(self, opcode: str, kind: str, *values: str | int) -> str:
        """Return what an instruction computes of values of one type."""
        return self.let(f"{opcode} {kind} {', '.join(map(str, values))}")

    def do(self, text: str) -> None:
        """Add an instruction without a value."""
        self.lines.append(f"  {text}")

    def variable(self, kind: str) -> str:
        """Return a variable of the function, which the optimiser makes values of."""
        name = f"%{self.fresh('v')}"
        self.head.append(f"  {name} = alloca {kind}")
        return name

    def label(self, name: str) -> None:
        """Begin a block."""
        if self.open:
            self.do(f"br label %{name}")
        self.lines.append(f"{name}:")
        self.open = True

    def end(self, text: str) -> None:
        """End a block by a jump or a return."""
        self.do(text)
        self.open = False

    def fork(self, condition: str, yes: str, no: str, *, likely: bool = False) -> None:
        """Jump by a condition, which usually holds if it is *likely*."""
        self.end(f"br i1 {condition}, label %{yes}, label %{no}{', !prof !5' if likely else ''}")

    def ir(self, text: str, **values: object) -> str:
        """
        Add instructions as LLVM spells them, one a line; return what the last computes.

        A line may begin with a name and an equals sign: in the lines after it, the name in braces is what it
        computes. So are *values*.
        """
        result = ""
        for line in text.strip().splitlines():
            name, equals, instruction = line.strip().partition(" = ")
            if equals:
                values[name] = result = self.let(instruction.format(**values))
            else:
                self.do(name.format(**values))
        return result

    def call(self, name: str, result: str, *arguments: str) -> str:
        """Call a function of LLVM with arguments such as "i32 %a"; return its value."""
        return self.let(f"call {result} @{name}({', '.join(arguments)})")

    def at(self, base: str, offset: int | str, kind: str = "i64") -> str:
        """Return a pointer that is *offset* bytes after another."""
        return self.let(f"getelementptr i8, ptr {base}, {kind} {offset}") if offset != 0 else base

    def load(self, kind: str, base: str, offset: int = 0) -> str:
        """Return what this package keeps at a pointer."""
        return self.let(f"load {kind}, ptr {self.at(base, offset)}, {OWN}")

    def store(self, kind: str, value: str, base: str, offset: int = 0) -> None:
        """Keep something there."""
        self.do(f"store {kind} {value}, ptr {self.at(base, offset)}, {OWN}")

    def copy(self, target: str, source: str, size: int) -> None:
        """Copy bytes."""
        self.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def resize(self, value: str, kind: str, to: str, *, signed: bool = False) -> str:
        """Return an integer in another width."""
        before, after = int(kind[1:]), int(to[1:])
        if before == after:
            return value
        return self.let(
            f"{'trunc' if before > after else 'sext' if signed else 'zext'} {kind} {value} to {to}"
        )

    def parts(self, value: str, bits: int, count: int) -> list[str]:
        """Return the parts of an integer of *bits*, the lowest first."""
        size = bits // count
        return [
            self.resize(
                self.op("lshr", f"i{bits}", value, size * number) if number else value, f"i{bits}", f"i{size}"
            )
            for number in range(count)
        ]

    def joined(self, parts: Sequence[str], size: int) -> str:
        """Return the integer of parts of *size* bits."""
        raw = f"i{size * len(parts)}"
        result = self.resize(parts[0], f"i{size}", raw)
        for number, part in enumerate(parts[1:], start=1):
            moved = self.op("shl", raw, self.resize(part, f"i{size}", raw), size * number)
            result = self.op("or", raw, result, moved)
        return result

    def select(self, condition: str, kind: str, yes: str, no: str) -> str:
        """Return one of two values."""
        return self.let(f"select i1 {condition}, {kind} {yes}, {kind} {no}")

    def text(self, signature: str) -> str:
        """Return the function."""
        return "\n".join(
            (f"define {signature} {{", "entry:", *self.head, "  br label %start", "start:", *self.lines, "}")
        )
