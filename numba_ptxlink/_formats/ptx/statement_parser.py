"""Parse the statements of functions and sections from tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .cursor import Cursor
from .declaration_parser import (
    LINKAGES,
    SPACES,
    declaration,
    function_directives,
    parameters,
    pragma,
    registers,
)
from .declarations import Directive
from .forms import read_form
from .lexer import MalformedError, kind, split, token_at
from .operands import Name, Negated, Operand
from .statements import (
    Block,
    Call,
    CallPrototype,
    Code,
    Instruction,
    Label,
    Line,
    Location,
    Targets,
    Values,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .lexer import Token
    from .statements import Statement

DEEPEST = 100
"""Blocks in each other; printing and comparing recurse once for each."""

_LABELLED = (".branchtargets", ".calltargets", ".callprototype")
_LABEL = r"[\w$%]+[ \t]*:(?!:)(?!\s*\.(?:branch|call))"
_LABELLING = re.compile(_LABEL, re.ASCII)
# Instructions of a common form: no comments or strings, and all modifiers right behind the opcode.
_OPERANDS = r"[^;:{}\"/@]*(?:\{[^;:{}\"/@]*\}[^;:{}\"/@]*)*"
_NOT_PLAIN = r"(?:call|ret|brx|alloca|stack\w+)\b|(?:ld|st)[\w.:]*\.param\b"
_INSTRUCTION = rf"(?:@!?%[\w$]+\s+)?(?!{_NOT_PLAIN})[a-z]\w*(?:\.\w+|::\w+)*\s(?!\s*\.){_OPERANDS};"
_PLAIN = re.compile(rf"(?:\s*(?:{_INSTRUCTION}|{_LABEL}))+", re.ASCII)


def read_statements(text: str, start: int, end: int, *, closed: bool = True) -> tuple[Statement, ...]:
    """
    Return the statements of *text* from *start* to *end*, after which a brace has to be *closed*.

    Raises:
        MalformedError: They are none.
    """
    if closed and start == end:
        return ()
    cursor = Cursor(text, *split(text, start, end))
    outer: list[tuple[int, list[Statement]]] = []
    statements: list[Statement] = []
    while token := cursor.texts[cursor.at]:
        if token == "{":
            if len(outer) >= DEEPEST:
                cursor.fail("blocks are nested too deeply")
            outer.append((cursor.start, statements))
            statements = []
            cursor.at += 1
        elif token == "}":
            if not outer:
                cursor.fail("a statement is expected")
            cursor.at += 1
            begin, enclosing = outer.pop()
            enclosing.append(Block(tuple(statements), start=begin, end=cursor.end))
            statements = enclosing
        else:
            statements.append(_statement(cursor, token))
    if outer or not closed:
        cursor.fail("'}' is expected")
    return tuple(statements)


def read_outline(text: str, start: int, end: int) -> tuple[Statement, ...]:
    """
    Return the statements of *text* from *start* to *end*, with plain instructions and labels as `Code`.

    Plain are instructions of a common form, but for calls, returns, jumps to one of several labels, accesses
    to parameters, and what allocates on the stack.

    Raises:
        MalformedError: They are none.
    """
    outer: list[tuple[int, list[Statement]]] = []
    statements: list[Statement] = []
    # Statements of other forms are read together, up to the next one of these or a brace.
    unread = start
    while True:
        common = read_form(text, start, end) or _code(text, start, end)
        if common:
            statements += (*read_statements(text, unread, start), common)
            start = unread = common.end
            continue
        token = token_at(text, start)
        ends = token.start >= end or not token.text
        if not ends and token.text not in ("{", "}"):
            start = _statement_end(text, token, end)
            continue
        statements += read_statements(text, unread, start)
        if ends:
            if outer:
                raise MalformedError("'}' is expected", token.start)
            return tuple(statements)
        if token.text == "{":
            if len(outer) >= DEEPEST:
                raise MalformedError("blocks are nested too deeply", token.start)
            outer.append((token.start, statements))
            statements = []
        else:
            if not outer:
                raise MalformedError("a statement is expected", token.start)
            begin, enclosing = outer.pop()
            enclosing.append(Block(tuple(statements), start=begin, end=token.end))
            statements = enclosing
        start = unread = token.end


def _code(text: str, start: int, end: int) -> Code | None:
    """Return the plain instructions and labels at *start*, None if there are none."""
    plain = _PLAIN.match(text, start, end)
    return Code(plain[0], start=start, end=plain.end()) if plain else None


def _statement_end(text: str, token: Token, end: int) -> int:
    """Return the end of the statement that begins with *token*, which is no brace."""
    if token.kind == "line":
        return token.end
    label = _LABELLING.match(text, token.start, end)
    if label:
        return label.end()
    # A location ends with its line.
    last = "\n" if token.text == ".loc" else ";"
    stop = text.find(last, token.start, end) + 1
    if not stop:
        raise MalformedError(f"{last!r} is expected", token.start)
    return stop


def read_section(text: str, start: int, end: int) -> tuple[Label | Values, ...]:
    """
    Return the labels and values of the section in *text* from *start* to *end*.

    Raises:
        MalformedError: The text is not a section's content.
    """
    cursor = Cursor(text, *split(text, start, end))
    statements: list[Label | Values] = []
    while cursor.token:
        begin = cursor.start
        if kind(cursor.token) == "directive":
            keyword = cursor.take()[1:]
            values = [_value(cursor)]
            while cursor.accept(","):
                values.append(_value(cursor))
            statements.append(Values(keyword, tuple(values), start=begin, end=cursor.end))
        else:
            name = cursor.word()
            cursor.expect(":")
            statements.append(Label(name, start=begin, end=cursor.end))
    return tuple(statements)


def _value(cursor: Cursor) -> tuple[Operand | str, ...]:
    parts: list[Operand | str] = [cursor.take()] if cursor.token == "-" else []
    parts.append(cursor.leaf())
    while cursor.token in ("+", "-"):
        parts += (cursor.take(), cursor.leaf())
    return tuple(parts)


def _statement(cursor: Cursor, token: str) -> Statement:
    first = token[0]
    start = cursor.start
    if first == ".":
        read = _DIRECTIVES.get(token)
        if read:
            return read(cursor)
        return _declared(cursor, "", start) if token in _LABELLED else _unknown(cursor)
    if first == "@" and len(token) == 1:
        cursor.at += 1
        outer = cursor.start
        opposite = cursor.accept("!")
        inner = cursor.start
        register = Name(cursor.word(), start=inner, end=cursor.end)
        predicate = Negated("!", register, start=outer, end=cursor.end) if opposite else register
        return _instruction(cursor, start, predicate)
    if first in "#@":
        cursor.at += 1
        return Line(token, start=start, end=cursor.end)
    if cursor.texts[cursor.at + 1] == ":":
        name = cursor.word()
        cursor.at += 1
        if cursor.token in _LABELLED:
            return _declared(cursor, name, start)
        return Label(name, start=start, end=cursor.end)
    return _instruction(cursor, start, None)


def _instruction(cursor: Cursor, start: int, predicate: Name | Negated | None) -> Instruction | Call:
    opcode, *modifiers = cursor.word(plain=False).split(".")
    while (token := cursor.texts[cursor.at])[:1] == "." and kind(token) == "directive":
        modifiers.append(cursor.take()[1:])
    if opcode == "call":
        return _call(cursor, start, tuple(modifiers), predicate)
    operands = cursor.operands(";")
    return Instruction(opcode, tuple(modifiers), operands, predicate, start=start, end=cursor.end)


def _call(cursor: Cursor, start: int, modifiers: tuple[str, ...], predicate: Name | Negated | None) -> Call:
    results: tuple[Operand, ...] = ()
    if cursor.accept("("):
        results = cursor.operands(")")
        cursor.expect(",")
    callee = cursor.operand()
    arguments: tuple[Operand, ...] = ()
    prototype = None
    if cursor.accept(","):
        if cursor.accept("("):
            arguments = cursor.operands(")")
            named = cursor.accept(",")
        else:
            named = True
        if named:
            begin = cursor.start
            prototype = Name(cursor.word(), start=begin, end=cursor.end)
    cursor.expect(";")
    return Call(callee, arguments, results, prototype, modifiers, predicate, start=start, end=cursor.end)


def _location(cursor: Cursor) -> Location:
    start = cursor.start
    cursor.at += 1
    file, line, column = cursor.integer(), cursor.integer(), cursor.integer()
    function, offset, inlined_at = None, 0, None
    while cursor.accept(","):
        begin, word = cursor.start, cursor.word()
        if word == "function_name":
            begin = cursor.start
            function = Name(cursor.word(), start=begin, end=cursor.end)
            offset = cursor.integer() if cursor.accept("+") else 0
        elif word == "inlined_at":
            inlined_at = (cursor.integer(), cursor.integer(), cursor.integer())
        else:
            raise MalformedError(f"'function_name' or 'inlined_at' is expected, not {word!r}", begin)
    return Location(file, line, column, function, offset, inlined_at, start=start, end=cursor.end)


def _declared(cursor: Cursor, name: str, start: int) -> Targets | CallPrototype:
    """Take the rest of the label *name*."""
    keyword = cursor.take()[1:]
    if keyword != "callprototype":
        targets = []
        while True:
            begin = cursor.start
            targets.append(Name(cursor.word(), start=begin, end=cursor.end))
            if not cursor.accept(","):
                break
        cursor.expect(";")
        return Targets(name, keyword, tuple(targets), start=start, end=cursor.end)
    results = parameters(cursor)
    cursor.word()
    params = parameters(cursor)
    directives = function_directives(cursor)
    cursor.expect(";")
    return CallPrototype(name, results, params, directives, start=start, end=cursor.end)


def _unknown(cursor: Cursor) -> Directive:
    """Take a directive of a later PTX version."""
    start, keyword = cursor.start, cursor.take()[1:]
    return Directive(keyword, cursor.operands(";"), start=start, end=cursor.end)


_DIRECTIVES: dict[str, Callable[[Cursor], Statement]] = {
    ".reg": registers,
    ".loc": _location,
    ".pragma": pragma,
    **dict.fromkeys((*SPACES, *LINKAGES), declaration),
}
