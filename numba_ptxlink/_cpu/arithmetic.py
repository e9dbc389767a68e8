"""Arithmetic: `arithmetic.ll` is a table of what each instruction computes of its operands, in LLVM IR."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .builder import Kind, Unknown, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Builder

_LEAST = r"""
    same = fcmp oeq {ir} {a}, {b}
    none = fcmp uno {ir} {b}, {b}
    keep = or i1 {first}, {none}
    bits1 = bitcast {ir} {a} to {whole}
    bits2 = bitcast {ir} {b} to {whole}
    both = \1 {whole} {bits1}, {bits2}
    equal = bitcast {whole} {both} to {ir}
    other = select i1 {keep}, {ir} {a}, {ir} {b}
    result = select i1 {same}, {ir} {equal}, {ir} {other}
"""
# Where a field of bits begins and how long it is, each at most the width, and ones for it.
_FIELD = """
    place_most = call i32 @llvm.umin.i32(i32 {place}, i32 {bits})
    length_most = call i32 @llvm.umin.i32(i32 {length}, i32 {bits})
    by = zext i32 {place_most} to i128
    size = zext i32 {length_most} to i128
    above = shl i128 1, {size}
    ones = sub i128 {above}, 1
"""
_HEAD = re.compile(r"^(\S.*): (\w+) (\w)\n", re.MULTILINE)
# What all floats may have. The last are roundings: towards zero, the nearest, up and down.
_MODIFIERS = ("ftz", "sat", "relu", "full", "noftz", "rz", "rn", "rp", "rm")
_SMALLEST = {"f16": "0x3F10000000000000", "f32": "0x3810000000000000", "f64": "0x0010000000000000"}


class Row(NamedTuple):
    """
    An entry of the table.

    Args:
        sources: A letter for the type of each operand, of which the last repeats.
        result: The letter for the type of the result.
        body: What is computed.
    """

    sources: str
    result: str
    body: str

    def compute(self, b: Builder, word: Word, values: Sequence[str]) -> str:
        """Return what is computed of values."""
        kind, bits, signed = word.kind, word.kind.bits, word.kind.signed
        return b.ir(
            self.body,
            **dict(zip("abcd", values, strict=False)),
            opcode=word.opcode,
            letter="s" if signed else "u",
            raw=kind.raw,
            bits=bits,
            most=bits - 1,
            wide=f"i{2 * bits}",
            extend="sext" if signed else "zext",
            extend0="sext" if word.kinds[0].signed else "zext",
            shift="shl" if word.opcode == "shl" else "ashr" if signed else "lshr",
            ir=kind.ir,
            suffix=kind.suffix,
            whole=f"i{kind.suffix[1:]}",
            smallest=_SMALLEST.get(f"{kind.letter}{bits}", "0.0"),
        )


@functools.cache
def _rows() -> dict[str, Row]:
    text = re.sub(
        r"^;.*\n",
        "",
        Path(__file__).with_name("arithmetic.ll").read_text().replace("FIELD", _FIELD.strip()),
        flags=re.MULTILINE,
    )
    _, *parts = _HEAD.split(re.sub(r"LEAST (\w+)", _LEAST.strip(), text))
    return {
        name: Row(sources, result, body)
        for names, sources, result, body in zip(*[iter(parts)] * 4, strict=True)
        for name in names.split()
    }


def row(word: Word) -> Row:
    """
    Return what an instruction computes.

    Raises:
        Unknown: The table does not have it.
    """
    kind, whole = word.kind, (word.opcode, *word.flags)
    bare = [each for each in whole if each not in _MODIFIERS] if kind.floating else whole
    for name in (".".join(whole), ".".join(bare)):
        for suffix in (f".{kind.letter[-1]}{kind.bits}", f".{kind.letter[-1]}", ""):
            if name + suffix in _rows():
                return _rows()[name + suffix]
    raise Unknown


def modified(b: Builder, kind: Kind, value: str, flags: Sequence[str], which: Sequence[str]) -> str:
    """Return a float as those modifiers of *which* leave it that are among *flags*."""
    for each in which:
        if each in flags:
            word = Word("flush" if each == "ftz" else each, (), (kind,))
            value = row(word).compute(b, word, [value])
    return value
