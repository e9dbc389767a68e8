"""
Convert instructions of LLVM IR that have a value to expressions in C++.

An instruction becomes a call of a function in `llvm.hpp`, which has LLVM's name and meaning. For example,
`add i32 %t1, 5` becomes `op_add(t1_, i32(5u))`.
"""

from __future__ import annotations

import functools
import re
import struct
from pathlib import Path
from typing import NamedTuple

NAME = r'(?:"[^"]+"|[\w.$]+)'
"""Matches a global symbol in LLVM IR, after its `@`."""
_TYPES = frozenset(("i1", "i8", "i16", "i32", "i64", "i128", "float", "double", "ptr", "void"))

_CALL = re.compile(rf"call (\w+) @({NAME})\((.*)\)")
_LOAD = re.compile(r"load (atomic )?(\w+), (ptr .+)")
_UPDATE = re.compile(r"atomicrmw (\w+) (.+)")
_TYPED = re.compile(r"(select|cmpxchg) (.+)")
_ADDRESS = re.compile(r"getelementptr i8, (.+)")
_PART = re.compile(r"extractvalue \{(\w+), i1\} (%[\w.]+), ([01])")
_CAST = re.compile(r"(\w+) (\w+ .+) to (\w+)")
_COMPUTE = re.compile(r"((?:[if]cmp )?\w+) (\w+) (.+)")


class NotInCxxError(Exception):
    """An instruction or a type of LLVM has no counterpart in `llvm.hpp`; the message is its name."""


class Operand(NamedTuple):
    """A value with its type."""

    type: str
    text: str


class Expression(NamedTuple):
    """
    An expression in C++.

    Args:
        type: The type of the value.
        text: The expression.
        uses: The global symbols that the expression uses, by their names in LLVM IR.
    """

    type: str
    text: str
    uses: set[str]


@functools.cache
def prelude() -> str:
    """Return the definitions that all functions need."""
    return Path(__file__).with_name("llvm.hpp").read_text()


@functools.cache
def _prelude_functions() -> frozenset[str]:
    return frozenset(re.findall(r"\b(?:op|llvm)_\w+", prelude()))


def symbol(name: str) -> str:
    """Return the name in C++ of a global symbol, which may be in quotes."""
    return re.sub(r"\W", lambda match: "_" if match[0] == "." else f"_{ord(match[0]):x}_", name.strip('"'))


def local(name: str) -> str:
    """Return the name in C++ of a value or a label, which is no keyword by its last underscore."""
    return f"{name.lstrip('%').replace('.', '_')}_"


def operands(text: str) -> list[Operand]:
    """Return the operands of a list such as "i32 %a, i1 true"."""
    pairs = (part.partition(" ") for part in _split(text))
    return [Operand(cxx_type(kind), value) for kind, _, value in pairs]


def cxx_type(kind: str) -> str:
    """
    Return the name in C++ of a type.

    Raises:
        NotInCxxError: The type has no counterpart.
    """
    if kind not in _TYPES:
        raise NotInCxxError(kind)
    return kind


def expression(text: str) -> Expression:
    """
    Return the value of an instruction.

    Raises:
        NotInCxxError: The instruction has no counterpart.
    """
    if match := _PART.fullmatch(text):
        return Expression(
            ("i1" if match[3] == "1" else match[1]), f"{local(match[2])}.part_{match[3]}", set()
        )
    if match := _LOAD.fullmatch(text):
        return _call(match[2], f"op_load{'_atomic' * bool(match[1])}<{match[2]}>", operands(match[3]))
    if match := _ADDRESS.fullmatch(text):
        return _call("ptr", "op_getelementptr", operands(match[1]))
    if match := _UPDATE.fullmatch(text):
        passed = operands(match[2])
        return _call(passed[-1].type, f"op_atomicrmw_{match[1]}", passed)
    if match := _TYPED.fullmatch(text):
        passed = operands(match[2])
        kind = passed[-1].type
        return _call(f"exchanged<{kind}>" if match[1] == "cmpxchg" else kind, f"op_{match[1]}", passed)
    if match := _CAST.fullmatch(text):
        return _call(match[3], f"op_{match[1]}<{cxx_type(match[3])}>", operands(match[2]))
    if match := _CALL.fullmatch(text):
        return _function_call(*match.groups())
    if match := _COMPUTE.fullmatch(text):
        opcode, kind, values = match.groups()
        passed = [Operand(cxx_type(kind), value) for value in _split(values)]
        return _call("i1" if "cmp " in opcode else kind, f"op_{opcode.replace(' ', '_')}", passed)
    raise NotInCxxError(text)


def values(passed: list[Operand]) -> Expression:
    """Return operands, separated by commas, with the symbols that they use."""
    parts = [_value(operand) for operand in passed]
    return Expression("", ", ".join(part.text for part in parts), set().union(*(part.uses for part in parts)))


def _call(kind: str, function: str, passed: list[Operand]) -> Expression:
    """Return a call of a function of the prelude."""
    if function.partition("<")[0] not in _prelude_functions():
        raise NotInCxxError(function)
    arguments = values(passed)
    return Expression(kind, f"{function}({arguments.text})", arguments.uses)


def _function_call(kind: str, name: str, arguments: str) -> Expression:
    if name.startswith("llvm."):
        name = symbol(re.sub(r"\.(?:[if]\d+|p0)(?=\.|$)", "", name))
        return _call(kind, f"{name}<{kind}>" if name.startswith("llvm_fpto") else name, operands(arguments))
    passed = values(operands(arguments))
    return Expression(kind, f"{symbol(name)}({passed.text})", passed.uses | {name.strip('"')})


def _value(operand: Operand) -> Expression:
    kind, text = operand
    if text[0] == "%":
        return Expression(kind, local(text), set())
    if address := re.fullmatch(rf"ptrtoint \(ptr @({NAME}) to i64\)", text):
        return Expression(kind, f"op_ptrtoint<i64>({symbol(address[1])})", {address[1].strip('"')})
    return Expression(kind, _constant(kind, text), set())


def _split(text: str) -> list[str]:
    """Return the parts of *text* between commas that are not in parentheses."""
    return [part.strip() for part in re.findall(r"(?:[^,(]|\([^)]*\))+", text)]


def _constant(kind: str, text: str) -> str:
    """Return a number or a null pointer."""
    if kind in ("float", "double"):
        return _float(kind, text)
    if kind == "i1":
        return "false" if text in ("false", "0") else "true"
    if kind == "ptr" or text == "poison":
        return f"{cxx_type(kind)}(0)"
    number = int(text) % (1 << int(cxx_type(kind)[1:]))
    if number >> 64:
        # Numbers of 128 bits are at least -2**64.
        return f"i128(-s128({(1 << 128) - number}u))"
    return f"{kind}({number}u)"


def _float(kind: str, text: str) -> str:
    """Return a float by its bits, since C++ before C++17 has no hexadecimal floats."""
    value = struct.unpack(">d", bytes.fromhex(text[2:]))[0] if text.startswith("0x") else float(text)
    if kind == "float":
        return f"f32(0x{struct.pack('>f', value).hex()}u)"
    return f"f64(0x{struct.pack('>d', value).hex()}ull)"
