"""Operands of PTX statements as values."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import NamedTuple


class Span(NamedTuple):
    """A range of offsets into the text of a module."""

    start: int
    end: int


@dataclass(slots=True, unsafe_hash=True)
class Node:
    """
    A value that was read from text. Two are equal where their values are, wherever they stand.

    Nothing assigns to a node. It is not `frozen` all the same: that would more than double the time it takes
    to make one, of which there are several for each statement.

    Args:
        start: Its offset in the text of its module, -1 if it was not parsed.
        end: Where it ends.
    """

    start: int = field(default=-1, compare=False, repr=False, kw_only=True)
    end: int = field(default=-1, compare=False, repr=False, kw_only=True)

    @property
    def span(self) -> Span:
        """The range of the text of the node."""
        return Span(self.start, self.end)


@dataclass(slots=True, unsafe_hash=True)
class Name(Node):
    """
    A register, label, variable, function or special register.

    Args:
        name: The symbol, such as "%tid".
        selector: The part of it that is meant, such as "x", or "" for all.
    """

    name: str
    selector: str = ""

    def __str__(self) -> str:
        return f"{self.name}.{self.selector}" if self.selector else self.name


@dataclass(slots=True, unsafe_hash=True)
class Immediate(Node):
    """
    A number.

    Args:
        text: The number as it is spelled, such as "0f3F800000".
    """

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def value(self) -> int | float:
        """Its value."""
        text = self.text.rstrip("U")
        prefix = text[:2].lower()
        if prefix in ("0f", "0d"):
            single = prefix == "0f"
            return float(struct.unpack(">f" if single else ">d", bytes.fromhex(text[2:]))[0])
        if prefix in ("0x", "0b"):
            return int(text, 0)
        if "." in text or "e" in text or "E" in text:
            return float(text)
        octal = len(text) > 1 and text[0] == "0" and not set(text) & set("89")
        return int(text, 8 if octal else 10)


@dataclass(slots=True, unsafe_hash=True)
class String(Node):
    """
    A string.

    Args:
        value: What is between the quotes, in which nothing is escaped.
    """

    value: str

    def __str__(self) -> str:
        return f'"{self.value}"'


@dataclass(slots=True, unsafe_hash=True)
class Word(Node):
    """
    A directive that is an operand, such as the section `.debug_abbrev`.

    Args:
        text: It, with its dot.
    """

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True, unsafe_hash=True)
class Vector(Node):
    """
    Operands in braces.

    Args:
        elements: What is between the commas.
    """

    elements: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"{{{', '.join(map(str, self.elements))}}}"


@dataclass(slots=True, unsafe_hash=True)
class Address(Node):
    """
    Operands in brackets: an address, with coordinates where it is one of a texture or a tensor.

    Args:
        elements: What is between the commas.
        name: What stands before the brackets, as in `array[1]`; "" almost always.
        suffix: What follows them, such as "unified".
    """

    elements: tuple[Operand, ...]
    name: str = ""
    suffix: str = ""

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.elements))
        return f"{self.name}[{inner}]{f'.{self.suffix}' if self.suffix else ''}"

    @property
    def base(self) -> Name | None:
        """The base register or variable, None for a constant address."""
        if self.name:
            return Name(self.name)
        first: object = self.elements[0] if self.elements else None
        if isinstance(first, Expression):
            first = first.parts[0]
        return first if isinstance(first, Name) else None

    @property
    def offset(self) -> int | None:
        """The offset in bytes, None if the address is more than a base and a number."""
        if len(self.elements) != 1 or self.name:
            return None
        (only,) = self.elements
        if isinstance(only, Name):
            return 0
        parts = only.parts if isinstance(only, Expression) else ()
        signs = "".join(part for part in parts if isinstance(part, str))
        # Python refuses to convert thousands of digits.
        numbers = [part.value for part in parts if isinstance(part, Immediate) and len(part.text) <= 100]
        if len(parts) != len(signs) + 2 or len(numbers) != 1 or signs not in ("+", "-", "+-"):
            return None
        (number,) = numbers
        return number * (1 if signs == "+" else -1) if isinstance(number, int) else None


@dataclass(slots=True, unsafe_hash=True)
class Pair(Node):
    """
    Two results of one instruction, as in `%p1|%p2`.

    Args:
        first: What stands before the bar.
        second: What stands after it.
    """

    first: Operand
    second: Operand

    def __str__(self) -> str:
        return f"{self.first}|{self.second}"


@dataclass(slots=True, unsafe_hash=True)
class Negated(Node):
    """
    An operand that is negated.

    Args:
        sign: "!" or "-".
        operand: What is negated.
    """

    sign: str
    operand: Name

    def __str__(self) -> str:
        return f"{self.sign}{self.operand}"


@dataclass(slots=True, unsafe_hash=True)
class Expression(Node):
    """
    What is computed by the assembler, such as `array+4` or `generic(array)`.

    Args:
        parts: Operands, and between them operators and parentheses as they are spelled.
    """

    parts: tuple[Operand | str, ...]

    def __str__(self) -> str:
        return "".join(
            f" {part} " if isinstance(part, str) and part in "=?:%" else str(part) for part in self.parts
        )


Operand = Name | Immediate | String | Word | Vector | Address | Pair | Negated | Expression
