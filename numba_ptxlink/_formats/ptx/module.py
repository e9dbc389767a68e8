"""Parse PTX modules to their items. The body of a function is parsed when it is first used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink._formats.ptx_header import HEADER_DIRECTIVES, Header, read_header
from numba_ptxlink.errors import LinkError

from . import lexer
from .lexer import MalformedError, comma_separated, token_at
from .statements import Statement, parse_statements
from .variables import LINKAGES, NOWHERE, SPACES, Cursor, Declaration, Prototype, Span, Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .lexer import Token

_FUNCTION_KEYWORDS = frozenset((".func", ".entry"))
_DECLARATION_STARTS = frozenset((*LINKAGES, *SPACES, *_FUNCTION_KEYWORDS))
# Memory whose variables another input of the link may define.
_LINKED_SPACES = ("global", "managed", "const", "shared")
# Directives at which reading resumes after malformed text. State spaces are left out, since they also occur
# within a declaration: after the linkage, and in parameters.
_ITEM_STARTS = frozenset(
    (*LINKAGES, *_FUNCTION_KEYWORDS, *HEADER_DIRECTIVES, ".file", ".section", ".pragma", ".alias")
)


@dataclass(slots=True)
class UnparsedItem:
    """
    A directive of a module that is kept as text.

    Args:
        keyword: The directive without the dot, such as "pragma"; "line" for a line of a preprocessor; "" for
            malformed text, whose error the compiler reports.
        text: The text of the directive.
        start: The offset of the directive into the text of the module.
        end: The offset after the directive.
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
    A second name of a function: `.alias name, target;`.

    Args:
        name: The symbol of the alias.
        target: The function to which the alias refers.
        start: The offset of the directive into the text of the module.
        end: The offset after the directive.
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
        kind: "func" for a device function, "entry" for a kernel.
        linkage: "visible", "extern", "weak" or "common"; "" if the function is local to the module.
        results: The results: one, or several if they are registers.
        params: The parameters, in order.
        attributes: The attributes, such as "unified(1, 2)".
        directives: The tokens between the parameters and the body, such as ".maxntid", "32".
        line: The 1-based line of `.func` or `.entry`.
        text: The text of the module.
        linkage_span: The range of the linkage; an empty range at its position if there is none.
        body_span: The range of the body with its braces; (-1, -1) for a declaration.
        start: The offset of the linkage into the text of the module.
        end: The offset after the body or the semicolon.
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
        """Whether the function has a body."""
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
                self._body = tuple(parse_statements(self.text[start + 1 : end - 1])) if self.defined else ()
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
        header: The version, the target and the size of addresses.

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
        """The names of declared variables that another input of the link has to define, used or not."""
        defined = {variable.name for variable in self.variables if variable.defined}
        declared = (
            variable.name
            for variable in self.variables
            if not variable.defined
            and variable.memory in _LINKED_SPACES
            # A declaration without a size is dynamic shared memory, which the launch defines.
            and (variable.memory != "shared" or variable.size)
        )
        return tuple(dict.fromkeys(name for name in declared if name not in defined))

    def replace(self, edits: Mapping[Span, str]) -> str:
        """
        Return the text with some ranges replaced.

        Args:
            edits: The new text for each range of offsets. An empty range inserts text.

        Raises:
            ValueError: Ranges overlap, or are outside of the text.
        """
        pieces: list[str] = []
        end = 0
        for (start, stop), new_text in sorted(edits.items()):
            if not end <= start <= stop <= len(self.text):
                raise ValueError(f"the range {start}:{stop} overlaps another, or is outside of the text")
            pieces += (self.text[end:start], new_text)
            end = stop
        return "".join((*pieces, self.text[end:]))

    def with_linkages(self, linkages: Mapping[str, str]) -> str:
        """
        Return the text with other linkages.

        Args:
            linkages: The linkage of functions and variables by name, such as {"f": "weak"}; "" for none. A
                declaration of several variables gets the linkage of the first of them that is in *linkages*.
        """
        edits = {}
        for item in self.items:
            if not isinstance(item, (Function, Declaration)):
                continue
            declared = [item] if isinstance(item, Function) else item.variables
            name = next((symbol.name for symbol in declared if symbol.name in linkages), None)
            if name is not None:
                linkage, span = linkages[name], item.linkage_span
                # A linkage that is inserted at an empty span needs a blank after it.
                blank = " " if span.start == span.end else ""
                edits[span] = f".{linkage}{blank}" if linkage else ""
        return self.replace(edits)


def parse(text: str) -> Module:
    """
    Return the PTX module *text*, whose function bodies are parsed when they are first used.

    Never raises: malformed text becomes an `UnparsedItem` without a keyword.
    """
    return Module(text, _Reader(text).items(), read_header(text))


def has_line_numbers(text: str) -> bool:
    """Return whether the PTX *text* maps its instructions to source lines."""
    # In most texts, ".loc" is only the beginning of ".local": the slow search by a pattern is not needed.
    return text.count(".loc") > text.count(".local") and lexer.has_directive(text, ".loc")


class _Reader:
    """Read the items of a module's text, without the statements of functions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = 1
        self._counted_offset = 0

    def items(self) -> list[Item]:
        """Return all items, in order."""
        items: list[Item] = []
        end = 0
        while (token := token_at(self._text, end)).text:
            try:
                item = self._item(token)
            except MalformedError as error:
                end = self._malformed_end(token)
                item = UnparsedItem("", self._text[token.start : end], token.start, end, str(error))
            items.append(item)
            end = item.end
        return items

    def _item(self, token: Token) -> Item:
        if token.text in _DECLARATION_STARTS:
            return self._declaration(token.start)
        return self._directive(token)

    def _directive(self, token: Token) -> UnparsedItem | Alias:
        """Read the item that begins with *token*, and is neither a function nor a declaration."""
        text, start = self._text, token.start
        word = token.text
        if token.kind == "line":
            return UnparsedItem("line", word, start, token.end)
        if word in HEADER_DIRECTIVES or word == ".file":
            values, end = comma_separated(text, token.end)
            if word == ".file":
                # `.file 1 "udfs.py"`: no comma separates the number and the path.
                path, end = comma_separated(text, end)
                are_numbers = [lexer.parse_integer(value) is not None for value in (*values, *path)]
                if are_numbers[:2] != [True, False]:
                    raise MalformedError("a number and a string are expected after '.file'")
        elif word == ".section":
            opening_brace, _ = lexer.delimiter(text, start)
            end = lexer.block_end(text, opening_brace) or -1
        elif word in (".pragma", ".alias"):
            end = lexer.delimiter(text, start)[0] + 1
        else:
            end = -1
        # The directive is unknown, or its semicolon or closing brace is missing.
        if end < 0 or end > len(text):
            raise MalformedError(f"{word[:40]!r} begins no known directive")
        if word == ".alias":
            cursor = Cursor(text, *lexer.tokens(text, token.end, end - 1), end - 1)
            name = cursor.take("word")
            cursor.expect(",")
            return Alias(name, cursor.take("word"), start, end)
        return UnparsedItem(word[1:], text[start:end], start, end)

    def _declaration(self, start: int) -> Function | Declaration:
        """
        Read the function or the variables whose declaration begins at *start*.

        Each initializer becomes one token: splitting long tables of numbers would take long.
        """
        text = self._text
        stop, delimiter = lexer.delimiter(text, start)
        texts, starts = lexer.tokens(text, start, stop)
        while delimiter == "=" or (delimiter == ";" and ".pragma" in texts[-4:]):
            # Read on after an initializer, or after a pragma: between the parameters and the body of a
            # function, `.pragma "nounroll";` does not end the declaration. The last four tokens include the
            # keyword of a pragma with two strings.
            position = stop + 1
            if delimiter == "=":
                initial_start = token_at(text, position).start
                initial_end, position = lexer.initializer_end(text, initial_start)
                texts += ("=", text[initial_start:initial_end])
                starts += (stop, initial_start)
            stop, delimiter = lexer.delimiter(text, position)
            if stop > position:
                new_texts, new_starts = lexer.tokens(text, position, stop)
                texts += new_texts
                starts += new_starts
        cursor = Cursor(text, texts, starts, stop, self._line_of)
        # `.func` and `.entry` may follow a linkage.
        if not _FUNCTION_KEYWORDS.isdisjoint(texts[:2]):
            return self._function(cursor, stop, delimiter)
        if delimiter != ";":
            raise MalformedError("';' is expected")
        return cursor.declaration(stop + 1)

    def _function(self, cursor: Cursor, stop: int, delimiter: str) -> Function:
        """
        Read a function.

        Args:
            cursor: The tokens before the body.
            stop: The offset of *delimiter*.
            delimiter: The opening brace of the body, or the semicolon of a declaration.
        """
        start = cursor.start
        linkage, linkage_span = cursor.linkage()
        line = self._line_of(cursor.start)
        kind = cursor.take()[1:]
        attributes: tuple[str, ...] = ()
        while cursor.accept(".attribute"):
            attributes += cursor.attributes()
        results = cursor.parameters()
        # A name has no dot. In a word such as `f.noreturn`, a directive follows the name without a blank.
        name, *words = cursor.take("word").split(".")
        directives = [f".{word}" for word in words]
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

    def _malformed_end(self, token: Token) -> int:
        """
        Return the offset after the malformed text that begins with *token*.

        The text ends with a semicolon or a block, or before the next item.
        """
        end = token.end
        while token.text != ";":
            if token.text == "{":
                return lexer.block_end(self._text, token.start) or len(self._text)
            token = token_at(self._text, end)
            if not token.text or token.text in _ITEM_STARTS:
                break
            end = token.end
        return end

    def _line_of(self, offset: int) -> int:
        """Return the 1-based line of *offset*; counting resumes at the offset of the last call."""
        # The first range is empty if *offset* is before that of the last call, the second if it is after it.
        self._line += self._text.count("\n", self._counted_offset, offset)
        self._line -= self._text.count("\n", offset, self._counted_offset)
        self._counted_offset = offset
        return self._line
