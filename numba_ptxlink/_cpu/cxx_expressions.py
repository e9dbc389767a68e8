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
# LLVM's types that `llvm.hpp` has, under the same names.
_TYPES = frozenset(("i1", "i8", "i16", "i32", "i64", "i128", "float", "double", "ptr", "void"))

# Each pattern is followed by an instruction that it matches. Instructions come here without the alignments,
# memory orders and metadata of LLVM IR, which `cxx` removes.
_CALL = re.compile(rf"call (\w+) @({NAME})\((.*)\)")  # call i32 @f(i32 %a)
_LOAD = re.compile(r"load (atomic )?(\w+), (ptr .+)")  # load atomic i32, ptr %p
_ATOMICRMW = re.compile(r"atomicrmw (\w+) (.+)")  # atomicrmw add ptr %p, i32 %a
_SELECT_OR_CMPXCHG = re.compile(r"(select|cmpxchg) (.+)")  # select i1 %c, i32 %a, i32 %b
_GETELEMENTPTR = re.compile(r"getelementptr i8, (.+)")  # getelementptr i8, ptr %p, i64 4
_EXTRACTVALUE = re.compile(r"extractvalue \{(\w+), i1\} (%[\w.]+), ([01])")  # extractvalue {i32, i1} %a, 0
_CAST = re.compile(r"(\w+) (\w+ .+) to (\w+)")  # zext i8 %a to i32
_ARITHMETIC = re.compile(r"((?:[if]cmp )?\w+) (\w+) (.+)")  # add i32 %a, %b; icmp eq i32 %a, 0


class NotInCxxError(Exception):
    """An instruction, type or constant of LLVM IR has no counterpart in C++. The message is its text."""


class Operand(NamedTuple):
    """
    A value in LLVM IR.

    Args:
        type: The type, such as "i32".
        text: The name or the constant, such as "%a" or "5".
    """

    type: str
    text: str


class Expression(NamedTuple):
    """
    An expression in C++.

    Args:
        type: The type of the value, such as "i32".
        text: The expression.
        uses: The global symbols that the expression uses, by their names in LLVM IR.
    """

    type: str
    text: str
    uses: set[str]


@functools.cache
def prelude() -> str:
    """Return the text of `llvm.hpp`, which all converted functions need before them."""
    return Path(__file__).with_name("llvm.hpp").read_text()


@functools.cache
def _prelude_functions() -> frozenset[str]:
    """Return the names of the functions of `llvm.hpp`, such as op_add and llvm_fabs."""
    return frozenset(re.findall(r"\b(?:op|llvm)_\w+", prelude()))


def symbol_name(name: str) -> str:
    """
    Return the name in C++ of a global symbol, which may be in quotes.

    Characters that C++ forbids are replaced: "f.a$b" becomes f_a_24_b, where 24 is the code of the dollar.
    """
    return re.sub(r"\W", lambda match: "_" if match[0] == "." else f"_{ord(match[0]):x}_", name.strip('"'))


def local_name(name: str) -> str:
    """Return the name in C++ of a value or label, "t1_" for "%t1"; the last "_" avoids keywords of C++."""
    return f"{name.lstrip('%').replace('.', '_')}_"


def parse_operands(text: str) -> list[Operand]:
    """Return the operands of a list such as "i32 %a, i1 true"."""
    pairs = (part.partition(" ") for part in _split_list(text))
    return [Operand(checked_type(llvm_type), value) for llvm_type, _, value in pairs]


def checked_type(llvm_type: str) -> str:
    """
    Return *llvm_type*, whose name in C++ is the same.

    Raises:
        NotInCxxError: `llvm.hpp` lacks the type.
    """
    if llvm_type not in _TYPES:
        raise NotInCxxError(llvm_type)
    return llvm_type


def convert_instruction(text: str) -> Expression:
    """
    Convert an instruction that has a value, or a call without one, to an expression.

    Raises:
        NotInCxxError: The instruction has no counterpart in C++.
    """
    # _ARITHMETIC comes last, since it matches instructions of other patterns, too.
    if match := _EXTRACTVALUE.fullmatch(text):
        first_type, pair, index = match.groups()
        llvm_type = "i1" if index == "1" else first_type
        return Expression(llvm_type, f"{local_name(pair)}.part_{index}", set())
    if match := _LOAD.fullmatch(text):
        is_atomic, llvm_type, pointer = match.groups()
        name = "op_load_atomic" if is_atomic else "op_load"
        return _call_prelude(llvm_type, f"{name}<{llvm_type}>", parse_operands(pointer))
    if match := _GETELEMENTPTR.fullmatch(text):
        return _call_prelude("ptr", "op_getelementptr", parse_operands(match[1]))
    if match := _ATOMICRMW.fullmatch(text):
        operands = parse_operands(match[2])
        return _call_prelude(operands[-1].type, f"op_atomicrmw_{match[1]}", operands)
    if match := _SELECT_OR_CMPXCHG.fullmatch(text):
        operands = parse_operands(match[2])
        value_type = operands[-1].type
        # The result of cmpxchg is a pair, whose members are read by extractvalue.
        result_type = f"exchanged<{value_type}>" if match[1] == "cmpxchg" else value_type
        return _call_prelude(result_type, f"op_{match[1]}", operands)
    if match := _CAST.fullmatch(text):
        opcode, operand, llvm_type = match.groups()
        return _call_prelude(llvm_type, f"op_{opcode}<{checked_type(llvm_type)}>", parse_operands(operand))
    if match := _CALL.fullmatch(text):
        return _call_function(*match.groups())
    if match := _ARITHMETIC.fullmatch(text):
        opcode, llvm_type, values = match.groups()
        operands = [Operand(checked_type(llvm_type), value) for value in _split_list(values)]
        result_type = "i1" if opcode.startswith(("icmp ", "fcmp ")) else llvm_type
        return _call_prelude(result_type, f"op_{opcode.replace(' ', '_')}", operands)
    raise NotInCxxError(text)


def join_values(operands: list[Operand]) -> tuple[str, set[str]]:
    """Return operands in C++, separated by commas, and the global symbols that they use."""
    parts = [_convert_value(operand) for operand in operands]
    return ", ".join(part.text for part in parts), set().union(*(part.uses for part in parts))


def _call_prelude(result_type: str, function: str, operands: list[Operand]) -> Expression:
    """Return a call of a function of `llvm.hpp`, such as "op_add" or "op_zext<i32>"."""
    if function.partition("<")[0] not in _prelude_functions():
        raise NotInCxxError(function)
    arguments, uses = join_values(operands)
    return Expression(result_type, f"{function}({arguments})", uses)


def _call_function(result_type: str, name: str, arguments: str) -> Expression:
    """Return a call of an intrinsic of LLVM, or of a function of the module."""
    operands = parse_operands(arguments)
    if name.startswith("llvm."):
        # For example llvm_smax for llvm.smax.i32: C++ selects the overload by the operands.
        function = symbol_name(re.sub(r"\.(?:[if]\d+|p0)(?=\.|$)", "", name))
        if function.startswith("llvm_fpto"):
            # The result type of llvm.fptosi.sat and llvm.fptoui.sat does not follow from the operand.
            function = f"{function}<{result_type}>"
        return _call_prelude(result_type, function, operands)
    values, uses = join_values(operands)
    return Expression(result_type, f"{symbol_name(name)}({values})", uses | {name.strip('"')})


def _convert_value(operand: Operand) -> Expression:
    """Convert a value, a constant, or the address of a global symbol."""
    llvm_type, text = operand
    if text[0] == "%":
        return Expression(llvm_type, local_name(text), set())
    if address := re.fullmatch(rf"ptrtoint \(ptr @({NAME}) to i64\)", text):
        return Expression(llvm_type, f"op_ptrtoint<i64>({symbol_name(address[1])})", {address[1].strip('"')})
    return Expression(llvm_type, _convert_constant(llvm_type, text), set())


def _split_list(text: str) -> list[str]:
    """Split *text* at commas, except for those in parentheses: "i32 %a, i64 ptrtoint (ptr @x to i64)"."""
    return [part.strip() for part in re.findall(r"(?:[^,(]|\([^)]*\))+", text)]


def _convert_constant(llvm_type: str, text: str) -> str:
    """Convert a number, `null` or `poison`."""
    if llvm_type in ("float", "double"):
        return _convert_float(llvm_type, text)
    if llvm_type == "i1":
        return "false" if text in ("false", "0") else "true"
    # The address of a symbol is an integer, by ptrtoint, so that the only constant of type ptr is null.
    if llvm_type == "ptr" or text == "poison":
        return f"{checked_type(llvm_type)}(0)"
    number = int(text) % (1 << int(checked_type(llvm_type)[1:]))
    if number >> 64:
        # C++ has no literal of 128 bits. Constants of PTX have 64 bits, so a longer number stands for a
        # negative constant: write it as minus its absolute value.
        return f"i128(-s128({(1 << 128) - number}u))"
    return f"{llvm_type}({number}u)"


def _convert_float(llvm_type: str, text: str) -> str:
    """
    Convert a constant, written as a number (1.0) or as bits in hexadecimal (0x3FF0000000000000).

    In LLVM IR, the bits are those of a double, even for a float. In C++, they are those of the type,
    which the functions f32 and f64 of `llvm.hpp` take. Numbers become bits, too, so that they are exact:
    C++ before C++17 has no hexadecimal floats.
    """
    value = struct.unpack(">d", bytes.fromhex(text[2:]))[0] if text.startswith("0x") else float(text)
    if llvm_type == "float":
        return f"f32(0x{struct.pack('>f', value).hex()}u)"
    return f"f64(0x{struct.pack('>d', value).hex()}ull)"
