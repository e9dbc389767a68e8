"""Parse declarations from tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .cursor import is_name
from .declarations import (
    Declaration,
    Directive,
    Parameter,
    Pointer,
    Pragma,
    Register,
    Registers,
    Variable,
    width,
)
from .lexer import kind
from .operands import Span, String

if TYPE_CHECKING:
    from collections.abc import Callable

    from .cursor import Cursor

LINKAGES = frozenset((".extern", ".visible", ".weak", ".common"))
SPACES = frozenset((".global", ".const", ".shared", ".local", ".param", ".tex"))
_VECTOR = re.compile(r"\.v\d+")


class Qualifiers:
    """The qualifiers between a state space and the names: alignment, type and so on."""

    __slots__ = ("alignment", "attributes", "pointer", "type", "vector")

    def __init__(self, cursor: Cursor) -> None:
        """Take the qualifiers."""
        self.alignment = 0
        self.attributes: tuple[Directive, ...] = ()
        self.pointer: Pointer | None = None
        self.type = ""
        self.vector = ""
        while kind(cursor.token) == "directive":
            start, token = cursor.start, cursor.take()
            if width(token[1:]) and not self.type:
                self.type = token[1:]
            elif token == ".align" and self.type:
                alignment = cursor.integer()
                self.pointer = Pointer("", alignment, marked=False, start=start, end=cursor.end)
            elif token == ".align":
                self.alignment = cursor.integer()
            elif token == ".attribute":
                self.attributes += attributes(cursor)
            elif token == ".ptr":
                self.pointer = _pointer(cursor, start)
            elif _VECTOR.fullmatch(token):
                self.vector = token[1:]
            elif self.type:
                cursor.at -= 1
                cursor.fail("a name is expected")
            else:
                self.type = token[1:]
        if not self.type:
            cursor.fail("a type is expected")

    def no_pointer(self, cursor: Cursor) -> Qualifiers:
        """Return the qualifiers; refuse `.ptr`, which only parameters have."""
        if self.pointer:
            cursor.fail("only parameters are pointers; a name is expected")
        return self


def attributes(cursor: Cursor) -> tuple[Directive, ...]:
    """Take the list after `.attribute`."""
    cursor.expect("(")
    directives = []
    while True:
        start = cursor.start
        if kind(cursor.token) != "directive":
            cursor.fail("an attribute is expected")
        keyword = cursor.take()[1:]
        operands = cursor.operands(")") if cursor.accept("(") else ()
        directives.append(Directive(keyword, operands, start=start, end=cursor.end))
        if not cursor.accept(","):
            cursor.expect(")")
            return tuple(directives)


def pragma(cursor: Cursor) -> Pragma:
    """Take a `.pragma` with its semicolon."""
    start = cursor.start
    cursor.at += 1
    values = []
    for value in cursor.leaves():
        if not isinstance(value, String):
            cursor.fail("strings are expected")
        values.append(value.value)
    cursor.expect(";")
    return Pragma(tuple(values), start=start, end=cursor.end)


def registers(cursor: Cursor) -> Registers:
    """Take a `.reg` with its semicolon."""
    start = cursor.start
    cursor.at += 1
    qualifiers = Qualifiers(cursor).no_pointer(cursor)
    names = []
    while True:
        begin = cursor.start
        name = cursor.word()
        names.append(Register(name, _count(cursor), start=begin, end=cursor.end))
        if not cursor.accept(","):
            break
    cursor.expect(";")
    return Registers(
        qualifiers.type, tuple(names), qualifiers.vector, qualifiers.alignment, start=start, end=cursor.end
    )


def linkage(cursor: Cursor) -> tuple[str, Span]:
    """Take the linkage, if any; return it and its span."""
    start = cursor.start
    if cursor.token not in LINKAGES:
        return "", Span(start, start)
    word = cursor.take()[1:]
    return word, Span(start, cursor.end)


def declaration(cursor: Cursor, line_of: Callable[[int], int] | None = None) -> Declaration:
    """Take a declaration of variables with its semicolon; *line_of* tells the line of an offset."""
    start = cursor.start
    texts, at = cursor.texts, cursor.at
    if texts[at] == ".param" and texts[at + 3 : at + 4] == [";"] and _is_typed_name(texts, at + 1):
        return _scalar(cursor, line_of)
    linked, span = linkage(cursor)
    if cursor.token not in SPACES:
        cursor.fail("a state space is expected")
    space = cursor.take()[1:]
    if cursor.accept("["):
        space += f"[{cursor.integer()}]"
        cursor.expect("]")
    qualifiers = Qualifiers(cursor).no_pointer(cursor)
    variables = []
    while True:
        begin = cursor.start
        name = cursor.word()
        count = _count(cursor)
        extents = _take_extents(cursor)
        initial = _initial(cursor) if cursor.accept("=") else ""
        variables.append(
            Variable(
                name=name,
                space=space,
                type=qualifiers.type,
                linkage=linked,
                alignment=qualifiers.alignment,
                vector=qualifiers.vector,
                extents=extents,
                count=count,
                initial=initial,
                attributes=qualifiers.attributes,
                line=line_of(begin) if line_of else 0,
                start=begin,
                end=cursor.end,
            )
        )
        if not cursor.accept(","):
            break
    cursor.expect(";")
    return Declaration(tuple(variables), span, start=start, end=cursor.end)


def _scalar(cursor: Cursor, line_of: Callable[[int], int] | None) -> Declaration:
    """Take the declaration of a variable for a call that has only a type and a name, as almost all have."""
    start, at = cursor.start, cursor.at
    kind_, name, begin = cursor.texts[at + 1], cursor.texts[at + 2], cursor.starts[at + 2]
    line = line_of(begin) if line_of else 0
    cursor.at += 4
    variable = Variable(name, "param", kind_[1:], line=line, start=begin, end=begin + len(name))
    return Declaration((variable,), Span(start, start), start=start, end=cursor.end)


def parameters(cursor: Cursor) -> tuple[Parameter, ...]:
    """Take parameters in parentheses; none without parentheses."""
    if not cursor.accept("(") or cursor.accept(")"):
        return ()
    params = []
    texts, starts = cursor.texts, cursor.starts
    while True:
        at = cursor.at
        start = starts[at]
        if _is_scalar(texts, at):
            name = texts[at + 2]
            end = starts[at + 2] + len(name)
            params.append(Parameter(name, texts[at][1:], texts[at + 1][1:], start=start, end=end))
            cursor.at = at + 4
            if texts[at + 3] == ")":
                return tuple(params)
            continue
        if cursor.token not in (".param", ".reg"):
            cursor.fail("a parameter is expected")
        space = cursor.take()[1:]
        qualifiers = Qualifiers(cursor)
        name = cursor.word()
        extents = _take_extents(cursor)
        params.append(
            Parameter(
                name=name,
                space=space,
                type=qualifiers.type,
                alignment=qualifiers.alignment,
                vector=qualifiers.vector,
                extents=extents,
                pointer=qualifiers.pointer,
                start=start,
                end=cursor.end,
            )
        )
        if not cursor.accept(","):
            cursor.expect(")")
            return tuple(params)


def _is_scalar(texts: list[str], at: int) -> bool:
    """Return whether the parameter at *at* has only a type and a name, as almost all have."""
    return (
        at + 3 < len(texts)
        and (texts[at + 3] == "," or texts[at + 3] == ")")
        and texts[at] in (".param", ".reg")
        and _is_typed_name(texts, at + 1)
    )


def _is_typed_name(texts: list[str], at: int) -> bool:
    """Return whether there are a type and a name at *at*."""
    return texts[at][0] == "." and width(texts[at][1:]) > 0 and is_name(texts[at + 1])


def function_directives(cursor: Cursor) -> tuple[Directive | Pragma, ...]:
    """Take the directives between a function's parameters and its body."""
    directives: list[Directive | Pragma] = []
    while kind(cursor.token) == "directive":
        if cursor.token == ".pragma":
            directives.append(pragma(cursor))
            continue
        start, keyword = cursor.start, cursor.take()[1:]
        directives.append(Directive(keyword, cursor.leaves(), start=start, end=cursor.end))
    return tuple(directives)


def _pointer(cursor: Cursor, start: int) -> Pointer:
    space, alignment = "", 0
    while kind(cursor.token) == "directive":
        if cursor.accept(".align"):
            alignment = cursor.integer()
        else:
            space = cursor.take()[1:]
    return Pointer(space, alignment, start=start, end=cursor.end)


def _count(cursor: Cursor) -> int | None:
    if not cursor.accept("<"):
        return None
    count = cursor.integer()
    cursor.expect(">")
    return count


def _take_extents(cursor: Cursor) -> tuple[int | None, ...]:
    extents: list[int | None] = []
    while cursor.accept("["):
        if cursor.accept("]"):
            extents.append(None)
            continue
        extents.append(cursor.integer())
        cursor.expect("]")
    return tuple(extents)


def _initial(cursor: Cursor) -> str:
    """Take an initializer, which the lexer may return as one token."""
    start, depth = cursor.start, 0
    while depth or cursor.token not in (",", ";"):
        token = cursor.take()
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(token, 0)
    if cursor.end <= start:
        cursor.fail("an initializer is expected")
    return cursor.text[start : cursor.end]
