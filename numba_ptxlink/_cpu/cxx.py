"""
Print functions and variables of LLVM IR as C++, one instruction a line.

Each value becomes a variable that is assigned once; memory for a PTX register becomes a variable, too. For
example:

    %t1 = load i32, ptr %v1               t1_ = v1_;
    %t2 = add i32 %t1, 5            ->    t2_ = op_add(t1_, i32(5u));
    store i32 %t2, ptr %v2                v2_ = t2_;

The text may contain directives `#line` of C++, which apply to the instructions up to the next one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .cxx_expressions import (
    NAME,
    Expression,
    NotInCxxError,
    Operand,
    checked_type,
    expression,
    local,
    operands,
    prelude,
    symbol,
    values,
)

__all__ = [
    "OWN_LINE",
    "CxxFunction",
    "NotInCxxError",
    "definitions",
    "function",
    "prelude",
    "symbol",
    "variable",
]

OWN_LINE = "#line 1 // of this file"
"""Stands for a directive with the number of the line after it, behind code that has lines of other files."""
_DEFINITION = re.compile(rf"define internal (\w+) @({NAME})\(([^)]*)\)[\w ]*\{{\n(.*?)\n\}}", re.DOTALL)
_VARIABLE = re.compile(rf"@({NAME}) = global <\{{.*?\}}> <\{{(.*)\}}>, align (\d+)")
# Parts of a line without a meaning in C++: comments, metadata, alignments and attributes. All atomic
# operations are sequentially consistent.
_IGNORED = re.compile(r"\s*;.*|, !\w+ !\d+|, align \d+|\btail |\bnoundef | (?:seq_cst|monotonic|noreturn)\b")
_TARGET = re.compile(r"label %([\w.]+)")

_LOCAL = re.compile(r"alloca (?:(\w+)|\[(\d+) x i8\])")
_REGISTER = re.compile(r"load \w+, ptr (%[\w.]+)")
_STORE = re.compile(r"store (atomic )?(.+)")
_BRANCH = re.compile(r"br i1 (.+), label %([\w.]+), label %([\w.]+)")
_JUMP = re.compile(r"br label %([\w.]+)")


class CxxFunction(NamedTuple):
    """
    A function in C++.

    Args:
        prototype: The declaration, without a semicolon.
        body: The statements, in braces.
        uses: The global symbols that the function uses, by their names in LLVM IR.
    """

    prototype: str
    body: str
    uses: frozenset[str]


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
    result, name, params, body = match.groups()
    formals = ", ".join(f"{param.type} {local(param.text)}" for param in operands(params))
    printer = _Printer()
    printer.print_body(body)
    return CxxFunction(
        f"inline {checked_type(result)} {symbol(name)}({formals})", printer.to_text(), frozenset(printer.uses)
    )


def variable(ir: str) -> str:
    """
    Print a global variable.

    Raises:
        NotInCxxError: The variable contains an address.
    """
    match = _VARIABLE.fullmatch(ir)
    *fields, zeros = match[2].split(", ") if match else [ir]
    content = b""
    for field in fields:
        kind, _, number = field.partition(" ")
        if not number.removeprefix("-").isdigit():
            raise NotInCxxError(field)
        size = int(kind[1:]) // 8
        content += (int(number) % (1 << 8 * size)).to_bytes(size, "little")
    if match is None:
        raise NotInCxxError(ir)
    size = len(content) + int(zeros[1:].partition(" ")[0])
    numbers = ",".join(map(str, content.rstrip(b"\0"))) or "0"
    return f"alignas({match[3]}) unsigned char {symbol(match[1])}[{size}] = {{{numbers}}};"


class _Printer:
    """
    The statements of one function, printed instruction by instruction.

    Attributes:
        uses: The global symbols that the statements use, by their names in LLVM IR.
    """

    def __init__(self) -> None:
        self.uses: set[str] = set()
        self._lines: list[str] = []
        self._directive = ""
        self._arrays: list[str] = []
        # The types of `alloca` instructions for one value, and of variables in C++.
        self._registers: dict[str, str] = {}
        self._types: dict[str, str] = {}

    def print_body(self, body: str) -> None:
        """Print the blocks that can be reached. Compilers would warn of the unused labels of other blocks."""
        blocks = _split_blocks(body)
        pending = reachable = {"entry"}
        while pending:
            targets = {target for name in pending for target in _TARGET.findall(blocks[name][-1])}
            pending = targets - reachable
            reachable = reachable | pending
        for name, lines in blocks.items():
            if name in reachable:
                self._lines += [f"{local(name)}:;"] * (name != "entry")
                for line in lines:
                    if line.startswith("#line "):
                        self._directive = line
                        continue
                    # A line of C++ has the number of the one before plus 1, unless it has a directive.
                    self._lines += [self._directive] * bool(self._directive)
                    self._print_instruction(line)

    def to_text(self) -> str:
        """Return all statements in braces, after the declarations of variables."""
        names_by_type: dict[str, list[str]] = {}
        for name, kind in self._types.items():
            names_by_type.setdefault(kind, []).append(name)
        declared = (f"{kind} {', '.join(names)};" for kind, names in names_by_type.items())
        text = "".join(f"  {line}\n" for line in (*self._arrays, *declared, *self._lines))
        return f"{{\n{text}}}" + f"\n{OWN_LINE}" * bool(self._directive)

    def _print_instruction(self, line: str) -> None:
        name, assigns, text = line.partition(" = ")
        if assigns:
            self._assign(name, text)
        elif match := _STORE.fullmatch(line):
            self._store(*operands(match[2]), function="op_store_atomic" if match[1] else "op_store")
        elif line == "fence":
            self._lines.append("op_fence();")
        elif line.startswith("call "):
            self._lines.append(f"{self._expression(line).text};")
        else:
            self._lines.append(self._end_block(line))

    def _declare(self, name: str, kind: str) -> str:
        """Declare a variable; return its name in C++."""
        self._types[local(name)] = kind
        return local(name)

    def _expression(self, text: str) -> Expression:
        result = expression(text)
        self.uses |= result.uses
        return result

    def _values(self, *passed: Operand) -> str:
        result = values(list(passed))
        self.uses |= result.uses
        return result.text

    def _assign(self, name: str, text: str) -> None:
        """Print an instruction that has a value."""
        if (match := _LOCAL.fullmatch(text)) and match[1]:
            self._registers[name] = match[1]
        elif match:
            self._arrays.append(f"alignas(16) char {local(name)}[{match[2]}];")
        elif (match := _REGISTER.fullmatch(text)) and match[1] in self._registers:
            kind = self._registers[match[1]]
            self._lines.append(f"{self._declare(name, kind)} = {self._declare(match[1], kind)};")
        else:
            result = self._expression(text)
            self._lines.append(f"{self._declare(name, result.type)} = {result.text};")

    def _store(self, value: Operand, target: Operand, *, function: str) -> None:
        if target.text in self._registers:
            self._lines.append(f"{self._declare(target.text, value.type)} = {self._values(value)};")
        else:
            self._lines.append(f"{function}({self._values(value, target)});")

    def _end_block(self, text: str) -> str:
        if match := _BRANCH.fullmatch(text):
            condition = self._values(Operand("i1", match[1]))
            return f"if ({condition}) goto {local(match[2])}; else goto {local(match[3])};"
        if match := _JUMP.fullmatch(text):
            return f"goto {local(match[1])};"
        if text == "unreachable":
            return "__builtin_unreachable();"
        if not text.startswith("ret "):
            raise NotInCxxError(text)
        value = text.removeprefix("ret ")
        return "return;" if value == "void" else f"return {self._values(*operands(value))};"


def _split_blocks(body: str) -> dict[str, list[str]]:
    """Return the instructions of each basic block, by its label."""
    blocks: dict[str, list[str]] = {}
    name = "entry"
    for text in body.split("\n"):
        line = text.strip() if text.startswith("  #line ") else _IGNORED.sub("", text).strip()
        if line.endswith(":"):
            name = line[:-1]
        elif line:
            blocks.setdefault(name, []).append(line)
    return blocks
