"""Read the text of a function statement by statement, with the names that its blocks declare."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numba_ptxlink._formats import ptx

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
    """The names that the block *number* declares, inside of *outer*."""

    def __init__(self, number: int, outer: Scope | None) -> None:
        self._number = number
        self._outer = outer
        self._single: dict[str, str] = {}
        self._counted: dict[str, tuple[int, str]] = {}
        self._found: dict[str, Register | None] = {}

    def declare(self, directive: str) -> None:
        """Add the names that *directive* declares."""
        if not directive.startswith(_DECLARING):
            return
        self._found.clear()
        registers = _REGISTERS.fullmatch(directive)
        kind, names = registers.groups() if registers else ("", directive)
        for name, count in _DECLARED.findall(names):
            if count:
                self._counted[name] = (int(count[:9]), kind)
            else:
                self._single[name] = kind

    def declares(self, name: str) -> bool:
        """Return whether this block or one around it declares *name* without a count."""
        return name in self._single or (self._outer is not None and self._outer.declares(name))

    def find(self, name: str) -> Register | None:
        """Return what *name* means here, None if no block declares it."""
        try:
            return self._found[name]
        except KeyError:
            register = self._found[name] = self._look_up(name)
            return register

    def _look_up(self, name: str) -> Register | None:
        prefix = name.rstrip(_DIGITS)
        number = name[len(prefix) :]
        kind = self._single.get(name)
        if kind is None and number:
            count, counted = self._counted.get(prefix, (0, ""))
            kind = counted if len(number) < 9 and int(number) < count else None
        if kind is None:
            return self._outer.find(name) if self._outer else None
        return Register(self._number, name, kind)


def body(text: str, function: ptx.Function) -> tuple[str, str]:
    """
    Return the heading and the body of *text*, the body without comments.

    Args:
        text: A function.
        function: What it was before its calls were inlined: its heading is the same.
    """
    start = function.body_span.start - function.start
    inner = text[start:]
    if "/" in inner:
        inner = _ASIDE.sub(lambda aside: aside[0] if aside[0][0] == '"' else " ", inner)
    return text[:start], inner


def instructions(inner: str, *, wide: bool = False) -> Iterator[tuple[Instruction, Scope]]:
    """
    Yield the instructions of a body without comments, each with the names that are declared there.

    Args:
        inner: The body.
        wide: Whether to leave out, in half of the time, those that neither write a register of 64 bits nor
            access memory generically.

    Raises:
        NotReadError: A statement has an unknown form.
    """
    match_at = (_WIDE if wide else _ALL).match
    scope = Scope(0, None)
    outer: list[Scope] = []
    blocks = end = 0
    while end < len(inner):
        match = match_at(inner, end)
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
            scope.declare(directive)
    if outer:
        raise NotReadError
