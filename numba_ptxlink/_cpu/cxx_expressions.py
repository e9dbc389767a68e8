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
_SELECT_OR_CMPXCHG = re.compile(r"(select|cmpxchg) (.+)")
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
    """Return the name in C++ of a value or label; its last underscore keeps it from being a keyword."""
    return f"{name.lstrip('%').replace('.', '_')}_"


def operands(text: str) -> list[Operand]:
    """Return the operands of a list such as "i32 %a, i1 true"."""
    pairs = (part.partition(" ") for part in _split(text))
    return [Operand(checked_type(llvm_type), value) for llvm_type, _, value in pairs]


def checked_type(llvm_type: str) -> str:
    """
    Return *llvm_type*, which is its name in C++, too.

    Raises:
        NotInCxxError: The type has no counterpart.
    """
    if llvm_type not in _TYPES:
        raise NotInCxxError(llvm_type)
    return llvm_type


def expression(text: str) -> Expression:
    """
    Convert an instruction that has a value to an expression.

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
    if match := _SELECT_OR_CMPXCHG.fullmatch(text):
        passed = operands(match[2])
        llvm_type = passed[-1].type
        return _call(
            f"exchanged<{llvm_type}>" if match[1] == "cmpxchg" else llvm_type, f"op_{match[1]}", passed
        )
    if match := _CAST.fullmatch(text):
        return _call(match[3], f"op_{match[1]}<{checked_type(match[3])}>", operands(match[2]))
    if match := _CALL.fullmatch(text):
        return _function_call(*match.groups())
    if match := _COMPUTE.fullmatch(text):
        opcode, llvm_type, values = match.groups()
        passed = [Operand(checked_type(llvm_type), value) for value in _split(values)]
        return _call("i1" if "cmp " in opcode else llvm_type, f"op_{opcode.replace(' ', '_')}", passed)
    raise NotInCxxError(text)


def values(passed: list[Operand]) -> Expression:
    """Return operands, separated by commas, with the symbols that they use."""
    parts = [_value(operand) for operand in passed]
    return Expression("", ", ".join(part.text for part in parts), set().union(*(part.uses for part in parts)))


def _call(llvm_type: str, function: str, passed: list[Operand]) -> Expression:
    """Return a call of a function of the prelude."""
    if function.partition("<")[0] not in _prelude_functions():
        raise NotInCxxError(function)
    arguments = values(passed)
    return Expression(llvm_type, f"{function}({arguments.text})", arguments.uses)


def _function_call(llvm_type: str, name: str, arguments: str) -> Expression:
    if name.startswith("llvm."):
        # For example llvm_smax for llvm.smax.i32: C++ selects the overload by the operands.
        name = symbol(re.sub(r"\.(?:[if]\d+|p0)(?=\.|$)", "", name))
        # The result type of llvm.fptosi.sat and llvm.fptoui.sat does not follow from the operand.
        return _call(
            llvm_type, f"{name}<{llvm_type}>" if name.startswith("llvm_fpto") else name, operands(arguments)
        )
    passed = values(operands(arguments))
    return Expression(llvm_type, f"{symbol(name)}({passed.text})", passed.uses | {name.strip('"')})


def _value(operand: Operand) -> Expression:
    llvm_type, text = operand
    if text[0] == "%":
        return Expression(llvm_type, local(text), set())
    if address := re.fullmatch(rf"ptrtoint \(ptr @({NAME}) to i64\)", text):
        return Expression(llvm_type, f"op_ptrtoint<i64>({symbol(address[1])})", {address[1].strip('"')})
    return Expression(llvm_type, _constant(llvm_type, text), set())


def _split(text: str) -> list[str]:
    """Return the parts of *text* between commas that are not in parentheses."""
    return [part.strip() for part in re.findall(r"(?:[^,(]|\([^)]*\))+", text)]


def _constant(llvm_type: str, text: str) -> str:
    """Return a number or a null pointer."""
    if llvm_type in ("float", "double"):
        return _float(llvm_type, text)
    if llvm_type == "i1":
        return "false" if text in ("false", "0") else "true"
    if llvm_type == "ptr" or text == "poison":
        return f"{checked_type(llvm_type)}(0)"
    number = int(text) % (1 << int(checked_type(llvm_type)[1:]))
    if number >> 64:
        # C++ has no literal of 128 bits. Constants of PTX have 64 bits, so that such a number is negative,
        # and at least -2**64.
        return f"i128(-s128({(1 << 128) - number}u))"
    return f"{llvm_type}({number}u)"


def _float(llvm_type: str, text: str) -> str:
    """Return a float by its bits, since C++ before C++17 has no hexadecimal floats."""
    value = struct.unpack(">d", bytes.fromhex(text[2:]))[0] if text.startswith("0x") else float(text)
    if llvm_type == "float":
        return f"f32(0x{struct.pack('>f', value).hex()}u)"
    return f"f64(0x{struct.pack('>d', value).hex()}ull)"
