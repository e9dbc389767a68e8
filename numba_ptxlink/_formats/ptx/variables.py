"""Parse declarations of PTX: variables, registers, parameters and prototypes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from . import lexer
from .lexer import MalformedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .lexer import Kind

LINKAGES = frozenset((".extern", ".visible", ".weak", ".common"))
SPACES = frozenset((".global", ".const", ".shared", ".local", ".param", ".tex", ".reg"))
_OPAQUE_TYPES = ("texref", "samplerref", "surfref")


class Span(NamedTuple):
    """A range of offsets into the text of a module."""

    start: int
    end: int


NOWHERE = Span(-1, -1)
"""The span of a part that does not exist, such as the body of a function that is only declared."""


@dataclass(frozen=True)
class Param:
    """
    A parameter or return value of a PTX function.

    Args:
        bits: The width of a scalar in bits; 0 for a byte array.
        align: The alignment of a byte array in bytes; 0 for a scalar.
        size: The size of a byte array in bytes; 0 for a scalar.
        type: The type as written, such as "f32". Comparisons ignore it: a call passes the right bits if the
            widths are equal.
    """

    bits: int = 0
    align: int = 0
    size: int = 0
    type: str = field(default="", compare=False)

    def __str__(self) -> str:
        if not self.bits:
            return f".align {self.align} .b8[{self.size}]" if self.align else f".b8[{self.size}]"
        # Linkers distinguish floats from integers, so the text does, too; comparisons in this package do not.
        return f".{self.type}" if self.type in ("f32", "f64") else f".b{self.bits}"


@dataclass(frozen=True)
class Prototype:
    """
    A PTX function's interface, which a caller and a callee must agree on.

    Args:
        name: The symbol.
        result: The return value; None for void.
        params: The parameters, in order.
        entry: Whether the function is a kernel.
    """

    name: str
    result: Param | None
    params: tuple[Param, ...]
    entry: bool = False

    def __str__(self) -> str:
        kind = ".entry" if self.entry else ".func"
        result = f" ({self.result})" if self.result else ""
        return f"{kind}{result} {self.name}({', '.join(map(str, self.params))})"


@dataclass(slots=True)
class Variable:
    """
    A name that is declared: a variable, registers, or a parameter or result of a function.

    Args:
        name: The symbol.
        space: "global", "const", "shared", "local", "param", "tex" or "reg", with a bank as in "const[2]".
        type: The type of an element without its dot, such as "u32".
        linkage: "visible", "extern", "weak" or "common"; "" if the name is local to the module or a function.
        alignment: The alignment in bytes; 0 if none is declared.
        vector_length: The number of elements of a vector; 1 for a scalar.
        array_dims: The number of elements along each dimension; None for a dimension without a size.
        count: The number of registers of `%r<count>`; None for a single name.
        initial: The initializer as written; "" if there is none.
        attributes: The attributes, such as "managed".
        line: The 1-based line of the name in the module; 0 in a function.
        start: The offset of the name into the text that was parsed; -1 if the variable was not parsed.
        end: The offset after the name, its dimensions and its initializer.
    """

    name: str
    space: str
    type: str
    linkage: str = ""
    alignment: int = 0
    vector_length: int = 1
    array_dims: tuple[int | None, ...] = ()
    count: int | None = None
    initial: str = ""
    attributes: tuple[str, ...] = ()
    line: int = 0
    start: int = -1
    end: int = -1

    @property
    def defined(self) -> bool:
        """Whether this module defines the variable."""
        return self.linkage != "extern"

    @property
    def memory(self) -> str:
        """The space without its bank, "managed" for that attribute, or the type of a texture or surface."""
        if self.type in _OPAQUE_TYPES:
            return self.type
        return "managed" if "managed" in self.attributes else self.space.partition("[")[0]

    @property
    def bits(self) -> int:
        """The width in bits of an element, or of a vector of elements."""
        return width(self.type) * self.vector_length

    @property
    def size(self) -> int:
        """The size in bytes; 0 if the type or a dimension has no size."""
        array_dims = self.array_dims
        if array_dims == (None,) and self.vector_length == 1 and self.initial:
            # The initializer gives the length; for vectors, in braces of their own, the length is not read.
            # After a comma at the end, the last value is empty.
            values = lexer.without_comments(self.initial).strip().removeprefix("{").removesuffix("}")
            array_dims = (len([*filter(None, lexer.operands(values))]),)
        return math.prod((self.bits // 8, *(extent or 0 for extent in array_dims)))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The variables and functions that the initializer names, in order."""
        # Most initializers are long tables of numbers, in which no name has to be searched.
        if self.type in _OPAQUE_TYPES or not self.initial.strip("{}0123456789 ,\n\t-"):
            return ()
        return tuple(dict.fromkeys(lexer.find_names(lexer.without_comments(self.initial))))

    @property
    def param(self) -> Param:
        """The variable as the parameter of a prototype."""
        element_size = max(1, width(self.type) // 8)
        if not self.array_dims:
            return Param(bits=width(self.type), type=self.type)
        return Param(
            align=self.alignment or element_size,
            size=math.prod(extent or 0 for extent in self.array_dims) * element_size,
            type=self.type,
        )


@dataclass(slots=True)
class Declaration:
    """
    A statement that declares variables of one type.

    Args:
        text: The statement.
        variables: The variables.
        linkage_span: The range of the linkage; an empty range at its position if there is none; `NOWHERE` if
            the statement was not parsed.
        start: The offset of the statement into the text that was parsed; -1 if it was not parsed.
        end: The offset after the semicolon.
    """

    text: str
    variables: tuple[Variable, ...]
    linkage_span: Span = NOWHERE
    start: int = -1
    end: int = -1

    def __str__(self) -> str:
        return self.text

    def text_of(self, variable: Variable) -> str:
        """Return a statement that declares only *variable*, one of the variables of this parsed statement."""
        # The linkage, space and type come before the first name.
        head = self.text[: self.variables[0].start - self.start]
        return f"{head}{self.text[variable.start - self.start : variable.end - self.start]};"

    @classmethod
    def registers(cls, register_type: str, names: Sequence[str]) -> Declaration:
        """Return a statement that declares the registers *names* of the type *register_type*."""
        variables = tuple(Variable(name, "reg", register_type) for name in names)
        return cls(f".reg .{register_type} {', '.join(names)};", variables)


@functools.lru_cache(maxsize=4096)
def declaration(text: str) -> Declaration:
    """
    Parse a declaration in the body of a function, such as ".reg .f32 %f<4>;".

    Raises:
        MalformedError: *text* is no declaration, or has an initializer.
    """
    stop, delimiter = lexer.delimiter(text, 0)
    if delimiter != ";":
        raise MalformedError("a variable of a function cannot have an initial value")
    return Cursor(text, *lexer.tokens(text, 0, stop), stop).declaration(stop + 1)


@functools.lru_cache(maxsize=256)
def width(type_name: str) -> int:
    """Return the size of the type *type_name* in bits, such as 32 for "f16x2"; 0 for an unknown type."""
    if type_name == "pred":
        return 1
    # The letters are those of b32, s32, u32, f32, bf16 and tf32.
    element_bits, _, count = type_name.lstrip("bsuft").partition("x")
    has_type_letter = type_name[:1] in ("b", "s", "u", "f", "t")
    if not (has_type_letter and element_bits.isdecimal() and (count or "1").isdecimal()):
        return 0
    return int(element_bits) * int(count or 1)


class Cursor:
    """
    A position among the tokens of a declaration.

    Args:
        text: The text of the module, or of a declaration in a function.
        texts: The tokens; an initializer is one token. "" is appended for the end of the declaration.
        starts: The offsets of the tokens.
        stop: The offset after the tokens: that of the semicolon, or of the opening brace of a body.
        line_of: Returns the 1-based line of an offset; 0 in a function.
    """

    def __init__(
        self,
        text: str,
        texts: list[str],
        starts: list[int],
        stop: int,
        line_of: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self.text = text
        self.texts = [*texts, ""]
        self.starts = [*starts, stop]
        self.line_of = line_of
        self.index = 0

    @property
    def token(self) -> str:
        """The next token; "" at the end of the declaration."""
        return self.texts[self.index]

    @property
    def start(self) -> int:
        """The offset of the next token."""
        return self.starts[self.index]

    @property
    def end(self) -> int:
        """The offset after the last token taken."""
        return self.starts[self.index - 1] + len(self.texts[self.index - 1])

    def take(self, expected: Kind | None = None) -> str:
        """
        Return the next token and advance.

        Raises:
            MalformedError: There is no next token, or it is not of the kind *expected*.
        """
        token = self.texts[self.index]
        if not token or (expected and lexer.kind(token) != expected):
            self.fail(f"a {expected} is expected" if expected else "the text ends too early")
        self.index += 1
        return token

    def accept(self, text: str) -> bool:
        """Take the next token if it is *text*; return whether it was."""
        matches = self.texts[self.index] == text
        self.index += matches
        return matches

    def expect(self, text: str) -> None:
        """
        Take the next token.

        Raises:
            MalformedError: The next token is not *text*.
        """
        if not self.accept(text):
            self.fail(f"{text!r} is expected")

    def fail(self, cause: str) -> NoReturn:
        """Raise MalformedError with *cause*, such as "';' is expected", and the next token."""
        token = self.token
        raise MalformedError(f"{cause}, not {repr(token[:40]) if token else 'the end'}")

    def number(self) -> int:
        """Take an integer of 64 bits at most."""
        value = lexer.parse_integer(self.take("number"))
        if value is None:
            self.index -= 1  # so that the message has the number
            self.fail("a whole number is expected")
        return value

    def linkage(self) -> tuple[str, Span]:
        """Take the linkage, if any; return it without its dot, and its range."""
        start = self.start
        if self.token not in LINKAGES:
            return "", Span(start, start)
        return self.take()[1:], Span(start, self.end)

    def attributes(self) -> tuple[str, ...]:
        """Take the list after `.attribute`: ("managed",) for "(.managed)"."""
        start = self.start
        self.expect("(")
        depth = 1
        while depth:
            depth += {"(": 1, ")": -1}.get(self.take(), 0)
        inner = self.text[start + 1 : self.end - 1]
        return tuple(part.strip().removeprefix(".") for part in lexer.operands(inner))

    def declaration(self, end: int) -> Declaration:
        """Take a declaration of variables; *end* is the offset after its semicolon."""
        start = self.start
        linkage, span = self.linkage()
        variables = [self._variable(linkage)]
        while self.accept(","):
            variables.append(self._declarator(variables[0]))
        if self.token:
            self.fail("';' is expected")
        return Declaration(self.text[start:end], tuple(variables), span, start, end)

    def parameters(self) -> tuple[Variable, ...]:
        """Take the parameters in parentheses, if there are any."""
        if not self.accept("(") or self.accept(")"):
            return ()
        params = []
        while True:
            if self.token not in (".param", ".reg"):
                self.fail("a parameter is expected")
            params.append(self._variable(""))
            if not self.accept(","):
                self.expect(")")
                return tuple(params)

    def _variable(self, linkage: str) -> Variable:
        """Take a state space, the type and attributes, and one name with its dimensions and initializer."""
        if self.token not in SPACES:
            self.fail("a state space is expected")
        space = self.take()[1:]
        if self.accept("["):
            space += f"[{self.number()}]"
            self.expect("]")
        variable = Variable("", space, "", linkage)
        while lexer.kind(self.token) == "directive":
            token = self.take()[1:]
            if token == "align":
                # After the type, as in `.u64 .ptr .global .align 8`, `.align` is about the memory that the
                # pointer points to, and not about the variable.
                alignment = self.number()
                variable.alignment = variable.alignment if variable.type else alignment
            elif token == "attribute":
                variable.attributes += self.attributes()
            elif token in ("v2", "v4", "v8"):
                variable.vector_length = int(token[1:])
            elif not variable.type:
                variable.type = token
            elif token != "ptr" and f".{token}" not in SPACES:
                self.fail("a name is expected")
        if not variable.type:
            self.fail("a type is expected")
        return self._declarator(variable)

    def _declarator(self, typed: Variable) -> Variable:
        """Take a name with its dimensions and initializer; the type and the rest are those of *typed*."""
        start = self.start
        name = self.take("word")
        count = None
        if self.accept("<"):
            count = self.number()
            self.expect(">")
        array_dims: list[int | None] = []
        while self.accept("["):
            array_dims.append(None if self.token == "]" else self.number())
            self.expect("]")
        initial = self.take() if self.accept("=") else ""
        return Variable(
            name,
            typed.space,
            typed.type,
            typed.linkage,
            typed.alignment,
            typed.vector_length,
            tuple(array_dims),
            count,
            initial,
            typed.attributes,
            self.line_of(start),
            start,
            self.end,
        )
