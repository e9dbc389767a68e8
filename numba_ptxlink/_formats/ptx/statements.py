"""
The statements of PTX functions: one form for each, in the order of the text, blocks as braces.

They are values without places. A pass makes other statements of them, and `str` prints each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from . import lexer
from .variables import Declaration, declaration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_DIGITS = "0123456789"
_DECLARING = frozenset((".reg", ".local", ".param", ".shared", ".global", ".const"))


class Instruction(NamedTuple):
    """
    An instruction.

    Args:
        guard: Its predicate as it is spelled before it, such as "@!%p1 ", "" without one.
        mnemonic: Its opcode with the modifiers, such as "ld.global.v4.f32".
        operand_text: Its operands as they are spelled.
    """

    guard: str
    mnemonic: str
    operand_text: str

    @classmethod
    def of(cls, mnemonic: str, *operands: str, guard: str = "") -> Instruction:
        """Return the instruction that has *operands*."""
        return cls(guard, mnemonic, ", ".join(operands))

    @property
    def operands(self) -> tuple[str, ...]:
        """
        What is between its commas.

        Those of a call are the results in parentheses, if any, the function, the arguments in parentheses, if
        any, and for an indirect call its prototype.
        """
        return lexer.operands(self.operand_text)

    @property
    def opcode(self) -> str:
        """Its name alone, such as "ld"."""
        return self.mnemonic.partition(".")[0]

    @property
    def modifiers(self) -> list[str]:
        """What follows the name, without dots: ["global", "v4", "f32"]."""
        return self.mnemonic.split(".")[1:]

    @property
    def address(self) -> tuple[str, int] | None:
        """The base and the offset of what a load, a store or an atomic accesses; None for another form."""
        operands = self.operands[self.opcode in ("ld", "atom") :]
        return address(operands[0]) if operands else None

    @property
    def names(self) -> list[str]:
        """The registers, variables, functions and labels in its operands."""
        return lexer.names(self.operand_text)

    def __str__(self) -> str:
        return (
            f"{self.guard}{self.mnemonic} {self.operand_text};"
            if self.operand_text
            else f"{self.guard}{self.mnemonic};"
        )


class Label(NamedTuple):
    """A label."""

    name: str

    def __str__(self) -> str:
        return f"{self.name}:"


class Directive(NamedTuple):
    """A directive that declares nothing, such as `.loc` or `.branchtargets`, with its semicolon."""

    text: str

    @property
    def keyword(self) -> str:
        """Its name without the dot."""
        return lexer.token_at(self.text, 1).text

    @property
    def is_hint(self) -> bool:
        """Whether it tells which bytes of the next load are used ("Pragma Strings" in the PTX ISA)."""
        return self.keyword == "pragma" and '"used_bytes_mask' in self.text

    @property
    def names(self) -> list[str]:
        """The labels and functions in it."""
        return [] if self.keyword in ("loc", "pragma") else lexer.names(self.text)

    def __str__(self) -> str:
        return self.text


class Brace(NamedTuple):
    """The begin or the end of a block, which has a scope of names of its own."""

    text: str

    def __str__(self) -> str:
        return self.text


OPEN, CLOSE = Brace("{"), Brace("}")
Statement = Instruction | Label | Directive | Brace | Declaration


def read(text: str) -> Iterator[Statement]:
    """
    Yield the statements in *text*, the inside of a function's body.

    Raises:
        MalformedError: There is something else.
    """
    pieces = lexer.statements(lexer.without_comments(text))
    for guard, mnemonic, operand_text, label, directive, keyword, brace, other in pieces:
        if mnemonic:
            if guard:
                guard = f"{''.join(guard.split())} "  # noqa: PLW2901
            if operand_text[:1] == ".":
                apart, operand_text = lexer.modifiers(operand_text)  # noqa: PLW2901
                mnemonic += apart  # noqa: PLW2901
            yield Instruction(guard, mnemonic, operand_text)
        elif label:
            yield Label(label)
        elif directive:
            yield declaration(directive) if keyword in _DECLARING else Directive(directive)
        elif brace:
            yield Brace(brace)
        else:
            raise lexer.MalformedError(f"a statement is expected, not {other!r}")


def address(operand: str) -> tuple[str, int] | None:
    """Return the base and the offset of an address such as "[%rd1+4]", None for another operand."""
    if operand[:1] != "[" or operand[-1:] != "]":
        return None
    base, plus, spelled = operand[1:-1].partition("+")
    base = base.strip()
    offset = lexer.number(spelled.strip()) if plus else 0
    if offset is None or not base.replace("$", "_").replace("%", "_", 1).isidentifier():
        return None
    return base, offset


def elements(operand: str) -> tuple[str, ...]:
    """Return the elements of a vector in braces, or *operand* alone."""
    return lexer.operands(operand[1:-1]) if operand[:1] == "{" else (operand,)


class Register(NamedTuple):
    """
    A register, or another name that a block declares.

    Args:
        block: The number of the statement that opens the block, -1 for that of the function.
        name: The name.
        type: The type of the register without its dot, "" for another name.
    """

    block: int
    name: str
    type: str


_NOTHING = "", 0, math.inf


class Scope:
    """
    The names that are declared at a place: those of its block up to there, and those around the block.

    Args:
        block: The number of the statement that opens the block.
        outer: The names where the block begins.

    Attributes:
        asked: What each name means that was asked for.
    """

    __slots__ = "_declared", "_place", "asked", "block", "outer"

    def __init__(self, block: int = -1, outer: Scope | None = None) -> None:
        self.block = block
        self.outer = outer
        # The names of the whole block with their types, counts, and the statements that declare them; those
        # after this statement do not count.
        self._declared: dict[str, tuple[str, int, float]] = {}
        self._place = block
        self.asked: dict[str, Register | None] = {}

    def after(self, number: int, statement: Statement) -> Scope:
        """Return the names that are declared after *statement*, which has that *number* in the function."""
        if isinstance(statement, Brace):
            return Scope(number, self) if statement == OPEN else self.outer or self
        if not isinstance(statement, Declaration):
            return self
        after = Scope(self.block, self.outer)
        after._declared, after._place = self._declared, number
        for variable in statement.variables:
            kind = variable.type if variable.space == "reg" else ""
            name = variable.name if variable.count is None else f"{variable.name}<"
            self._declared.setdefault(name, (kind, variable.count or 0, number))
        return after

    def find(self, name: str) -> Register | None:
        """Return what *name* means here, None if no block declares it."""
        if name in self.asked:
            return self.asked[name]
        found, passed = self.own(name), [self]
        while not found and (scope := passed[-1].outer):
            if name in scope.asked:
                found = scope.asked[name]
                break
            found = scope.own(name)
            passed.append(scope)
        for each in passed:
            each.asked[name] = found
        return found

    def own(self, name: str) -> Register | None:
        """Return the same of its block alone."""
        declared = self._declared
        kind, _, index = declared.get(name, _NOTHING)
        if index <= self._place:
            return Register(self.block, name, kind)
        if declared and name[-1:] in _DIGITS:
            # Of `r1<5>` is r12, as of `r<13>`.
            for end in range(len(name.rstrip(_DIGITS)), len(name)):
                kind, count, index = declared.get(f"{name[:end]}<", _NOTHING)
                if index <= self._place and int(name[end:][:9]) < count:
                    return Register(self.block, name, kind)
        return None


def scoped(body: Iterable[Statement]) -> Iterator[tuple[int, Statement, Scope]]:
    """Yield the statements of *body* with their numbers, and the names that are declared there."""
    scope = Scope()
    for number, statement in enumerate(body):
        if not isinstance(statement, Instruction):
            scope = scope.after(number, statement)
        yield number, statement, scope


class Call(NamedTuple):
    """
    What a call consists of.

    Args:
        callee: The function, or the register or table that holds it.
        results: The variables for what it returns.
        arguments: The variables that are passed.
        prototype: For an indirect call, the label of its prototype or of its targets, or their table.
    """

    callee: str
    results: tuple[str, ...]
    arguments: tuple[str, ...]
    prototype: str


def parse_call(call: Instruction) -> Call:
    """Return what the instruction *call* consists of."""
    rest = list(call.operands)
    results = lexer.operands(rest.pop(0)[1:-1]) if rest and rest[0][:1] == "(" else ()
    callee = rest.pop(0) if rest else ""
    arguments = lexer.operands(rest.pop(0)[1:-1]) if rest and rest[0][:1] == "(" else ()
    return Call(callee, results, arguments, ", ".join(rest))


def apply_edits(body: Sequence[Statement], edits: Mapping[int, Iterable[Statement]]) -> tuple[Statement, ...]:
    """Return *body* with other statements in the places of those whose numbers *edits* has."""
    parts, end = list[Statement](), 0
    for index in sorted(edits):
        parts += body[end:index]
        parts += edits[index]
        end = index + 1
    return (*parts, *body[end:])


def with_labels(statement: Statement, new: Mapping[str, str]) -> Statement:
    """Return a label, a directive, or an instruction that names labels with other labels."""
    if isinstance(statement, Instruction):
        named = (new.get(each, each) for each in statement.operands)
        return Instruction.of(statement.mnemonic, *named, guard=statement.guard)
    if isinstance(statement, Label):
        return Label(new.get(statement.name, statement.name))
    if isinstance(statement, Directive) and not new.keys().isdisjoint(statement.names):
        return Directive(lexer.rename_symbols(statement.text, new))
    return statement


def block(body: Iterable[Statement]) -> str:
    """Return the text of *body* in braces, a line for each statement."""
    return "\n".join(("{", *map(str, body), "}"))
