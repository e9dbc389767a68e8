"""
Parse the bodies of PTX functions to statements, and find the names that are declared at a statement.

A body is a flat sequence: the braces of a block are statements, too. A statement does not say where it is in
the body, so that optimisations can replace statements by others (the offsets of a `Declaration` are offsets
into its own text). `str` returns the text of a statement.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from . import lexer
from .variables import Declaration, declaration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_DIGITS = "0123456789"
# The digits of a register's number that are read. Nine suffice, since no function declares 100 million
# registers of one name, and int() raises an exception for thousands of digits.
_MAX_REGISTER_DIGITS = 9
_DECLARATION_KEYWORDS = frozenset((".reg", ".local", ".param", ".shared", ".global", ".const"))


class Instruction(NamedTuple):
    """
    An instruction.

    Args:
        guard: The predicate with a blank after it, such as "@!%p1 "; "" if there is none.
        mnemonic: The opcode with the modifiers, such as "ld.global.v4.f32".
        operand_text: The operands as written, without the semicolon.
    """

    guard: str
    mnemonic: str
    operand_text: str

    @classmethod
    def of(cls, mnemonic: str, *operands: str, guard: str = "") -> Instruction:
        """Return the instruction *mnemonic* with *operands*."""
        return cls(guard, mnemonic, ", ".join(operands))

    @property
    def operands(self) -> tuple[str, ...]:
        """
        The operands, such as ("%r1", "[%rd1+4]").

        The operands of a call are: the results in parentheses, if any; the function; the arguments in
        parentheses, if any; and for an indirect call the prototype.
        """
        return lexer.operands(self.operand_text)

    @property
    def opcode(self) -> str:
        """The mnemonic without modifiers, such as "ld"."""
        return self.mnemonic.partition(".")[0]

    @property
    def modifiers(self) -> list[str]:
        """The modifiers without dots, such as ["global", "v4", "f32"]."""
        return self.mnemonic.split(".")[1:]

    @property
    def address(self) -> tuple[str, int] | None:
        """
        The base and the offset in bytes of the address of a load, store or atomic operation.

        None if the operand is in another form than "[%rd1]" and "[%rd1+4]".
        """
        # The destination of loads and atomics comes first.
        index = 1 if self.opcode in ("ld", "atom") else 0
        return address(self.operands[index]) if index < len(self.operands) else None

    @property
    def names(self) -> list[str]:
        """The registers, variables, functions and labels in the operands."""
        return lexer.find_names(self.operand_text)

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
    """A directive that is no declaration: `.branchtargets a, b;` or, without a semicolon, `.loc 1 5 3`."""

    text: str

    @property
    def keyword(self) -> str:
        """The first word without the dot, such as "loc"."""
        return lexer.token_at(self.text, 1).text

    @property
    def is_hint(self) -> bool:
        """Whether it is a pragma with the used bytes of the next load ("Pragma Strings" in the PTX ISA)."""
        return self.keyword == "pragma" and '"used_bytes_mask' in self.text

    @property
    def names(self) -> list[str]:
        """The labels and functions in the directive."""
        return [] if self.keyword in ("loc", "pragma") else lexer.find_names(self.text)

    def __str__(self) -> str:
        return self.text


class Brace(NamedTuple):
    """The beginning or the end of a block, which is a scope of names."""

    text: str

    def __str__(self) -> str:
        return self.text


OPEN, CLOSE = Brace("{"), Brace("}")
Statement = Instruction | Label | Directive | Brace | Declaration


def parse_statements(text: str) -> Iterator[Statement]:
    """
    Yield the statements in *text*, a function's body without its braces.

    Raises:
        MalformedError: The text contains something that is no statement.
    """
    pieces = lexer.statements(lexer.without_comments(text))
    for guard, mnemonic, operand_text, label, directive, keyword, brace, other in pieces:
        if mnemonic:
            yield _instruction(guard, mnemonic, operand_text)
        elif label:
            yield Label(label)
        elif directive:
            yield declaration(directive) if keyword in _DECLARATION_KEYWORDS else Directive(directive)
        elif brace:
            yield Brace(brace)
        else:
            raise lexer.MalformedError(f"a statement is expected, not {other!r}")


def _instruction(guard: str, mnemonic: str, operand_text: str) -> Instruction:
    """Return an instruction without the blanks that may be in its guard and before its modifiers."""
    if guard:
        guard = f"{''.join(guard.split())} "
    if operand_text[:1] == ".":
        modifiers, operand_text = lexer.modifiers(operand_text)
        mnemonic += modifiers
    return Instruction(guard, mnemonic, operand_text)


def address(operand: str) -> tuple[str, int] | None:
    """
    Return the base and the offset in bytes of an address: ("%rd1", 4) for "[%rd1+4]".

    None if *operand* is no name in brackets, with or without a constant offset.
    """
    if operand[:1] != "[" or operand[-1:] != "]":
        return None
    base, plus, offset_text = operand[1:-1].partition("+")
    base = base.strip()
    offset = lexer.parse_integer(offset_text.strip()) if plus else 0
    # Unlike names of Python, names of PTX may contain `$`, and begin with `%`.
    if offset is None or not base.replace("$", "_").replace("%", "_", 1).isidentifier():
        return None
    return base, offset


def split_vector(operand: str) -> tuple[str, ...]:
    """Return the elements of a vector in braces, or *operand* alone."""
    return lexer.operands(operand[1:-1]) if operand[:1] == "{" else (operand,)


class Register(NamedTuple):
    """
    A register, or another name that a block declares.

    Args:
        block: The index of the statement that opens the block; -1 for the body of the function.
        name: The name.
        type: The type of a register without its dot, such as "f32"; "" for another name.
    """

    block: int
    name: str
    type: str

    @property
    def is_register(self) -> bool:
        """Whether the name is that of a register, not of a variable."""
        return bool(self.type)


# The type, count and index that stand for a missing entry of `Scope._declared`: the index is above the
# position of every scope, as for a name that is declared later.
_UNDECLARED = "", 0, math.inf


class Scope:
    """
    The names that are declared at a statement: in its block before it, and around the block.

    Args:
        block: The index of the statement that opens the block; -1 for the body of the function.
        outer: The scope around the block; None for the body of the function.

    Attributes:
        resolved: The names that were looked up, with the registers that they mean; None for undeclared names.
    """

    __slots__ = "_declared", "_position", "block", "outer", "resolved"

    def __init__(self, block: int = -1, outer: Scope | None = None) -> None:
        self.block = block
        self.outer = outer
        # For each name: its type, the number of registers of `%r<count>`, and the index of the declaration.
        # All scopes of a block share the dict, so declarations after the position of a scope are ignored.
        self._declared: dict[str, tuple[str, int, float]] = {}
        self._position = block
        self.resolved: dict[str, Register | None] = {}

    def after(self, index: int, statement: Statement) -> Scope:
        """Return the scope after *statement*, which has the *index* in the body of the function."""
        if isinstance(statement, Brace):
            # A closing brace too many, in malformed PTX, does not leave the body.
            return Scope(index, self) if statement == OPEN else self.outer or self
        if not isinstance(statement, Declaration):
            return self
        scope = Scope(self.block, self.outer)
        scope._declared, scope._position = self._declared, index
        for variable in statement.variables:
            register_type = variable.type if variable.space == "reg" else ""
            # The registers `%r<13>` have the key "%r<".
            key = variable.name if variable.count is None else f"{variable.name}<"
            self._declared.setdefault(key, (register_type, variable.count or 0, index))
        return scope

    def find(self, name: str) -> Register | None:
        """Return the register or other name that *name* means here; None if no block declares it."""
        if name in self.resolved:
            return self.resolved[name]
        register, scopes = self.find_in_block(name), [self]
        while not register and (scope := scopes[-1].outer):
            if name in scope.resolved:
                register = scope.resolved[name]
                break
            register = scope.find_in_block(name)
            scopes.append(scope)
        # The name means the same in all scopes that were searched.
        for scope in scopes:
            scope.resolved[name] = register
        return register

    def find_in_block(self, name: str) -> Register | None:
        """Return the register or other name that *name* means in this block; None if it is not declared."""
        declared = self._declared
        register_type, _, index = declared.get(name, _UNDECLARED)
        if index <= self._position:
            return Register(self.block, name, register_type)
        if declared and name[-1:] in _DIGITS:
            # `r<13>` and `r1<5>` both declare r12: try each split of the name into a prefix and a number.
            for split in range(len(name.rstrip(_DIGITS)), len(name)):
                register_type, count, index = declared.get(f"{name[:split]}<", _UNDECLARED)
                if index <= self._position and int(name[split:][:_MAX_REGISTER_DIGITS]) < count:
                    return Register(self.block, name, register_type)
        return None


def with_scopes(body: Iterable[Statement]) -> Iterator[tuple[int, Statement, Scope]]:
    """Yield the index of each statement of *body*, the statement, and the scope after it."""
    scope = Scope()
    for index, statement in enumerate(body):
        if not isinstance(statement, Instruction):
            scope = scope.after(index, statement)
        yield index, statement, scope


class Call(NamedTuple):
    """
    The operands of a call.

    Args:
        callee: The function, or the register or table that holds its address.
        results: The variables for the results.
        arguments: The variables or numbers that are passed.
        prototype: For an indirect call, the label of its prototype or of the list of its targets, or the
            table of its targets; "" for a direct call.
    """

    callee: str
    results: tuple[str, ...]
    arguments: tuple[str, ...]
    prototype: str


def parse_call(call: Instruction) -> Call:
    """Return the operands of the instruction *call*."""
    operands = list(call.operands)
    results = lexer.operands(operands.pop(0)[1:-1]) if operands and operands[0][:1] == "(" else ()
    callee = operands.pop(0) if operands else ""
    arguments = lexer.operands(operands.pop(0)[1:-1]) if operands and operands[0][:1] == "(" else ()
    return Call(callee, results, arguments, ", ".join(operands))


def apply_edits(body: Sequence[Statement], edits: Mapping[int, Iterable[Statement]]) -> tuple[Statement, ...]:
    """Return *body* with the statement at each index of *edits* replaced by those that *edits* has there."""
    statements: list[Statement] = []
    end = 0
    for index in sorted(edits):
        statements += body[end:index]
        statements += edits[index]
        end = index + 1
    return (*statements, *body[end:])


def with_labels(statement: Statement, new_names: Mapping[str, str]) -> Statement:
    """Return *statement* with *new_names* for the labels that it declares or names."""
    if isinstance(statement, Instruction):
        operands = (new_names.get(operand, operand) for operand in statement.operands)
        return Instruction.of(statement.mnemonic, *operands, guard=statement.guard)
    if isinstance(statement, Label):
        return Label(new_names.get(statement.name, statement.name))
    if isinstance(statement, Directive) and not new_names.keys().isdisjoint(statement.names):
        return Directive(lexer.rename_symbols(statement.text, new_names))
    return statement


def format_body(body: Iterable[Statement]) -> str:
    """Return the text of *body* in braces, with a line for each statement."""
    return "\n".join(("{", *map(str, body), "}"))
