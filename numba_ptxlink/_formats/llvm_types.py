"""
Read and write types of LLVM IR, in both dialects that NVVM reads.

For GPUs before sm_100, pointers have a target type (`float*`). From sm_100 on, they are opaque (`ptr`).
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# `{ i32, %"Particle"* }` has the tokens `{`, `i32`, `,`, `%"Particle"`, `*` and `}`.
_TOKEN = re.compile(r'%"[^"]*"|"[^"]*"|%[\w.$-]+|[\w.]+|\S')
_SCALAR = re.compile(r"void|half|bfloat|float|double|i\d+")
# Words that may precede a type.
_ATTRIBUTES = frozenset(("internal", "noundef", "signext", "zeroext"))
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


@dataclass(frozen=True)
class Type:
    """A type of LLVM IR; `str` spells it."""


@dataclass(frozen=True)
class ScalarType(Type):
    """A number or void: "i32", "half", "bfloat", "float", "double" or "void"."""

    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def bits(self) -> int:
        """The width of an integer in bits; 0 for other types."""
        return int(self.name[1:]) if self.name[0] == "i" else 0


@dataclass(frozen=True)
class PointerType(Type):
    """A pointer into the address space *space* (0: generic); *target* is None if the pointer is opaque."""

    target: Type | None = None
    space: int = 0

    def __str__(self) -> str:
        space = f" addrspace({self.space})" if self.space else ""
        return f"ptr{space}" if self.target is None else f"{self.target}{space}*"


@dataclass(frozen=True)
class StructType(Type):
    """A struct without a name, such as `{ i32, float }`."""

    members: tuple[Type, ...]
    packed: bool = False

    def __str__(self) -> str:
        body = f"{{ {', '.join(map(str, self.members))} }}" if self.members else "{}"
        return f"<{body}>" if self.packed else body


@dataclass(frozen=True)
class SequentialType(Type):
    """An array or a vector of *count* elements."""

    count: int
    element: Type
    is_vector: bool = False

    def __str__(self) -> str:
        body = f"{self.count} x {self.element}"
        return f"<{body}>" if self.is_vector else f"[{body}]"


@dataclass(frozen=True)
class IdentifiedStruct(Type):
    """A struct with a name; *name* includes the `%`."""

    name: str
    body: StructType

    def __str__(self) -> str:
        return self.name


def members(ty: Type) -> tuple[Type, ...]:
    """Return the types of the members of an aggregate; none for a scalar or a vector."""
    if isinstance(ty, IdentifiedStruct):
        return ty.body.members
    if isinstance(ty, StructType):
        return ty.members
    if isinstance(ty, SequentialType) and not ty.is_vector:
        return (ty.element,) * ty.count
    return ()


def pointee(ty: Type) -> Type:
    """
    Return the target of the pointer type *ty*.

    Raises:
        ValueError: *ty* is not a typed pointer.
    """
    if isinstance(ty, PointerType) and ty.target is not None:
        return ty.target
    raise ValueError(f"no typed pointer: {ty}")


def read(text: str) -> Type:
    """
    Return the type at the start of *text*; attributes may precede and follow it, and a name may follow.

    Raises:
        ValueError: There is no type, or it is the name of a struct, whose members *text* does not contain.
    """
    ty, _ = _read(list(itertools.dropwhile(_ATTRIBUTES.__contains__, _TOKEN.findall(text))))
    return ty


def _read(tokens: list[str]) -> tuple[Type, list[str]]:
    """Return the type at the start of *tokens*, and the tokens after it."""
    head, remaining = tokens[0], tokens[1:]
    ty: Type
    if head == "{":
        ty, remaining = _read_members(remaining)
    elif head == "<" and remaining[0] == "{":
        body, remaining = _read_members(remaining[1:])
        ty, remaining = StructType(body.members, packed=True), remaining[1:]
    elif head in "[<":
        # `[4 x float]`: two tokens, the count and `x`, stand before the element type.
        element, after_element = _read(remaining[2:])
        ty = SequentialType(int(remaining[0]), element, is_vector=head == "<")
        remaining = after_element[1:]
    else:
        ty = _parse_word(head)
    while remaining and remaining[0] in ("*", "addrspace"):
        space = 0
        if remaining[0] == "addrspace":
            # The tokens are `addrspace`, `(`, the number and `)`.
            space, remaining = int(remaining[2]), remaining[4:]
        if ty == PointerType():
            # An opaque pointer, such as `ptr addrspace(3)`, is not followed by a `*`.
            ty = PointerType(space=space)
        else:
            # Skip the `*`.
            ty, remaining = PointerType(ty, space), remaining[1:]
    return ty, remaining


def _parse_word(word: str) -> Type:
    if word == "ptr":
        return PointerType()
    if _SCALAR.fullmatch(word):
        return ScalarType(word)
    raise ValueError(f"no type of LLVM IR: {word}")


def _read_members(tokens: list[str]) -> tuple[StructType, list[str]]:
    """Return the struct whose opening brace precedes *tokens*, and the tokens after its closing brace."""
    types: list[Type] = []
    while tokens[0] != "}":
        member, tokens = _read(tokens)
        types.append(member)
        tokens = tokens[1:] if tokens[0] == "," else tokens
    return StructType(tuple(types)), tokens[1:]


def split(text: str) -> tuple[list[str], str]:
    """
    Split a list at its commas, up to the parenthesis that closes it.

    Args:
        text: The text after the opening parenthesis, such as "i32, {i8, i8} %x) nounwind".

    Returns:
        The parts, such as ["i32", "{i8, i8} %x"], and the text after the parenthesis, such as " nounwind".

    Raises:
        ValueError: The parenthesis is not closed.
    """
    parts = []
    start = 0
    # The brackets that close the open ones, the innermost last.
    closings = [")"]
    for index, char in _outside_quotes(text):
        if char in _CLOSING:
            closings.append(_CLOSING[char])
        elif char == closings[-1]:
            closings.pop()
            if not closings:
                parts.append(text[start:index].strip())
                return [part for part in parts if part], text[index + 1 :]
        elif char == "," and len(closings) == 1:
            parts.append(text[start:index].strip())
            start = index + 1
    raise ValueError(f"no closing parenthesis: {text}")


def _outside_quotes(text: str) -> Iterator[tuple[int, str]]:
    """Yield the characters of *text* outside of quotes, with their offsets."""
    is_quoted = False
    for index, char in enumerate(text):
        is_quoted ^= char == '"'
        if not is_quoted:
            yield index, char
