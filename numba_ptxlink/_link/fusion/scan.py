"""Read the text of a function statement by statement, with the names that its blocks declare."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

NAME = re.compile(r"[%\w$]+", re.ASCII)
"""A name, a number, or a part of a floating-point number."""

_DIGITS = "0123456789"
_ASIDE = re.compile(r'"[^"]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LABEL = r"[%\w$]+[ \t]*:(?!:)"
_GUARD = r"@!?\s*[%\w$]+\s+"
_OPERANDS = r"[^;:{}\"@]*(?:\{[^;:{}\"@]*\}[^;:{}\"@]*)*"
# Opcodes that neither access memory generically nor write 64 bits: their last types have 32 bits or fewer,
# and no other modifier has a digit, as types have.
_NOT_SPACED = r"(?:ld|st|atom|red)(?!\.(?:global|shared|local|const)\.)"
_NARROW = r"(?:\.[a-z]{2,}|\.v[24])*(?<!\.wide)(?:\.[busf](?:8|16|32)){1,2}(?=\s)"
_SKIPPED = rf"(?!{_NOT_SPACED})(?:[a-z]\w*{_NARROW}|bra(?:\.uni)?(?=\s)){_OPERANDS};"
_OTHER = (
    r"\s*(?:([{}])|(\.loc\b[^\n]*|\.\w+[^;{}\"]*(?:\"[^\"]*\"[^;{}\"]*)*;)"
    rf"|({_GUARD})?([a-z]\w*(?:\.\w+|::\w+)*)(?![\w.:]){_OPERANDS.join('()')};|\Z)"
)
_ALL = re.compile(rf"(?:\s*{_LABEL})+|{_OTHER}", re.ASCII)
_WIDE = re.compile(rf"(?:\s*(?:(?:@!?[%\w$]+\s+)?{_SKIPPED}|{_LABEL}))+|{_OTHER}", re.ASCII)
_REGISTERS = re.compile(r"\.reg\s+\.([a-z]+\d*)\s+([^.;]*);", re.ASCII)
_DECLARING = (".reg", ".local", ".param", ".shared", ".global", ".const")
_DECLARED = re.compile(r"(?<![\w$%.])([%A-Za-z_$][\w$]*)\s*(?:<\s*(\d+)\s*>)?", re.ASCII)


class NotReadError(Exception):
    """A statement has an unknown form."""


class Register(NamedTuple):
    """
    A register, or another name that a block declares.

    Args:
        block: The number of the block, which no other block of the function has.
        name: The name.
        type: The type of the register without its dot, "" for another name.
    """

    block: int
    name: str
    type: str


class Instruction(NamedTuple):
    """
    An instruction in a text.

    Args:
        guard: Its predicate as it is spelled, "" without one.
        opcode: Its name with the modifiers.
        operands: Its operands as they are spelled.
        start: Where it begins, after its labels.
        place: Where its opcode begins.
        end: Where it ends, after its semicolon.
    """

    guard: str
    opcode: str
    operands: str
    start: int
    place: int
    end: int


class Scope:
    """
    The names that are declared at a place: those of its block up to there, and those around the block.

    Args:
        block: The number of the block.
        outer: The names where the block begins.
    """

    def __init__(self, block: int = 0, outer: Scope | None = None) -> None:
        self._block = block
        self._outer = outer
        # All names of the block, with how many directives come before the one that declares them.
        self._single: dict[str, tuple[int, str]] = {}
        self._counted: dict[str, tuple[int, str, int]] = {}
        self._directives = 0
        self._found: dict[str, Register | None] = {}

    def declared(self, directive: str) -> Scope:
        """Return the names after *directive*."""
        if not directive.startswith(_DECLARING):
            return self
        registers = _REGISTERS.fullmatch(directive)
        kind, names = registers.groups() if registers else ("", directive)
        for name, count in _DECLARED.findall(names):
            if count:
                self._counted.setdefault(name, (self._directives, kind, int(count[:9])))
            else:
                self._single.setdefault(name, (self._directives, kind))
        after = Scope(self._block, self._outer)
        after._single, after._counted = self._single, self._counted
        after._directives = self._directives + 1
        return after

    def declares(self, name: str) -> bool:
        """Return whether this block or one around it declares *name* without a count."""
        place, _ = self._single.get(name, (self._directives, ""))
        return place < self._directives or (self._outer is not None and self._outer.declares(name))

    def find(self, name: str) -> Register | None:
        """Return what *name* means here, None if no block declares it."""
        try:
            return self._found[name]
        except KeyError:
            register = self._found[name] = self._look_up(name)
            return register

    def _look_up(self, name: str) -> Register | None:
        place, kind = self._single.get(name, (self._directives, ""))
        if place < self._directives:
            return Register(self._block, name, kind)
        prefix = name.rstrip(_DIGITS)
        number = name[len(prefix) :]
        if 0 < len(number) < 9 and prefix in self._counted:
            place, kind, count = self._counted[prefix]
            if place < self._directives and int(number) < count:
                return Register(self._block, name, kind)
        return self._outer.find(name) if self._outer else None


class Scanned:
    """
    The text of a function, which is read at most once.

    Args:
        text: The text.
        function: What it was before its calls were inlined: its heading is the same.

    Attributes:
        text: The text.
    """

    def __init__(self, text: str, function: ptx.Function) -> None:
        self.text = text
        self._function = function
        self._start = function.body_span.start - function.start
        self._body = ""
        self._instructions: list[tuple[Instruction, Scope]] = []

    @property
    def body(self) -> str:
        """The body without comments."""
        if not self._body:
            inner = self.text[self._start :]
            if "/" in inner:
                inner = _ASIDE.sub(lambda aside: aside[0] if aside[0][0] == '"' else " ", inner)
            self._body = inner
        return self._body

    def instructions(self, *, wide: bool = False) -> Iterable[tuple[Instruction, Scope]]:
        """
        Return the instructions of the body, each with the names that are declared there.

        Args:
            wide: Whether those may be left out, in half of the time, that neither write a register of 64 bits
                nor access memory generically.

        Raises:
            NotReadError: A statement has an unknown form.
        """
        if wide and not self._instructions:
            return _instructions(self.body, _WIDE)
        if not self._instructions:
            self._instructions = list(_instructions(self.body, _ALL))
        return self._instructions

    def edited(self, edits: Mapping[ptx.Span, str]) -> Scanned:
        """Return the text with other text in some places of the body."""
        if not edits:
            return self
        return Scanned(self.text[: self._start] + ptx.replaced(self.body, edits), self._function)


def _instructions(inner: str, pattern: re.Pattern[str]) -> Iterator[tuple[Instruction, Scope]]:
    scope = Scope()
    outer: list[Scope] = []
    blocks = end = 0
    while end < len(inner):
        match = pattern.match(inner, end)
        if match is None:
            raise NotReadError
        end = match.end()
        if match.lastindex is None:
            continue
        brace, directive, guard, opcode, operands = match.groups()
        if opcode:
            place = match.start(4)
            start = match.start(3) if guard else place
            yield Instruction(guard or "", opcode, operands, start, place, end), scope
        elif brace == "{":
            outer.append(scope)
            blocks += 1
            scope = Scope(blocks, scope)
        elif brace and not outer:
            raise NotReadError
        elif brace:
            scope = outer.pop()
        elif directive:
            scope = scope.declared(directive)
    if outer:
        raise NotReadError
