"""Parse PTX modules to their items. The body of a function is parsed when it is first used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink._formats.ptx_header import HEADER, Header, read_header
from numba_ptxlink.errors import LinkError

from . import lexer
from .lexer import MalformedError, comma_separated, token_at
from .statements import Statement, read
from .variables import LINKAGES, NOWHERE, SPACES, Cursor, Declaration, Prototype, Span, Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .lexer import Token

_KINDS = frozenset((".func", ".entry"))
_DECLARATIONS = frozenset((*LINKAGES, *SPACES, *_KINDS))
_LINKED_SPACES = ("global", "managed", "const", "shared")
# Directives at which reading resumes after an unknown one.
_STARTS = frozenset((*_DECLARATIONS, *HEADER, ".file", ".section", ".pragma", ".alias"))


@dataclass(slots=True)
class UnparsedItem:
    """
    A directive of a module that is kept as text.

    Args:
        keyword: The directive without the dot, such as "pragma"; "line" for a line of a preprocessor; "" for
            malformed text, whose error the compiler reports.
        text: The text.
        start: The offset into the text of the module.
        end: The offset after it.
        cause: The reason why the text is malformed; "" if it is not.
    """

    keyword: str
    text: str
    start: int
    end: int
    cause: str = ""


@dataclass(slots=True)
class Alias:
    """
    An `.alias`.

    Args:
        name: The symbol of the alias.
        target: The function to which the alias refers.
        start: The offset into the text of the module.
        end: The offset after it.
    """

    name: str
    target: str
    start: int
    end: int

    def __str__(self) -> str:
        return f".alias {self.name}, {self.target};"


@dataclass(slots=True, eq=False)
class Function:
    """
    A declaration or definition of a function, from its linkage to the end of its body or its semicolon.

    Args:
        name: The symbol.
        kind: "func" or "entry".
        linkage: "visible", "extern", "weak", "common" or "" for local to the module.
        results: The results: one, or several if they are registers.
        params: The parameters, in order.
        attributes: The attributes, such as "unified(1, 2)".
        directives: The tokens between the parameters and the body, such as ".maxntid", "32".
        line: 1-based line of `.func` or `.entry`.
        text: The text of the module.
        linkage_span: The range of the linkage; an empty range at its position if there is none.
        body_span: The range of the body with its braces; (-1, -1) for a declaration.
        start: The offset into the text of the module.
        end: The offset after it.
    """

    name: str
    kind: str
    linkage: str
    results: tuple[Variable, ...]
    params: tuple[Variable, ...]
    attributes: tuple[str, ...]
    directives: tuple[str, ...]
    line: int
    text: str = field(repr=False)
    linkage_span: Span
    body_span: Span
    start: int
    end: int
    _body: tuple[Statement, ...] | None = field(default=None, repr=False)

    @property
    def defined(self) -> bool:
        """Whether it has a body."""
        return self.body_span.start >= 0

    @property
    def prototype(self) -> Prototype:
        """The interface that callers have to agree with."""
        return Prototype(
            name=self.name,
            result=self.results[0].param if self.results else None,
            params=tuple(parameter.param for parameter in self.params),
            entry=self.kind == "entry",
        )

    @property
    def heading(self) -> str:
        """The declaration as written, without the semicolon or body."""
        end = self.body_span.start if self.defined else self.end - 1
        return lexer.without_comments(self.text[self.start : end]).strip()

    @property
    def body(self) -> tuple[Statement, ...]:
        """
        The statements of the body, parsed once; none for a declaration.

        Raises:
            LinkError: The body is malformed.
        """
        if self._body is None:
            start, end = self.body_span
            try:
                self._body = tuple(read(self.text[start + 1 : end - 1])) if self.defined else ()
            except MalformedError as error:
                raise LinkError(
                    f"The PTX function {self.name} cannot be read: {error}; correct the PTX, "
                    "or report this if ptxas accepts it."
                ) from None
        return self._body


Item = Function | Declaration | Alias | UnparsedItem


class Module:
    """
    A PTX module. The offsets of its items refer to its text.

    Args:
        text: The text.
        items: The items of the text, in order.
        header: Version, target and size of addresses.

    Attributes:
        functions: Every declaration and definition of a function, in the order of the text.
        variables: Every variable outside of functions, in the order of the text.
    """

    def __init__(self, text: str, items: Iterable[Item], header: Header) -> None:
        self.text = text
        self.items = tuple(items)
        self.header = header
        self.functions = tuple(item for item in self.items if isinstance(item, Function))
        self.variables = tuple(
            variable for item in self.items if isinstance(item, Declaration) for variable in item.variables
        )

    @property
    def aliases(self) -> tuple[Alias, ...]:
        """The aliases."""
        return tuple(item for item in self.items if isinstance(item, Alias))

    @property
    def undefined_variables(self) -> tuple[str, ...]:
        """The declared variables that other inputs of a link have to define, used or not."""
        defined = {variable.name for variable in self.variables if variable.defined}
        declared = (
            variable.name
            for variable in self.variables
            if not variable.defined
            and variable.memory in _LINKED_SPACES
            # The launch defines dynamic shared memory.
            and (variable.memory != "shared" or variable.size)
        )
        return tuple(dict.fromkeys(name for name in declared if name not in defined))

    def replace(self, edits: Mapping[Span, str]) -> str:
        """
        Return the text with some ranges replaced.

        Args:
            edits: New text for each range, which may be empty.

        Raises:
            ValueError: Ranges overlap, or are outside of the text.
        """
        pieces: list[str] = []
        end = 0
        for (start, stop), new in sorted(edits.items()):
            if not end <= start <= stop <= len(self.text):
                raise ValueError(f"the range {start}:{stop} overlaps another, or is outside of the text")
            pieces += (self.text[end:start], new)
            end = stop
        return "".join((*pieces, self.text[end:]))

    def with_linkages(self, names: Mapping[str, str]) -> str:
        """
        Return the text with other linkages.

        Args:
            names: The linkage of functions and variables by name, such as {"f": "weak"}, or "" for none.
                A declaration of several variables changes if one of them is named.
        """
        edits = {}
        for item in self.items:
            if isinstance(item, (Function, Declaration)):
                declared = [item] if isinstance(item, Function) else item.variables
                for linkage in [names[symbol.name] for symbol in declared if symbol.name in names][:1]:
                    start, end = item.linkage_span
                    blank = " " if linkage and start == end else ""
                    edits[Span(start, end)] = f".{linkage}{blank}" if linkage else ""
        return self.replace(edits)


def parse(text: str) -> Module:
    """
    Return the PTX module *text*, whose function bodies are parsed when they are first used.

    Never raises: malformed text becomes an `UnparsedItem` without a keyword.
    """
    return Module(text, _Reader(text).items(), read_header(text))


def has_line_numbers(text: str) -> bool:
    """Return whether the PTX *text* maps its instructions to source lines."""
    # Most text needs no search by a pattern.
    return text.count(".loc") > text.count(".local") and lexer.has_directive(text, ".loc")


class _Reader:
    """Read the items of *text*, without the bodies of functions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = 1
        self._counted_offset = 0

    def items(self) -> list[Item]:
        """Return all items."""
        items: list[Item] = []
        end = 0
        while (token := token_at(self._text, end)).text:
            try:
                item = self._item(token)
            except MalformedError as error:
                end = self._unknown_end(token)
                item = UnparsedItem("", self._text[token.start : end], token.start, end, str(error))
            items.append(item)
            end = item.end
        return items

    def _item(self, token: Token) -> Item:
        if token.text in _DECLARATIONS:
            return self._declaration(token.start)
        return self._other_item(token)

    def _other_item(self, token: Token) -> UnparsedItem | Alias:
        text, start = self._text, token.start
        word = token.text
        if token.kind == "line":
            return UnparsedItem("line", word, start, token.end)
        if word in HEADER or word == ".file":
            values, end = comma_separated(text, token.end)
            if word == ".file":
                path, end = comma_separated(text, end)
                if [lexer.number(value) is None for value in (*values, *path)][:2] != [False, True]:
                    raise MalformedError("a number and a string are expected after '.file'")
        elif word == ".section":
            brace, _ = lexer.delimiter(text, start)
            end = lexer.block_end(text, brace) or -1
        elif word in (".pragma", ".alias"):
            end = lexer.delimiter(text, start)[0] + 1
        else:
            end = -1
        if end < 0 or end > len(text):
            raise MalformedError(f"{word[:40]!r} begins no known directive")
        if word == ".alias":
            cursor = Cursor(text, *lexer.tokens(text, token.end, end - 1), end - 1)
            name = cursor.take("word")
            cursor.expect(",")
            return Alias(name, cursor.take("word"), start, end)
        return UnparsedItem(word[1:], text[start:end], start, end)

    def _declaration(self, start: int) -> Function | Declaration:
        """Read a function or a declaration of variables; an initializer is one token."""
        text = self._text
        stop, delimiter = lexer.delimiter(text, start)
        texts, starts = lexer.tokens(text, start, stop)
        while delimiter == "=" or (delimiter == ";" and ".pragma" in texts[-4:]):
            # A pragma before the body of a function has its own semicolon.
            position = stop + 1
            if delimiter == "=":
                begin = token_at(text, position).start
                end, position = lexer.initializer_end(text, begin)
                texts += ("=", text[begin:end])
                starts += (stop, begin)
            begin = position
            stop, delimiter = lexer.delimiter(text, begin)
            if stop > begin:
                new_texts, new_starts = lexer.tokens(text, begin, stop)
                texts += new_texts
                starts += new_starts
        cursor = Cursor(text, texts, starts, stop, self._line_of)
        if not _KINDS.isdisjoint(texts[:2]):
            return self._function(cursor, stop, delimiter)
        if delimiter != ";":
            raise MalformedError("';' is expected")
        return cursor.declaration(stop + 1)

    def _function(self, cursor: Cursor, stop: int, delimiter: str) -> Function:
        start = cursor.start
        linkage, linkage_span = cursor.linkage()
        line = self._line_of(cursor.start)
        kind = cursor.take()[1:]
        attributes: tuple[str, ...] = ()
        while cursor.accept(".attribute"):
            attributes += cursor.attributes()
        results = cursor.parameters()
        # A name has no dot: the rest of the word is a directive, which compilers reject if it is unknown.
        name, *directives = cursor.take("word").split(".")
        params = cursor.parameters()
        while token := cursor.token:
            if lexer.kind(token) not in ("directive", "number", "word", "string") and token != ",":
                cursor.fail("a directive is expected")
            directives.append(token)
            cursor.index += 1
        end, body_span = stop + 1, NOWHERE
        if delimiter == "{":
            closing = lexer.block_end(self._text, stop)
            if closing is None:
                raise MalformedError("'}' is expected")
            end, body_span = closing, Span(stop, closing)
        elif delimiter != ";":
            cursor.fail("';' or '{' is expected")
        return Function(
            name,
            kind,
            linkage,
            results,
            params,
            attributes,
            tuple(directives),
            line,
            self._text,
            linkage_span,
            body_span,
            start,
            end,
        )

    def _unknown_end(self, token: Token) -> int:
        """Return the offset after the malformed text that begins with *token*."""
        end = token.end
        while token.text != ";":
            if token.text == "{":
                return lexer.block_end(self._text, token.start) or len(self._text)
            token = token_at(self._text, end)
            if not token.text or (token.text in _STARTS and token.text not in SPACES):
                break
            end = token.end
        return end

    def _line_of(self, start: int) -> int:
        """Return the line of the offset *start*, counted from the offset of the last call."""
        self._line += self._text.count("\n", self._counted_offset, start)
        self._line -= self._text.count("\n", start, self._counted_offset)
        self._counted_offset = start
        return self._line
