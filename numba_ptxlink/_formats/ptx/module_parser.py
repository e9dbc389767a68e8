"""Parse the text of a PTX module into items."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import lexer
from .cursor import Cursor
from .declaration_parser import (
    LINKAGES,
    SPACES,
    attributes,
    declaration,
    function_directives,
    linkage,
    parameters,
    pragma,
)
from .declarations import Directive
from .header import HEADER, Header, is_decimal, listed
from .lexer import MalformedError, token_at
from .module import Alias, File, Function, Item, Module, Section, Unknown
from .operands import Name, Span
from .statements import Line

if TYPE_CHECKING:
    from .lexer import Token

_KINDS = (".func", ".entry")
_DECLARATIONS = frozenset((*LINKAGES, *SPACES, *_KINDS))
# Directives at which parsing resumes after an unknown one.
_STARTS = frozenset((*_DECLARATIONS, *HEADER, ".file", ".section", ".pragma", ".alias"))


def parse(text: str) -> Module:
    """
    Return the PTX module *text*. The body of a function is parsed at its first use.

    Never raises: text that is not understood becomes an `Unknown` item.
    """
    items = _Reader(text).items()
    values: dict[str, list[str]] = {}
    for item in items:
        if isinstance(item, Directive):
            values.setdefault(item.keyword, [str(operand) for operand in item.operands])
        elif not isinstance(item, Line):
            break
    return Module(text, items, Header.of(values))


class _Reader:
    """Parse the items of *text*, skipping the bodies of functions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = 1
        self._counted = 0

    def items(self) -> list[Item]:
        """Return all items."""
        items: list[Item] = []
        start = 0
        while True:
            token = token_at(self._text, start)
            if not token.text:
                return items
            try:
                item = self._item(token)
            except MalformedError as error:
                end = self._unknown_end(token)
                text = self._text[token.start : end]
                item = Unknown(text, error.cause, start=token.start, end=end)
            items.append(item)
            start = item.end

    def _item(self, token: Token) -> Item:
        text, start, word = self._text, token.start, token.text
        if word in _DECLARATIONS:
            cursor = self._statement(start)
            if cursor.texts[1 if word in LINKAGES else 0] in _KINDS:
                return self._function(cursor)
            return declaration(cursor, self._line_of)
        if token.kind == "line":
            return Line(word, start=start, end=token.end)
        if word in HEADER:
            texts, starts, end = listed(text, token.end)
            leaves = Cursor(text, [*texts, ""], [*starts, end]).leaves()
            return Directive(word[1:], leaves, start=start, end=end)
        if word == ".file":
            return self._file(token)
        if word == ".section":
            return self._section(token)
        if word == ".pragma":
            return pragma(self._statement(start))
        if word == ".alias":
            return self._alias(start)
        raise MalformedError(f"{word[:40]!r} begins no known directive", start)

    def _statement(self, start: int) -> Cursor:
        """Return the tokens of the declaration at *start*, with its delimiter."""
        texts, starts, stop, delimiter = lexer.declaration(self._text, start)
        if delimiter:
            texts.insert(-1, delimiter)
            starts.insert(-1, stop)
        return Cursor(self._text, texts, starts)

    def _function(self, cursor: Cursor) -> Function:
        start = cursor.start
        linked, linkage_span = linkage(cursor)
        line = self._line_of(cursor.start)
        kind = cursor.take()[1:]
        attributed: tuple[Directive, ...] = ()
        while cursor.accept(".attribute"):
            attributed += attributes(cursor)
        results = parameters(cursor)
        cursor.split_name()
        name_start, name = cursor.start, cursor.word()
        name_span = Span(name_start, cursor.end)
        params = parameters(cursor)
        directives = function_directives(cursor)
        body_span, end, closed = Span(-1, -1), cursor.start + 1, True
        if cursor.token == "{":
            after = lexer.block_end(self._text, cursor.start)
            closed = after is not None
            end = len(self._text) if after is None else after
            body_span = Span(cursor.start, end)
        else:
            cursor.expect(";")
        return Function(
            name=name,
            kind=kind,
            linkage=linked,
            results=results,
            params=params,
            attributes=attributed,
            directives=directives,
            line=line,
            text=self._text,
            linkage_span=linkage_span,
            name_span=name_span,
            body_span=body_span,
            closed=closed,
            start=start,
            end=end,
        )

    def _file(self, token: Token) -> File:
        index = token_at(self._text, token.end)
        path = token_at(self._text, index.end)
        if not is_decimal(index.text) or path.kind != "string":
            raise MalformedError("a number and a path are expected", index.start)
        times, end = [], path.end
        while token_at(self._text, end).text == ",":
            time = token_at(self._text, token_at(self._text, end).end)
            if not is_decimal(time.text):
                raise MalformedError("a number is expected", time.start)
            times.append(int(time.text))
            end = time.end
        return File(int(index.text), path.text[1:-1], tuple(times), start=token.start, end=end)

    def _section(self, token: Token) -> Section:
        name = token_at(self._text, token.end)
        brace = token_at(self._text, name.end)
        end = lexer.block_end(self._text, brace.start) if brace.text == "{" else None
        if name.kind not in ("directive", "word") or end is None:
            raise MalformedError("a name and a block are expected", name.start)
        return Section(name.text, self._text, Span(brace.start, end), start=token.start, end=end)

    def _alias(self, start: int) -> Alias:
        cursor = self._statement(start)
        cursor.at += 1
        name = cursor.word()
        cursor.expect(",")
        begin = cursor.start
        target = Name(cursor.word(), start=begin, end=cursor.end)
        cursor.expect(";")
        return Alias(name, target, start=start, end=cursor.end)

    def _unknown_end(self, token: Token) -> int:
        """Return the end of the unknown text that begins with *token*."""
        if token.text in _DECLARATIONS or token.text in (".pragma", ".alias", ".section"):
            # Skip the whole statement: reading again from each of its words would take quadratic time.
            _, _, stop, delimiter = lexer.declaration(self._text, token.start)
            if delimiter == "{":
                return lexer.block_end(self._text, stop) or len(self._text)
            return stop + len(delimiter)
        end = token.end
        while token.text != ";":
            if token.text == "{":
                return lexer.block_end(self._text, token.start) or len(self._text)
            token = token_at(self._text, end)
            if not token.text or token.text in _STARTS:
                break
            end = token.end
        return end

    def _line_of(self, start: int) -> int:
        """Return the line of *start*, which must not precede that of the last call."""
        self._line += self._text.count("\n", self._counted, start)
        self._counted = start
        return self._line
