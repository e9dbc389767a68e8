"""
Convert functions and variables of LLVM IR to C++, one instruction a line.

Each value of LLVM IR becomes a variable that is assigned once. The memory of a PTX register (`alloca`)
becomes a variable, too, as %v1 and %v2 in this example:

    %t1 = load i32, ptr %v1               t1_ = v1_;
    %t2 = add i32 %t1, 5            ->    t2_ = op_add(t1_, i32(5u));
    store i32 %t2, ptr %v2                v2_ = t2_;

The LLVM IR may have `#line` directives of C++. Each is for all instructions up to the next directive.
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
    convert_instruction,
    join_values,
    local_name,
    parse_operands,
    prelude,
    symbol_name,
)

__all__ = [
    "LINE_PLACEHOLDER",
    "CxxFunction",
    "NotInCxxError",
    "convert_function",
    "convert_variable",
    "prelude",
    "split_functions",
    "symbol_name",
]

LINE_PLACEHOLDER = "#line 1 // of this file"
"""
A line of the output after each function whose statements have `#line` directives of other files. The writer
of the C++ file replaces it by a directive with that file's own name and the number of the next line.
"""
# A function: `define internal i32 @"f.x"(i32 %a) alwaysinline {`, the body, and `}`. The groups are the type
# of the result, the name, the parameters and the body.
_DEFINITION = re.compile(rf"define internal (\w+) @({NAME})\(([^)]*)\)[\w ]*\{{\n(.*?)\n\}}", re.DOTALL)
# A variable: `@"v.x" = global <{i32, [4 x i8]}> <{i32 5, [4 x i8] zeroinitializer}>, align 16`. The groups
# are the name, the fields and the alignment.
_VARIABLE = re.compile(rf"@({NAME}) = global <\{{.*?\}}> <\{{(.*)\}}>, align (\d+)")
# Parts of a line that C++ does not need: comments, metadata, alignments, attributes, and memory orders, since
# all atomic operations of llvm.hpp are sequentially consistent.
_IGNORED = re.compile(r"\s*;.*|, !\w+ !\d+|, align \d+|\btail |\bnoundef | (?:seq_cst|monotonic|noreturn)\b")
# A label in a branch.
_TARGET = re.compile(r"label %([\w.]+)")

# Instructions. Each pattern is followed by what it matches. Registers and arrays of bytes have an `alloca`.
_ALLOCA = re.compile(r"alloca (?:(\w+)|\[(\d+) x i8\])")  # alloca i32; alloca [8 x i8]
_LOAD = re.compile(r"load \w+, ptr (%[\w.]+)")  # load i32, ptr %v1
_STORE = re.compile(r"store (atomic )?(.+)")  # store i32 %t2, ptr %v2
_CONDITIONAL_BRANCH = re.compile(r"br i1 (.+), label %([\w.]+), label %([\w.]+)")  # ..., label %x, label %y
_BRANCH = re.compile(r"br label %([\w.]+)")  # br label %x


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


def split_functions(ir: str) -> dict[str, str]:
    """Return the definition of each internal function in a module of LLVM IR, by its name."""
    return {match[2].strip('"'): match[0] for match in _DEFINITION.finditer(ir)}


def convert_function(ir: str) -> CxxFunction:
    """
    Convert the definition of an internal function.

    Raises:
        NotInCxxError: An instruction has no counterpart in C++.
    """
    match = _DEFINITION.fullmatch(ir)
    if match is None:
        raise NotInCxxError(ir.partition("\n")[0])
    result_type, name, params, body = match.groups()
    declared = ", ".join(f"{param.type} {local_name(param.text)}" for param in parse_operands(params))
    prototype = f"inline {checked_type(result_type)} {symbol_name(name)}({declared})"
    statements = _Statements()
    statements.add_body(body)
    return CxxFunction(prototype, statements.to_text(), frozenset(statements.uses))


def convert_variable(ir: str) -> str:
    """
    Convert the definition of a global variable to an array of bytes.

    Raises:
        NotInCxxError: The variable contains an address.
    """
    match = _VARIABLE.fullmatch(ir)
    if match is None:
        raise NotInCxxError(ir)
    # Fields such as "i32 5"; the last field is the rest of the variable, such as "[4 x i8] zeroinitializer".
    *fields, zeros = match[2].split(", ")
    content = b""
    for field in fields:
        integer_type, _, number = field.partition(" ")
        if not number.removeprefix("-").isdigit():
            raise NotInCxxError(field)
        field_size = int(integer_type[1:]) // 8
        content += (int(number) % (1 << 8 * field_size)).to_bytes(field_size, "little")
    zero_count = int(zeros[1:].partition(" ")[0])  # The 4 of "[4 x i8] zeroinitializer".
    size = len(content) + zero_count
    # C++ sets the bytes after those in the initialiser to zero.
    numbers = ",".join(map(str, content.rstrip(b"\0"))) or "0"
    return f"alignas({match[3]}) unsigned char {symbol_name(match[1])}[{size}] = {{{numbers}}};"


class _Statements:
    """
    The C++ statements of one function, added instruction by instruction.

    Attributes:
        uses: The global symbols that the statements use, by their names in LLVM IR.
    """

    def __init__(self) -> None:
        self.uses: set[str] = set()
        self._lines: list[str] = []
        # The latest `#line` directive of the LLVM IR, "" without one.
        self._line_directive = ""
        self._array_declarations: list[str] = []
        # The type of each PTX register, by the name of its memory in LLVM IR, such as "%v1".
        self._register_types: dict[str, str] = {}
        # The type of each variable in C++, by name, such as "v1_" and "t1_".
        self._variable_types: dict[str, str] = {}

    def add_body(self, body: str) -> None:
        """Add the blocks that can be reached. Compilers would warn of the unused labels of other blocks."""
        blocks = _split_blocks(body)
        pending = reachable = {"entry"}
        while pending:
            targets = {target for name in pending for target in _TARGET.findall(blocks[name][-1])}
            pending = targets - reachable
            reachable = reachable | pending
        for name, lines in blocks.items():
            if name in reachable:
                if name != "entry":
                    # A label needs a statement after it: the semicolon is an empty one.
                    self._lines.append(f"{local_name(name)}:;")
                for line in lines:
                    if line.startswith("#line "):
                        self._line_directive = line
                        continue
                    if self._line_directive:
                        # Repeat the directive, since C++ counts one line more after each line.
                        self._lines.append(self._line_directive)
                    self._add_instruction(line)

    def to_text(self) -> str:
        """
        Return all statements in braces, and LINE_PLACEHOLDER after them if they have `#line` directives.

        The declarations of all variables come first, since no `goto` of C++ may jump over an initialisation.
        """
        names_by_type: dict[str, list[str]] = {}
        for name, cxx_type in self._variable_types.items():
            names_by_type.setdefault(cxx_type, []).append(name)
        declarations = (f"{cxx_type} {', '.join(names)};" for cxx_type, names in names_by_type.items())
        lines = (*self._array_declarations, *declarations, *self._lines)
        text = "".join(f"  {line}\n" for line in lines)
        return f"{{\n{text}}}\n{LINE_PLACEHOLDER}" if self._line_directive else f"{{\n{text}}}"

    def _add_instruction(self, line: str) -> None:
        name, has_value, text = line.partition(" = ")
        if has_value:
            self._assign(name, text)
        elif match := _STORE.fullmatch(line):
            self._store(*parse_operands(match[2]), is_atomic=bool(match[1]))
        elif line == "fence":
            self._lines.append("op_fence();")
        elif line.startswith("call "):
            self._lines.append(f"{self._expression(line).text};")
        else:
            self._lines.append(self._end_block(line))

    def _declare(self, name: str, cxx_type: str) -> str:
        """Declare the variable of a value or register of LLVM IR, once; return its name in C++."""
        self._variable_types[local_name(name)] = cxx_type
        return local_name(name)

    def _expression(self, text: str) -> Expression:
        """Convert an instruction that has a value, or a call without one; add the symbols that it uses."""
        result = convert_instruction(text)
        self.uses |= result.uses
        return result

    def _join_values(self, *operands: Operand) -> str:
        """Return operands in C++, separated by commas; add the symbols that they use."""
        text, uses = join_values(list(operands))
        self.uses |= uses
        return text

    def _assign(self, name: str, text: str) -> None:
        """Add the instruction *text*, whose value has the name *name* in LLVM IR."""
        if match := _ALLOCA.fullmatch(text):
            register_type, array_size = match.groups()
            if register_type:
                self._register_types[name] = register_type
            else:
                self._array_declarations.append(f"alignas(16) char {local_name(name)}[{array_size}];")
        elif (match := _LOAD.fullmatch(text)) and match[1] in self._register_types:
            register, cxx_type = match[1], self._register_types[match[1]]
            self._lines.append(f"{self._declare(name, cxx_type)} = {self._declare(register, cxx_type)};")
        else:
            result = self._expression(text)
            self._lines.append(f"{self._declare(name, result.type)} = {result.text};")

    def _store(self, value: Operand, target: Operand, *, is_atomic: bool) -> None:
        if target.text in self._register_types:
            self._lines.append(f"{self._declare(target.text, value.type)} = {self._join_values(value)};")
        else:
            function = "op_store_atomic" if is_atomic else "op_store"
            self._lines.append(f"{function}({self._join_values(value, target)});")

    def _end_block(self, text: str) -> str:
        """Return the statement for the last instruction of a block."""
        if match := _CONDITIONAL_BRANCH.fullmatch(text):
            condition = self._join_values(Operand("i1", match[1]))
            return f"if ({condition}) goto {local_name(match[2])}; else goto {local_name(match[3])};"
        if match := _BRANCH.fullmatch(text):
            return f"goto {local_name(match[1])};"
        if text == "unreachable":
            return "__builtin_unreachable();"
        if not text.startswith("ret "):
            raise NotInCxxError(text)
        value = text.removeprefix("ret ")
        return "return;" if value == "void" else f"return {self._join_values(*parse_operands(value))};"


def _split_blocks(body: str) -> dict[str, list[str]]:
    """Return the instructions of each basic block, by its label."""
    blocks: dict[str, list[str]] = {}
    name = "entry"
    for text in body.split("\n"):
        # The name of the file in a directive may contain characters that _IGNORED matches.
        line = text.strip() if text.startswith("  #line ") else _IGNORED.sub("", text).strip()
        if line.endswith(":"):
            name = line[:-1]
        elif line:
            blocks.setdefault(name, []).append(line)
    return blocks
