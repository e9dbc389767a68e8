"""PTX modules as values. The body of a function is parsed at its first use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink.errors import LinkError

from . import lexer, printer
from .declarations import Declaration, Directive, Parameter, Pragma, attributed
from .lexer import MalformedError
from .operands import Name, Node, Span
from .prototypes import Prototype
from .statement_parser import read_outline, read_section, read_statements
from .statements import Label, Line, Statement, Values, block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numba_ptxlink._arch import PtxVersion

    from .header import Header

_LOCATION = re.compile(r"\.loc(?![\w$:])", re.ASCII)
_NOWHERE = Span(-1, -1)


@dataclass(slots=True, unsafe_hash=True)
class File(Node):
    """
    A `.file`, which names a source.

    Args:
        index: The number that `.loc` knows it by.
        path: The source.
        times: Time of its last change and its size, or nothing.
    """

    index: int
    path: str
    times: tuple[int, ...] = ()

    def __str__(self) -> str:
        return ", ".join((f'.file {self.index} "{self.path}"', *map(str, self.times)))


@dataclass(slots=True, unsafe_hash=True)
class Alias(Node):
    """
    An `.alias`.

    Args:
        name: The function that is declared.
        target: The function that is meant.
    """

    name: str
    target: Name

    def __str__(self) -> str:
        return f".alias {self.name}, {self.target};"


@dataclass(slots=True, unsafe_hash=True)
class Unknown(Node):
    """
    Text that this package does not understand. The tool that compiles it reports the error.

    Args:
        text: All of it.
        cause: Why it was not understood.
    """

    text: str
    cause: str

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True, eq=False)
class Section(Node):
    """
    A `.section` of DWARF.

    Args:
        section: Its name, with the dot.
        text: The text of the module.
        content_span: Where its braces are.
    """

    section: str
    text: str = field(repr=False)
    content_span: Span = field(repr=False)

    @property
    def content(self) -> tuple[Label | Values, ...]:
        """
        What is in it.

        Raises:
            LinkError: It is malformed.
        """
        try:
            return read_section(self.text, self.content_span.start + 1, self.content_span.end - 1)
        except MalformedError as error:
            raise _refused(self.text, f"section {self.section}", error) from None

    def __str__(self) -> str:
        lines = "".join(f"{line}\n" for line in self.content)
        return f".section {self.section}\n{{\n{lines}}}"


@dataclass(slots=True, eq=False)
class Function(Node):
    """
    One occurrence of a function. It begins at its linkage, and ends after its body or its semicolon.

    Args:
        name: The symbol.
        kind: "func" or "entry".
        linkage: "visible", "extern", "weak", "common" or "" for local to the module.
        results: What it returns: one, or several where they are registers.
        params: Its parameters, in order.
        attributes: Such as `.unified`.
        directives: What stands between the parameters and the body, such as `.maxntid`.
        line: 1-based line of the text that its kind stands on.
        text: The text of the module.
        linkage_span: Where the linkage is; an empty range where it would be if there is none.
        name_span: Where the name is.
        body_span: Where the braces of its body are, (-1, -1) for a declaration.
        closed: Whether the body's closing brace is there.
    """

    name: str
    kind: str
    linkage: str
    results: tuple[Parameter, ...]
    params: tuple[Parameter, ...]
    attributes: tuple[Directive, ...]
    directives: tuple[Directive | Pragma, ...]
    line: int
    text: str = field(repr=False)
    linkage_span: Span = field(repr=False)
    name_span: Span = field(repr=False)
    body_span: Span = field(default=_NOWHERE, repr=False)
    closed: bool = field(default=True, repr=False)
    _read: list[tuple[Statement, ...]] = field(default_factory=list, repr=False)

    @property
    def defined(self) -> bool:
        """Whether it has a body."""
        return self.body_span.start >= 0

    @property
    def prototype(self) -> Prototype:
        """The part on which callers must agree."""
        return Prototype(
            name=self.name,
            result=self.results[0].param if self.results else None,
            params=tuple(parameter.param for parameter in self.params),
            entry=self.kind == "entry",
        )

    @property
    def body(self) -> tuple[Statement, ...]:
        """
        The statements of the body, read once; none for a declaration.

        Raises:
            LinkError: The body is malformed.
        """
        if not self._read:
            self._read.append(self._statements() if self.defined else ())
        return self._read[0]

    @property
    def outline(self) -> tuple[Statement, ...]:
        """
        The statements of the body, with plain instructions as `Code`.

        Raises:
            LinkError: The body is malformed.
        """
        if not self.defined or not self.closed:
            return self.body
        try:
            return read_outline(self.text, self.body_span.start + 1, self.body_span.end - 1)
        except MalformedError:
            # A comment that holds a semicolon, for one, is understood by the full parser alone.
            return self.body

    @property
    def has_line_numbers(self) -> bool:
        """Whether the body has a `.loc`."""
        return self.defined and lexer.contains(self.text, _LOCATION, *self.body_span)

    def spans(self) -> Iterator[Span]:
        """Yield the spans of its heading, statements and braces; one span if the body is malformed."""
        try:
            body = self.body
        except LinkError:
            body = ()
        if not body:
            yield self.span
            return
        yield Span(self.start, self.body_span.start + 1)
        yield from printer.statement_spans(body)
        yield Span(self.end - 1, self.end)

    @property
    def heading(self) -> str:
        """Its declaration as spelled, without the semicolon or body."""
        linked = f".{self.linkage} " if self.linkage else ""
        results = f"({', '.join(map(str, self.results))}) " if self.results else ""
        params = ", ".join(map(str, self.params))
        directives = "".join(f"\n{directive}" for directive in self.directives)
        return f"{linked}.{self.kind} {attributed(self.attributes)}{results}{self.name}({params}){directives}"

    def __str__(self) -> str:
        return f"{self.heading}\n{block(self.body)}" if self.defined else f"{self.heading};"

    def _statements(self) -> tuple[Statement, ...]:
        start, end = self.body_span
        try:
            return read_statements(self.text, start + 1, end - 1 if self.closed else end, closed=self.closed)
        except MalformedError as error:
            raise _refused(self.text, f"function {self.name}", error) from None


Item = Directive | File | Pragma | Alias | Section | Declaration | Function | Line | Unknown


class Module:
    """
    A PTX module. Its parts lie in its text; `str` puts it together from them again.

    Args:
        text: The text it was read from.
        items: What the text consists of, in order.
        header: Version, target and size of addresses.

    Attributes:
        functions: Every function that it declares or defines, in the order of the text.
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
    def version(self) -> PtxVersion | None:
        """The PTX ISA version that it declares, None without `.version`."""
        return self.header.version

    @property
    def target(self) -> tuple[str, ...]:
        """The values of `.target`, such as ("sm_90", "debug")."""
        return self.header.target

    @property
    def address_size(self) -> int:
        """The size of an address in bits, 0 if not declared."""
        return self.header.address_size

    @property
    def has_line_numbers(self) -> bool:
        """Whether it maps its instructions to source lines."""
        return ".loc" in self.text and any(function.has_line_numbers for function in self.functions)

    def definition(self, name: str) -> Function | None:
        """Return the definition of the function *name*, None if there is none."""
        return next(
            (function for function in self.functions if function.name == name and function.defined), None
        )

    def line(self, start: int) -> int:
        """Return the 1-based line of the offset *start*."""
        return self.text.count("\n", 0, start) + 1

    def source(self, node: Node) -> str:
        """Return the text of *node*."""
        return self.text[node.start : node.end]

    def replace(self, edits: Mapping[Span, str]) -> str:
        """
        Return the text with other text in some places.

        Args:
            edits: New text for ranges of the text, such as the `span` of a node. Ranges may be empty.

        Raises:
            ValueError: Ranges overlap, or lie outside of the text.
        """
        return printer.replaced(self.text, edits)

    def relinked(self, names: Mapping[str, str]) -> str:
        """
        Return the text with other linkage.

        Args:
            names: The linkage of functions and variables by name, such as {"f": "weak"}, or "" for none.
                A declaration of several variables changes where one of them is named.
        """
        edits = {}
        for item in self.items:
            if isinstance(item, Function):
                named = [item.name] if item.name in names else []
            elif isinstance(item, Declaration):
                named = [variable.name for variable in item.variables if variable.name in names]
            else:
                continue
            if named:
                start, end = item.linkage_span
                linkage_ = names[named[0]]
                blank = " " if linkage_ and start == end else ""
                edits[Span(start, end)] = f".{linkage_}{blank}" if linkage_ else ""
        return self.replace(edits)

    def without(self, items: Iterable[Item]) -> str:
        """Return the text without *items* and the `.globl` comments that a compiler wrote for them."""
        dropped = {item.span for item in items}
        edits = {}
        for before, item in zip((None, *self.items), self.items, strict=False):
            if item.span in dropped:
                after = self.text.find("\n", item.end)
                blank = after >= 0 and not self.text[item.end : after].strip()
                start = self._comment_start(before.end if before else 0, item)
                edits[Span(start, after + 1 if blank else item.end)] = ""
        return self.replace(edits)

    def _comment_start(self, start: int, item: Item) -> int:
        """Return the start of the comment right before *item* that names it, else the start of *item*."""
        *lines, last = self.text[start : item.start].split("\n")
        if not lines or last.strip():
            return item.start
        begin = item.start - len(last)
        while len(lines) > 1:
            line = lines.pop()
            begin -= len(line) + 1
            if line.strip():
                comment = line.split()[:2] in (["//", ".globl"], ["//", ".weak"])
                return begin if comment and line.split()[2:] == [_symbol(item)] else item.start
        return item.start

    def __str__(self) -> str:
        spans = (span for item in self.items for span in _spans(item))
        return printer.reassembled(self.text, spans)

    def __repr__(self) -> str:
        return f"<PTX module: {len(self.functions)} functions, {len(self.variables)} variables>"


def render(module: Module) -> str:
    """
    Return *module* spelled from its values: a line for each statement, no comments.

    Raises:
        LinkError: A function, a section or an initializer is malformed.
    """
    return "".join(f"{item}\n" for item in module.items)


def _spans(item: Item) -> Iterable[Span]:
    return item.spans() if isinstance(item, Function) else (item.span,)


def _symbol(item: Item) -> str:
    if isinstance(item, Declaration):
        return item.variables[0].name
    return item.name if isinstance(item, Function) else ""


def _refused(text: str, what: str, error: MalformedError) -> LinkError:
    line = text.count("\n", 0, error.start) + 1
    return LinkError(
        f"The PTX {what} cannot be read: line {line}: {error.cause}; correct the PTX, "
        "or report this if ptxas takes it."
    )
