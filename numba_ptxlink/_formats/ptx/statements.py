"""Statements of PTX functions and sections as values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .declarations import Declaration, Directive, Parameter, Pragma, Registers
from .operands import Name, Negated, Node, Operand
from .prototypes import Prototype

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_BRANCH = re.compile(r"bra(?:\.uni)?\s+([\w$%]+)\s*;", re.ASCII)
_BETWEEN_WORDS = str.maketrans(dict.fromkeys("()[]{},;+-*/|&!<>=^~?@\0", " "))
# What begins a register, a number, a special register or a part of an opcode.
_NOT_NAMES = frozenset("%0123456789.")


@dataclass(slots=True, unsafe_hash=True)
class Label(Node):
    """
    A label.

    Args:
        name: Its name.
    """

    name: str

    def __str__(self) -> str:
        return f"{self.name}:"


@dataclass(slots=True, unsafe_hash=True)
class Instruction(Node):
    """
    An instruction that is no call.

    Args:
        opcode: Its name alone, such as "ld".
        modifiers: What follows the name, without dots: ("global", "v4", "f32").
        operands: What it works on.
        predicate: The register that it depends on, `Negated` for its opposite.
    """

    opcode: str
    modifiers: tuple[str, ...] = ()
    operands: tuple[Operand, ...] = ()
    predicate: Name | Negated | None = None

    def __str__(self) -> str:
        operands = f" {', '.join(map(str, self.operands))}" if self.operands else ""
        return f"{_guard(self.predicate)}{'.'.join((self.opcode, *self.modifiers))}{operands};"


@dataclass(slots=True, unsafe_hash=True)
class Call(Node):
    """
    A call.

    Args:
        callee: The function, or the register or table that holds it.
        arguments: What is passed.
        results: What is returned.
        prototype: For an indirect call, the label of its prototype or of its targets, or their table.
        modifiers: Such as ("uni",).
        predicate: The register that it depends on, `Negated` for its opposite.
    """

    callee: Operand
    arguments: tuple[Operand, ...] = ()
    results: tuple[Operand, ...] = ()
    prototype: Name | None = None
    modifiers: tuple[str, ...] = ()
    predicate: Name | Negated | None = None

    def __str__(self) -> str:
        results = f" ({', '.join(map(str, self.results))})," if self.results else ""
        arguments = f", ({', '.join(map(str, self.arguments))})" if self.arguments or self.prototype else ""
        prototype = f", {self.prototype}" if self.prototype else ""
        call = ".".join(("call", *self.modifiers))
        return f"{_guard(self.predicate)}{call}{results} {self.callee}{arguments}{prototype};"


@dataclass(slots=True, unsafe_hash=True)
class Location(Node):
    """
    A `.loc`: where in a source the instructions after it come from.

    Args:
        file: The number of a `.file`.
        line: 1-based.
        column: 1-based, 0 where it is not known.
        function: For an inlined function, the label of its name among the strings of DWARF.
        offset: What is added to that label.
        inlined_at: File, line and column it was inlined at.
    """

    file: int
    line: int
    column: int
    function: Name | None = None
    offset: int = 0
    inlined_at: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        offset = f" + {self.offset}" if self.offset else ""
        function = f", function_name {self.function}{offset}" if self.function else ""
        inlined = ", inlined_at {} {} {}".format(*self.inlined_at) if self.inlined_at else ""
        return f".loc {self.file} {self.line} {self.column}{function}{inlined}"


@dataclass(slots=True, unsafe_hash=True)
class Targets(Node):
    """
    A list of labels or functions that a branch or a call may go to.

    Args:
        name: Its label, "" where there is none.
        keyword: "branchtargets" or "calltargets".
        targets: The labels or functions.
    """

    name: str
    keyword: str
    targets: tuple[Name, ...]

    def __str__(self) -> str:
        return f"{_labelled(self.name)}.{self.keyword} {', '.join(map(str, self.targets))};"


@dataclass(slots=True, unsafe_hash=True)
class CallPrototype(Node):
    """
    A `.callprototype`, which an indirect call names.

    Args:
        name: Its label, "" where there is none.
        results: What is returned.
        params: What is passed.
        directives: Such as `.noreturn`.
    """

    name: str
    results: tuple[Parameter, ...] = ()
    params: tuple[Parameter, ...] = ()
    directives: tuple[Directive | Pragma, ...] = ()

    def __str__(self) -> str:
        results = f"({', '.join(map(str, self.results))}) " if self.results else ""
        directives = "".join(f" {directive}" for directive in self.directives)
        params = ", ".join(map(str, self.params))
        return f"{_labelled(self.name)}.callprototype {results}_ ({params}){directives};"

    @property
    def prototype(self) -> Prototype:
        """The part on which caller and callee must agree."""
        result = self.results[0].param if self.results else None
        return Prototype(self.name, result, tuple(parameter.param for parameter in self.params))


@dataclass(slots=True, unsafe_hash=True)
class Line(Node):
    """
    A line for a preprocessor, such as `#line`, or of DWARF in PTX 1.

    Args:
        text: All of it.
    """

    text: str

    def __str__(self) -> str:
        return f"\n{self.text}\n"


@dataclass(slots=True, unsafe_hash=True)
class Block(Node):
    """
    Statements in braces, with a scope of names of their own.

    Args:
        statements: What is between the braces.
    """

    statements: tuple[Statement, ...]

    def __str__(self) -> str:
        return block(self.statements)


@dataclass(slots=True, unsafe_hash=True)
class Code(Node):
    """
    Labels and instructions in the outline of a function.

    Args:
        text: All of them.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def labels(self) -> list[Name]:
        """The labels that it has."""
        text, labels, end = self.text, [], 0
        while (colon := text.find(":", end)) >= 0:
            begin = max(text.rfind(";", end, colon) + 1, end)
            end = colon + 1
            if text.startswith(":", end):
                # A modifier such as `.shared::cta`.
                end += 1
                continue
            name = text[begin:colon].lstrip()
            place = self.start + colon - len(name)
            name = name.rstrip()
            labels.append(Name(name, start=place, end=place + len(name)))
        return labels

    @property
    def targets(self) -> list[Name]:
        """The labels that it branches to."""
        return [
            Name(match[1], start=self.start + match.start(1), end=self.start + match.end(1))
            for match in _BRANCH.finditer(self.text)
        ]

    @property
    def names(self) -> set[str]:
        """The names in it that do not have the form of a register, and opcodes without modifiers."""
        words = set(self.text.translate(_BETWEEN_WORDS).split())
        return {word for word in words if word[0] not in _NOT_NAMES and "." not in word and ":" not in word}


Statement = (
    Label
    | Instruction
    | Call
    | Registers
    | Declaration
    | Location
    | Pragma
    | Targets
    | CallPrototype
    | Directive
    | Line
    | Block
    | Code
)


@dataclass(slots=True, unsafe_hash=True)
class Values(Node):
    """
    A line of a `.section`.

    Args:
        type: The type without its dot, such as "b32".
        values: Numbers, labels and sections.
    """

    type: str
    values: tuple[tuple[Operand | str, ...], ...]

    def __str__(self) -> str:
        return f".{self.type} {', '.join(''.join(map(str, value)) for value in self.values)}"


def block(statements: Iterable[Statement]) -> str:
    """Return *statements* in braces, a line for each."""
    return "".join(("{\n", *(f"{_terminated(statement)}\n" for statement in statements), "}"))


def flattened(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Yield *statements* and, after each block, its statements."""
    for statement in statements:
        yield statement
        if isinstance(statement, Block):
            yield from flattened(statement.statements)


def _guard(predicate: Name | Negated | None) -> str:
    return f"@{predicate} " if predicate else ""


def _labelled(name: str) -> str:
    return f"{name}: " if name else ""


def _terminated(statement: Statement) -> str:
    return f"{statement};" if isinstance(statement, Directive) else str(statement)
