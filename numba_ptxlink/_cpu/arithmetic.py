"""
Arithmetic: what the table `instructions.ll` computes of values, and how floats are read, rounded and written.

LLVM's own functions for halves are in a library of compilers; where that is absent, the process would end.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from .function_text import PtxType, Unknown, Word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .function_text import FunctionText

MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}
"""Roundings, as LLVM numbers them."""
# What LLVM calls a function that rounds in a direction; others begin with an f.
_DIRECTED = {"fma": "fma", "mad": "fma", "sqrt": "sqrt", "rcp": "fdiv"}
_HEAD = re.compile(r"^(\S.*):(?: (?:(\w+) )?(\w))?\n", re.MULTILINE)
_COMMENT = re.compile(r"^;.*\n", re.MULTILINE)
# What all floats may have, besides a rounding.
_MODIFIERS = ("ftz", "sat", "relu", "full", "noftz", *MODES)
# The smallest normal number of a type; a bfloat16 has the exponents of a float.
_SMALLEST = {
    "f16": "0x3F10000000000000",
    **dict.fromkeys(("bf16", "f32"), "0x3810000000000000"),
    "f64": "0x0010000000000000",
}
_ROUNDED = """define internal {result} @{own}({parameters}) noinline strictfp {{
  call void @llvm.set.rounding(i32 {mode}) strictfp
  %r = call {result} @llvm.experimental.constrained.{name}.{suffix}(
    {parameters}, metadata !"round.dynamic", metadata !"fpexcept.ignore") strictfp
  call void @llvm.set.rounding(i32 1) strictfp
  ret {result} %r
}}"""


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


@functools.cache
def rows() -> dict[str, Row]:
    """Return the table by the names of its entries."""
    text = _COMMENT.sub("", Path(__file__).with_name("instructions.ll").read_text())
    _, *parts = _HEAD.split(text)
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
    kind, whole = word.type, (word.opcode, *word.flags)
    bare = [each for each in whole if each not in _MODIFIERS] if kind.floating else whole
    for name in (".".join(whole), ".".join(bare)):
        for suffix in (f".{kind.letter[-1]}{kind.bits}", f".{kind.letter[-1]}", ""):
            if name + suffix in rows():
                return rows()[name + suffix]
    raise Unknown


def evaluated(b: FunctionText, word: Word, values: Sequence[str]) -> str:
    """Return what the table computes of the values of an instruction."""
    kind, bits, signed = word.type, word.type.bits, word.type.signed
    names = dict(
        zip("abcd", values, strict=False),
        opcode=word.opcode,
        letter="s" if signed else "u",
        raw=kind.raw,
        bits=bits,
        most=bits - 1,
        wide=f"i{2 * bits}",
        extend="sext" if signed else "zext",
        extend0="sext" if word.types[0].signed else "zext",
        shift="shl" if word.opcode == "shl" else "ashr" if signed else "lshr",
        ir=kind.ir,
        suffix=kind.suffix,
        smallest=_SMALLEST.get(f"{kind.letter}{bits}", "0.0"),
    )
    return b.ir(row(word).body, names)


def computed(b: FunctionText, word: Word, given: Sequence[str]) -> str:
    """Return the bits that an instruction computes of bits; for each part of packed ones."""
    kind, flags = word.type, word.flags
    if kind.floating and len(word.types) > 1:
        # Such as `fma.rn.f32.f16`, whose operands differ in width.
        raise Unknown
    if kind.lanes > 1:
        single = word._replace(types=(kind.one,))
        columns = zip(*(b.parts(each, kind.width, kind.lanes) for each in given), strict=True)
        return b.joined([computed(b, single, each) for each in columns], kind.bits)
    if not kind.floating:
        return evaluated(b, word, given)
    values = [modified(b, kind, read(b, kind, each), flags, ["ftz"]) for each in given]
    rounding = next((each for each in flags if each in ("rz", "rp", "rm")), "")
    if rounding and kind.bits == 16:
        raise Unknown
    if rounding:
        name = _DIRECTED.get(word.opcode, f"f{word.opcode}")
        value = directed(b, name, kind.ir, rounding, kind.ir, *(["1.0"] * (word.opcode == "rcp")), *values)
    elif word.opcode in ("min", "max"):
        value = functools.reduce(lambda one, two: evaluated(b, word, (one, two)), values)
    else:
        value = evaluated(b, word, values)
    if row(word).result == "p":
        return value
    return write(b, kind, modified(b, kind, value, flags, ("relu", "sat", "ftz")))


def modified(b: FunctionText, kind: PtxType, value: str, flags: Sequence[str], which: Sequence[str]) -> str:
    """Return a float as those modifiers of *which* leave it that are among *flags*."""
    for each in which:
        if each in flags:
            value = evaluated(b, Word("flush" if each == "ftz" else each, (), (kind,)), [value])
    return value


def read(b: FunctionText, kind: PtxType, bits: str) -> str:
    """Return the value that bits are."""
    if not kind.floating:
        return bits
    if kind.bits == 16:
        return b.call(f"ptxlink.{kind.letter}16.read", "float", f"i16 {bits}")
    return b.let(f"bitcast {kind.raw} {bits} to {kind.ir}")


def write(b: FunctionText, kind: PtxType, value: str, rounding: str = "rn") -> str:
    """Return the bits of a value; of a half, rounded."""
    if not kind.floating:
        return value
    if kind.bits == 16:
        return b.call(f"ptxlink.{kind.letter}16.write", "i16", f"float {value}", f"i32 {MODES[rounding]}")
    return b.let(f"bitcast {kind.ir} {value} to {kind.raw}")


def directed(b: FunctionText, name: str, result: str, rounding: str, kind: str, *values: str) -> str:
    """Return what a function of LLVM such as "fadd" computes of values of a type, rounded in a direction."""
    own = f"ptxlink.{name}.{rounding}.{kind}.{result}"
    suffix = ".".join(
        {"float": "f32", "double": "f64"}.get(each, each) for each in dict.fromkeys((result, kind))
    )
    b.defined[own] = _ROUNDED.format(
        own=own,
        name=name,
        suffix=suffix,
        mode=MODES[rounding],
        result=result,
        parameters=", ".join(f"{kind} %a{number}" for number in range(len(values))),
    )
    return b.call(own, result, *(f"{kind} {each}" for each in values))
