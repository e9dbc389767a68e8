"""Declarations of PTX as values: variables, registers and parameters."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, field

from numba_ptxlink.errors import LinkError

from .cursor import Cursor
from .lexer import MalformedError, split
from .naming import names
from .operands import Node, Operand, Span
from .prototypes import Param

_NOWHERE = Span(-1, -1)
_WIDTH = re.compile(r"(?:[bsuf]|bf|tf)(\d+)(x\d+)?", re.ASCII)
_LETTER = re.compile(r"[A-Za-z_$%]")
_OPAQUE = ("texref", "samplerref", "surfref")


@dataclass(slots=True, unsafe_hash=True)
class Directive(Node):
    """
    A directive that has no class of its own.

    Args:
        keyword: Its name without the dot, such as "maxntid".
        operands: What follows it.
    """

    keyword: str
    operands: tuple[Operand, ...] = ()

    def __str__(self) -> str:
        return f".{self.keyword} {', '.join(map(str, self.operands))}".rstrip()


@dataclass(slots=True, unsafe_hash=True)
class Pragma(Node):
    """
    A `.pragma`.

    Args:
        values: Its strings.
    """

    values: tuple[str, ...]

    def __str__(self) -> str:
        values = ", ".join(f'"{value}"' for value in self.values)
        return f".pragma {values};"


@dataclass(slots=True, unsafe_hash=True)
class Pointer(Node):
    """
    What a kernel's parameter points to.

    Args:
        space: The state space without its dot, "" for generic.
        alignment: Bytes, 0 for the default.
        marked: Whether `.ptr` says so. An alignment alone, after the type, is that of the target, too.
    """

    space: str = ""
    alignment: int = 0
    marked: bool = True

    def __str__(self) -> str:
        alignment = f".align {self.alignment}" if self.alignment else ""
        space = f".{self.space}" if self.space else ""
        return " ".join(filter(None, (".ptr" if self.marked else "", space, alignment)))


@dataclass(slots=True, unsafe_hash=True)
class Variable(Node):
    """
    One name that a declaration declares. It begins at the name in the text.

    Args:
        name: The symbol.
        space: "global", "const", "shared", "local" or "param", with a bank in brackets as in "const[2]".
        type: The type of an element without its dot, such as "u32".
        linkage: "visible", "extern", "weak", "common" or "" for local to the module or the function.
        alignment: Bytes, 0 where none is declared.
        vector: How many elements a vector has, such as "v4", or "".
        extents: Elements along each dimension, None for one that is not declared.
        count: How many variables of the name with a number behind it are meant, None for one without.
        initial: The initializer as it is spelled, or "".
        attributes: Such as `.managed`.
        line: 1-based line of the text that its name stands on, 0 in a function.
    """

    name: str
    space: str
    type: str
    linkage: str = ""
    alignment: int = 0
    vector: str = ""
    extents: tuple[int | None, ...] = ()
    count: int | None = None
    initial: str = ""
    attributes: tuple[Directive, ...] = ()
    line: int = 0

    def __str__(self) -> str:
        return f"{_prefix(self)} {_declarator(self)};"

    @property
    def defined(self) -> bool:
        """Whether this module defines it."""
        return self.linkage != "extern"

    @property
    def memory(self) -> str:
        """Its space without a bank, "managed" for such a variable, or the type of a texture and the like."""
        if self.type in _OPAQUE:
            return self.type
        managed = any(attribute.keyword == "managed" for attribute in self.attributes)
        return "managed" if managed else self.space.partition("[")[0]

    @property
    def size(self) -> int:
        """Its size in bytes, 0 where its type or an extent does not tell."""
        lanes = int(self.vector[1:] or "1")
        return math.prod((width(self.type) // 8, lanes, *(extent or 0 for extent in self.extents)))

    @property
    def initializer(self) -> Operand | None:
        """
        The initializer, None where there is none.

        Raises:
            LinkError: It is malformed.
        """
        if not self.initial:
            return None
        cursor = Cursor(self.initial, *split(self.initial, 0, len(self.initial)))
        try:
            value = cursor.operand()
            if cursor.token:
                cursor.fail("one value is expected")
        except MalformedError as error:
            raise LinkError(
                f"The initializer of the PTX variable {self.name} cannot be read: {error.cause}; "
                "correct the PTX, or report this if ptxas takes it."
            ) from None
        return value

    @property
    def symbols(self) -> tuple[str, ...]:
        """
        The variables and functions that the initializer names, in order.

        Raises:
            LinkError: It is malformed.
        """
        # Most tables hold only numbers, many of them.
        if self.type in _OPAQUE or not _LETTER.search(self.initial):
            return ()
        value = self.initializer
        return tuple(dict.fromkeys(names(value))) if value else ()


@dataclass(slots=True, unsafe_hash=True)
class Declaration(Node):
    """
    A statement that declares variables of one type.

    Args:
        variables: One for each name.
        linkage_span: Where the linkage is; an empty range where it would be if there is none.
    """

    variables: tuple[Variable, ...]
    linkage_span: Span = field(default=_NOWHERE, compare=False, repr=False)

    def __str__(self) -> str:
        declarators = ", ".join(map(_declarator, self.variables))
        return f"{_prefix(self.variables[0])} {declarators};"


@dataclass(slots=True, unsafe_hash=True)
class Register(Node):
    """
    One name of a `.reg`.

    Args:
        name: The register, or what the names of several begin with.
        count: How many there are, numbered from 0; None for one without a number.
    """

    name: str
    count: int | None = None

    def __str__(self) -> str:
        return self.name if self.count is None else f"{self.name}<{self.count}>"


@dataclass(slots=True, unsafe_hash=True)
class Registers(Node):
    """
    A `.reg`.

    Args:
        type: The type without its dot, such as "b64" or "pred".
        registers: One for each name.
        vector: How many elements a vector has, such as "v4", or "".
        alignment: Bytes, 0 where none is declared.
    """

    type: str
    registers: tuple[Register, ...]
    vector: str = ""
    alignment: int = 0

    def __str__(self) -> str:
        names = ", ".join(map(str, self.registers))
        return f".reg {_typed(self)} {names};"


@dataclass(slots=True, unsafe_hash=True)
class Parameter(Node):
    """
    A parameter or a result of a function.

    Args:
        name: Its name, "_" in a prototype of calls.
        space: "param" or "reg".
        type: The type of an element without its dot.
        alignment: Bytes, 0 where none is declared.
        vector: How many elements a vector has, such as "v4", or "".
        extents: Elements along each dimension, None for one that is not declared.
        pointer: What a kernel's parameter points to, where that is declared.
    """

    name: str
    space: str
    type: str
    alignment: int = 0
    vector: str = ""
    extents: tuple[int | None, ...] = ()
    pointer: Pointer | None = None

    def __str__(self) -> str:
        pointer = f"{self.pointer} " if self.pointer else ""
        return f".{self.space} {_typed(self)} {pointer}{self.name}{_extents(self.extents)}"

    @property
    def param(self) -> Param:
        """The part on which caller and callee must agree."""
        bits = width(self.type)
        if not self.extents:
            return Param(bits=bits, type=self.type)
        size = math.prod(extent or 0 for extent in self.extents) * max(1, bits // 8)
        return Param(align=self.alignment or max(1, bits // 8), size=size, type=self.type)


@functools.lru_cache(maxsize=256)
def width(spelled: str) -> int:
    """Return the size of the type *spelled* in bits, 0 for an opaque type."""
    if spelled == "pred":
        return 1
    match = _WIDTH.fullmatch(spelled)
    return int(match[1]) * int((match[2] or "x1")[1:]) if match else 0


Qualified = Variable | Registers | Parameter


def _typed(of: Qualified) -> str:
    alignment = f".align {of.alignment} " if of.alignment else ""
    return f"{alignment}{f'.{of.vector} ' if of.vector else ''}.{of.type}"


def _prefix(variable: Variable) -> str:
    linked = f".{variable.linkage} " if variable.linkage else ""
    return f"{linked}.{variable.space} {attributed(variable.attributes)}{_typed(variable)}"


def attributed(attributes: tuple[Directive, ...]) -> str:
    """Return `.attribute` as spelled before a type or a name, "" without attributes."""
    if not attributes:
        return ""
    spelled = (
        f".{directive.keyword}"
        + (f"({', '.join(map(str, directive.operands))})" if directive.operands else "")
        for directive in attributes
    )
    return f".attribute({', '.join(spelled)}) "


def _declarator(variable: Variable) -> str:
    count = "" if variable.count is None else f"<{variable.count}>"
    initial = f" = {variable.initializer}" if variable.initial else ""
    return f"{variable.name}{count}{_extents(variable.extents)}{initial}"


def _extents(extents: tuple[int | None, ...]) -> str:
    return "".join(f"[{'' if extent is None else extent}]" for extent in extents)
