"""
Print functions of LLVM IR as C++.

An instruction becomes a call of a function in `llvm.hpp`, which has LLVM's name and meaning. For example:

    %t1 = load i32, ptr %v1
    %t2 = add i32 %t1, 5            ->    v2_ = op_add(v1_, i32(5u));
    store i32 %t2, ptr %v2
"""

from __future__ import annotations

import functools
import re
import struct
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME = r'(?:"[^"]+"|[\w.$]+)'
_DEFINITION = re.compile(rf"define internal (\w+) @({_NAME})\(([^)]*)\)[\w ]*\{{\n(.*?)\n\}}", re.DOTALL)
_VARIABLE = re.compile(rf"@({_NAME}) = global <\{{.*?\}}> <\{{(.*)\}}>, align (\d+)")
_VALUE = re.compile(r"%[\w.]+")
# Parts of a line without a meaning in C++: comments, metadata, alignments and attributes. All atomic
# operations are sequentially consistent.
_IGNORED = re.compile(r"\s*;.*|, !\w+ !\d+|, align \d+|\btail |\bnoundef | (?:seq_cst|monotonic|noreturn)\b")
_TYPES = frozenset(("i1", "i8", "i16", "i32", "i64", "i128", "float", "double", "ptr", "void"))
# Stands for all memory that pointers lead to, among the variables that an expression reads.
_MEMORY = "memory"
_MAX_EXPRESSION_CHARS = 120
_ENDS = ("goto ", "return", "switch ", "__builtin_unreachable")

_CALL = re.compile(rf"call (\w+) @({_NAME})\((.*)\)")
_LOAD = re.compile(r"load (atomic )?(\w+), (ptr .+)")
_STORE = re.compile(r"store (atomic )?(.+)")
_UPDATE = re.compile(r"atomicrmw (\w+) (.+)")
_TYPED = re.compile(r"(select|cmpxchg) (.+)")
_ADDRESS = re.compile(r"getelementptr i8, (.+)")
_PART = re.compile(r"extractvalue \{(\w+), i1\} (%[\w.]+), ([01])")
_CAST = re.compile(r"(\w+) (\w+ .+) to (\w+)")
_COMPUTE = re.compile(r"((?:[if]cmp )?\w+) (\w+) (.+)")
_LOCAL = re.compile(r"alloca (?:(\w+)|\[(\d+) x i8\])")
_PHI = re.compile(r"(%[\w.]+) = phi (\w+) (.+)")
_INCOMING = re.compile(r"\[(.+?), %([\w.]+)\]")
_BRANCH = re.compile(r"br i1 (.+), label %([\w.]+), label %([\w.]+)")
_JUMP = re.compile(r"br label %([\w.]+)")
_SWITCH = re.compile(r"switch (\w+ .+), label %([\w.]+) \[(.*)\]")
_CASE = re.compile(r"i\d+ (\d+), label %([\w.]+)")


class NotInCxxError(Exception):
    """An instruction or a type of LLVM has no counterpart in `llvm.hpp`; the message is its name."""


class CxxFunction(NamedTuple):
    """
    A function in C++.

    Args:
        prototype: Its declaration, without a semicolon.
        body: Its statements, in braces.
        uses: The global symbols that it uses, by their names in LLVM IR.
    """

    prototype: str
    body: str
    uses: frozenset[str]


class _Operand(NamedTuple):
    """A value with its type."""

    type: str
    text: str


class _Operation(NamedTuple):
    """An instruction that has a value: the value's type, the C++ function, and its operands."""

    type: str
    function: str
    operands: list[_Operand]


@dataclass
class _Pending:
    """An expression that is printed where it is used, and the variables that it reads."""

    type: str
    text: str
    reads: set[str]


@functools.cache
def prelude() -> str:
    """Return the definitions that all functions need."""
    return Path(__file__).with_name("llvm.hpp").read_text()


@functools.cache
def _implemented() -> frozenset[str]:
    return frozenset(re.findall(r"\b(?:op|llvm)_\w+", prelude()))


def symbol(name: str) -> str:
    """Return the name in C++ of a global symbol, which may be in quotes."""
    return re.sub(r"\W", lambda match: "_" if match[0] == "." else f"_{ord(match[0]):x}_", name.strip('"'))


def definitions(ir: str) -> dict[str, str]:
    """Return the text of each internal function in LLVM IR, by its name."""
    return {match[2].strip('"'): match[0] for match in _DEFINITION.finditer(ir)}


def function(ir: str) -> CxxFunction:
    """
    Print an internal function.

    Raises:
        NotInCxxError: An instruction has no counterpart.
    """
    match = _DEFINITION.fullmatch(ir)
    if match is None:
        raise NotInCxxError(ir.partition("\n")[0])
    return _Printer().function(*match.groups())


def variable(ir: str) -> str:
    """
    Print a global variable.

    Raises:
        NotInCxxError: It contains an address.
    """
    match = _VARIABLE.fullmatch(ir)
    *values, zeros = match[2].split(", ") if match else [ir]
    content = b""
    for value in values:
        kind, _, number = value.partition(" ")
        if not number.removeprefix("-").isdigit():
            raise NotInCxxError(value)
        size = int(kind[1:]) // 8
        content += (int(number) % (1 << 8 * size)).to_bytes(size, "little")
    if match is None:
        raise NotInCxxError(ir)
    size = len(content) + int(zeros[1:].partition(" ")[0])
    numbers = ",".join(map(str, content.rstrip(b"\0"))) or "0"
    return f"alignas({match[3]}) unsigned char {symbol(match[1])}[{size}] = {{{numbers}}};"


class _Printer:
    """
    Prints one function, instruction by instruction.

    A value that is used once is printed at its use, unless a variable or the memory that it reads is written
    in between, or its use is in another block. All other values are variables of C++.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._declared: dict[str, list[str]] = {}
        self._arrays: list[str] = []
        # Allocas of one value are variables: all of them, and those that are loaded anywhere.
        self._scalars: set[str] = set()
        self._loaded: set[str] = set()
        # Variables that begin with zero.
        self._zeroed: set[str] = set()
        self._pending: dict[str, _Pending] = {}
        # The variables that the current expression reads.
        self._reads: set[str] = set()
        self._symbols: set[str] = set()
        self._use_counts = Counter[str]()
        # The values that each block passes to phi instructions.
        self._outgoing: dict[str, list[tuple[str, _Operand]]] = {}
        self._block = "entry"

    def function(self, result: str, name: str, params: str, body: str) -> CxxFunction:
        """Print a function, given the parts of its definition."""
        lines = [line for text in body.split("\n") if (line := _IGNORED.sub("", text).strip())]
        self._scan(lines)
        for line in lines:
            if line.endswith(":"):
                self._begin_block(line[:-1])
            elif " = " in line:
                self._assign(*line.split(" = ", 1))
            else:
                self._statement(line)
        formals = ", ".join(f"{_type(param.type)} {_local(param.text)}" for param in _operands(params))
        declared = [
            f"{kind} {', '.join(name + ' = 0' * (name in self._zeroed) for name in names)};"
            for kind, names in self._declared.items()
        ]
        text = "".join(f"  {line}\n" for line in (*self._arrays, *declared, *self._reachable_lines()))
        prototype = f"inline {_type(result)} {symbol(name)}({formals})"
        return CxxFunction(prototype, f"{{\n{text}}}", frozenset(self._symbols))

    def _reachable_lines(self) -> Iterator[str]:
        """Yield the statements without labels that no jump names, and without blocks that nothing reaches."""
        targets = set(re.findall(r"goto (\w+);", "\n".join(self._lines)))
        is_reachable = True
        for line in self._lines:
            is_label = line.endswith(":;")
            is_reachable |= is_label and line[:-2] in targets
            if is_reachable and not (is_label and line[:-2] not in targets):
                yield line
            is_reachable &= not line.startswith(_ENDS)

    def _scan(self, lines: list[str]) -> None:
        """Count the uses of values; find the variables that are loaded, and what phi instructions get."""
        for line in lines:
            instruction = line.partition(" = ")[2] or line
            self._use_counts.update(_VALUE.findall(instruction))
            if match := _LOAD.fullmatch(instruction):
                self._loaded.add(match[3].removeprefix("ptr "))
            if match := _PHI.fullmatch(line):
                for value, block in _INCOMING.findall(match[3]):
                    self._outgoing.setdefault(block, []).append((match[1], _Operand(match[2], value)))
        if len({*map(_local, self._use_counts)}) < len(self._use_counts):
            raise NotInCxxError("two names that differ in punctuation")

    # Values

    def _value(self, operand: _Operand) -> str:
        """Return an operand as an expression."""
        kind, text = operand
        if text in self._pending:
            pending = self._pending.pop(text)
            self._reads |= pending.reads
            return pending.text
        if text[0] == "%":
            return _local(text)
        if address := re.fullmatch(rf"ptrtoint \(ptr @({_NAME}) to i64\)", text):
            self._symbols.add(address[1].strip('"'))
            return f"op_ptrtoint<i64>({symbol(address[1])})"
        return _constant(kind, text)

    def _values(self, operands: list[_Operand]) -> str:
        return ", ".join(map(self._value, operands))

    def _expression(self, operation: _Operation) -> str:
        """Return an expression that computes the value of an instruction."""
        _, name, operands = operation
        if name.startswith("op_load"):
            self._reads.add(operands[0].text if operands[0].text in self._scalars else _MEMORY)
            if operands[0].text in self._scalars:
                return _local(operands[0].text)
        if name.startswith("part_"):
            return f"{self._values(operands)}.{name}"
        if not name.startswith(("op_", "llvm_")):
            self._symbols.add(name.strip('"'))
            name = symbol(name)
        elif name.partition("<")[0] not in _implemented():
            raise NotInCxxError(name)
        return f"{name}({self._values(operands)})"

    # Statements

    def _assign(self, name: str, text: str) -> None:
        """Print an instruction that has a value, or keep it until its use."""
        if match := _LOCAL.fullmatch(text):
            if match[2]:
                self._arrays.append(f"alignas(16) char {_local(name)}[{match[2]}];")
                return
            self._scalars.add(name)
            if name in self._loaded:
                self._declare(match[1], name)
            return
        if match := _PHI.fullmatch(f"{name} = {text}"):
            self._declare(match[2], name)
            self._lines.append(f"{_local(name)} = {_incoming(name)};")
            return
        self._reads = set()
        operation = _parse(text)
        expression = self._expression(operation)
        if _has_effects(operation.function):
            self._flush(_MEMORY)
        elif not self._use_counts[name]:
            return
        elif self._use_counts[name] == 1 and len(expression) <= _MAX_EXPRESSION_CHARS:
            self._pending[name] = _Pending(operation.type, expression, self._reads)
            return
        self._declare(operation.type, name)
        self._lines.append(f"{_local(name)} = {expression};")

    def _declare(self, kind: str, name: str) -> None:
        names = self._declared.setdefault(kind, [])
        if _local(name) not in names:
            names.append(_local(name))

    def _flush(self, written: str | None = None) -> None:
        """Print the pending expressions that read a variable before it is written; by default all."""
        for name, pending in list(self._pending.items()):
            if written is None or written in pending.reads:
                del self._pending[name]
                self._declare(pending.type, name)
                self._lines.append(f"{_local(name)} = {pending.text};")

    def _begin_block(self, name: str) -> None:
        self._flush()
        if self._lines[-1:] == [f"goto {_local(name)};"]:
            self._lines.pop()
        self._lines.append(f"{_local(name)}:;")
        self._block = name

    def _statement(self, text: str) -> None:
        """Print an instruction without a value."""
        if match := _STORE.fullmatch(text):
            self._store(*_operands(match[2]), ordered=bool(match[1]))
        elif text.startswith(("call ", "fence")):
            call = self._expression(_Operation("void", "op_fence", []) if text == "fence" else _parse(text))
            self._flush(_MEMORY)
            self._lines.append(f"{call};")
        else:
            end = self._end_block(text)
            self._flush()
            for name, operand in self._outgoing.get(self._block, ()):
                self._declare(operand.type, f"{name}.incoming")
                self._lines.append(f"{_incoming(name)} = {self._value(operand)};")
            self._lines += end

    def _store(self, value: _Operand, target: _Operand, *, ordered: bool) -> None:
        expression = self._value(value)
        if target.text not in self._scalars:
            address = self._value(target)
            self._flush(_MEMORY)
            self._lines.append(f"op_store{'_atomic' * ordered}({expression}, {address});")
            return
        self._flush(target.text)
        if self._block == "entry" and value.text == "0":
            self._zeroed.add(_local(target.text))
        elif target.text in self._loaded:
            self._lines.append(f"{_local(target.text)} = {expression};")

    def _end_block(self, text: str) -> list[str]:
        if match := _BRANCH.fullmatch(text):
            condition = self._value(_Operand("i1", match[1]))
            return [f"if ({condition}) goto {_local(match[2])};", f"goto {_local(match[3])};"]
        if match := _JUMP.fullmatch(text):
            return [f"goto {_local(match[1])};"]
        if match := _SWITCH.fullmatch(text):
            cases = (f"case {number}: goto {_local(label)};" for number, label in _CASE.findall(match[3]))
            default = f"default: goto {_local(match[2])};"
            return [f"switch ({self._values(_operands(match[1]))}) {{ {' '.join(cases)} {default} }}"]
        if text == "unreachable":
            return ["__builtin_unreachable();"]
        if not text.startswith("ret "):
            raise NotInCxxError(text)
        value = text.removeprefix("ret ")
        return ["return;" if value == "void" else f"return {self._values(_operands(value))};"]


def _parse(text: str) -> _Operation:
    """Return an instruction that has a value."""
    if match := _CALL.fullmatch(text):
        name = match[2]
        if name.startswith("llvm."):
            name = symbol(re.sub(r"\.(?:[if]\d+|p0)(?=\.|$)", "", name))
            name += f"<{match[1]}>" if name.startswith("llvm_fpto") else ""
        return _Operation(match[1], name, _operands(match[3]))
    if match := _LOAD.fullmatch(text):
        return _Operation(match[2], f"op_load{'_atomic' * bool(match[1])}<{match[2]}>", _operands(match[3]))
    if match := _PART.fullmatch(text):
        kind = "i1" if match[3] == "1" else match[1]
        return _Operation(kind, f"part_{match[3]}", [_Operand("", match[2])])
    if match := _ADDRESS.fullmatch(text):
        return _Operation("ptr", "op_getelementptr", _operands(match[1]))
    if match := _UPDATE.fullmatch(text):
        operands = _operands(match[2])
        return _Operation(operands[-1].type, f"op_atomicrmw_{match[1]}", operands)
    if match := _TYPED.fullmatch(text):
        operands = _operands(match[2])
        kind = operands[-1].type
        return _Operation(f"exchanged<{kind}>" if match[1] == "cmpxchg" else kind, f"op_{match[1]}", operands)
    if match := _CAST.fullmatch(text):
        return _Operation(match[3], f"op_{match[1]}<{_type(match[3])}>", _operands(match[2]))
    if match := _COMPUTE.fullmatch(text):
        opcode, kind, values = match.groups()
        operands = [_Operand(_type(kind), value) for value in _split(values)]
        return _Operation("i1" if "cmp " in opcode else kind, f"op_{opcode.replace(' ', '_')}", operands)
    raise NotInCxxError(text)


def _has_effects(name: str) -> bool:
    """Return whether a function may write memory, or has to read it in the order of the program."""
    return name.startswith(("op_atomicrmw", "op_cmpxchg", "op_load_atomic"))


def _operands(text: str) -> list[_Operand]:
    """Return the operands of a list such as "i32 %a, i1 true"."""
    pairs = (part.partition(" ") for part in _split(text))
    return [_Operand(_type(kind), value) for kind, _, value in pairs]


def _split(text: str) -> list[str]:
    """Return the parts of *text* between commas that are not in parentheses."""
    return [part.strip() for part in re.findall(r"(?:[^,(]|\([^)]*\))+", text)]


def _type(kind: str) -> str:
    if kind not in _TYPES:
        raise NotInCxxError(kind)
    return kind


def _local(name: str) -> str:
    """Return the name in C++ of a value or a label: no keyword ends with an underscore."""
    return f"{name.lstrip('%').replace('.', '_')}_"


def _incoming(name: str) -> str:
    """Return the variable by which blocks pass values to a phi instruction."""
    return _local(f"{name}.incoming")


def _constant(kind: str, text: str) -> str:
    """Return a number or a null pointer."""
    if kind in ("float", "double"):
        return _float(kind, text)
    if kind == "i1":
        return "false" if text in ("false", "0") else "true"
    if kind == "ptr" or text == "poison":
        return f"{_type(kind)}(0)"
    number = int(text) % (1 << int(_type(kind)[1:]))
    if number >> 64:
        # Numbers of 128 bits are at least -2**64.
        return f"i128(-s128({(1 << 128) - number}u))"
    return f"{kind}({number}{'u' if number < 1 << 32 else 'ull'})"


def _float(kind: str, text: str) -> str:
    """Return a float by its bits: no C++ before C++17 has hexadecimal floats."""
    value = struct.unpack(">d", bytes.fromhex(text[2:]))[0] if text.startswith("0x") else float(text)
    if kind == "float":
        return f"f32(0x{struct.pack('>f', value).hex()}u)"
    return f"f64(0x{struct.pack('>d', value).hex()}ull)"
