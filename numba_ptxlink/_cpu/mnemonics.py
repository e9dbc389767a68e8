"""Parse parts of PTX instructions: opcodes with modifiers and types, and operands that are numbers."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from numba_ptxlink._formats import ptx

# LLVM's type for the arithmetic of floats, by the width of PTX's type. 16-bit floats are computed in 32 bits.
_FLOAT_TYPES = {16: "float", 32: "float", 64: "double"}
# Such as s32, bf16 and f16x2; there is no f8, f128 or bf32.
_TYPE = re.compile(r"(?!f8|f128|bf(?!16))(bf|[busf])(8|16|32|64|128)(?:x(2))?")


@dataclass(frozen=True)
class PtxType:
    """
    A type of PTX.

    Args:
        letter: The letters of the name: "b", "u", "s", "f", "bf", or "pred".
        bits: The width of an element.
        elements: The number of elements in a value: 2 for f16x2, else 1.
    """

    letter: str
    bits: int
    elements: int = 1

    @property
    def is_float(self) -> bool:
        """Whether the type is a float."""
        return self.letter in ("f", "bf")

    @property
    def is_signed(self) -> bool:
        """Whether the type is a signed integer."""
        return self.letter == "s"

    @property
    def raw(self) -> str:
        """The integer type of LLVM IR with the width of an element: "i16" for f16x2."""
        return f"i{self.bits}"

    @property
    def ir(self) -> str:
        """The type of LLVM IR for the arithmetic of an element: "float" for f16 and f32, "i32" for s32."""
        return _FLOAT_TYPES[self.bits] if self.is_float else self.raw

    @property
    def suffix(self) -> str:
        """The end of the names of LLVM's intrinsics for a float, such as `llvm.fma.f32`; f32 also for f16."""
        return "f64" if self.bits == 64 else "f32"

    @property
    def width(self) -> int:
        """The width of all elements together, in bits."""
        return self.bits * self.elements

    @property
    def element(self) -> PtxType:
        """The type of an element."""
        return PtxType(self.letter, self.bits)


PRED, U32 = PtxType("pred", 1), PtxType("u", 32)


@lru_cache(maxsize=256)
def _parse_type(modifier: str) -> PtxType | None:
    """Return the type that a modifier names: u32 for "u32", None for a modifier such as "rn"."""
    if modifier == "pred":
        return PRED
    match = _TYPE.fullmatch(modifier)
    return PtxType(match[1], int(match[2]), int(match[3] or 1)) if match else None


class Mnemonic(NamedTuple):
    """
    An opcode with its modifiers, such as `cvt.rn.f32.s64`.

    Args:
        opcode: The opcode alone: "cvt".
        modifiers: The modifiers that are not types: "rn".
        types: The types, in the order of the text: f32 and s64.
    """

    opcode: str
    modifiers: tuple[str, ...]
    types: tuple[PtxType, ...]

    @property
    def type(self) -> PtxType:
        """
        The last type, s64 in the example: the type of the operands of most instructions.

        Raises:
            UnsupportedInstruction: The instruction has no type.
        """
        if not self.types:
            raise UnsupportedInstruction
        return self.types[-1]


@lru_cache(maxsize=4096)
def parse_mnemonic(text: str) -> Mnemonic:
    """Return the opcode, modifiers and types in *text*, such as "cvt.rn.f32.s64"."""
    opcode, *parts = text.split(".")
    types = tuple(ptx_type for ptx_type in map(_parse_type, parts) if ptx_type)
    return Mnemonic(opcode, tuple(part for part in parts if not _parse_type(part)), types)


class UnsupportedInstruction(Exception):  # noqa: N818 - no error until a thread reaches the instruction
    """The translator does not support an instruction, which becomes a fault of threads that reach it."""


def parse_number(text: str, bits: int) -> int | None:
    """
    Return the bits of an operand that is a number, None for a register or a symbol.

    Args:
        text: The operand, such as "-1", "1.5", or "0f3F800000" (the bits of a float32 in hexadecimal).
        bits: The width of the result. An integer is reduced modulo 2**bits.

    Raises:
        UnsupportedInstruction: *text* begins like a number, but is no integer, and no float of that width.
    """
    try:
        integer = ptx.parse_integer(text)
        if integer is not None:
            return integer % (1 << bits)
        if text[:1] not in "-.0123456789":
            return None
        if text[:2] in ("0f", "0F", "0d", "0D"):
            content = bytes.fromhex(text[2:])  # The highest byte first, which struct calls ">".
            # Like ptxas, convert 0f... for an instruction on float64, and 0d... for one on float32.
            if (bits, 8 * len(content)) in ((32, 64), (64, 32)):
                (value,) = struct.unpack(">f" if bits == 64 else ">d", content)
                content = struct.pack(">d" if bits == 64 else ">f", value)
        else:
            content = struct.pack(">d" if bits == 64 else ">f", float(text))
    except (ValueError, OverflowError):
        raise UnsupportedInstruction from None
    if len(content) * 8 != bits:
        raise UnsupportedInstruction
    return int.from_bytes(content, "big")
