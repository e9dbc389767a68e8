"""
Read the statements that calls consist of, each by one match of a pattern.

Compilers write nearly all of them in the same few forms. A statement in another one is left to the parser of
tokens, which would return the same values for these, and takes three times as long.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .declarations import Declaration, Pragma, Register, Registers, Variable
from .operands import Address, Expression, Immediate, Name, Operand, Span, Vector
from .statements import Call, Instruction

if TYPE_CHECKING:
    from collections.abc import Callable

    from .statements import Statement

_NAME = r"[%$]?[A-Za-z_][\w$]*"
_LEAF = rf"(?:{_NAME}|0[fF][0-9a-fA-F]{{8}}|0[dD][0-9a-fA-F]{{16}}|\d+)"
_LEAVES = rf"\s*{_LEAF}(?:\s*,\s*{_LEAF})*\s*"
_VALUE = rf"{_LEAF}|\{{{_LEAVES}\}}"
_ADDRESS = rf"\[(?P<base>{_NAME})(?:\+(?P<offset>\d+))?\]"
_TYPE = r"[busf](?:8|16|32|64)"
_COUNT = r"[1-9]\d{0,8}"
_FORMS = {
    "access": (
        rf"(?P<opcode>(?:ld|st)\.param(?:\.v[248])?\.{_TYPE})\s+"
        rf"(?:(?P<loaded>{_VALUE})\s*,\s*)?(?P<address>{_ADDRESS})\s*(?:,\s*(?P<stored>{_VALUE})\s*)?"
    ),
    "declaration": (
        rf"\.param\s+(?:\.align\s+(?P<alignment>{_COUNT})\s+)?\.(?P<element>{_TYPE})\s+"
        rf"(?P<variable>(?P<symbol>{_NAME})(?:\[(?P<extent>{_COUNT})\])?)\s*"
    ),
    "registers": (
        rf"\.reg\s+\.(?P<type>pred|{_TYPE})\s+(?P<listed>(?P<register>{_NAME})(?:<(?P<count>{_COUNT})>)?)\s*"
    ),
    "call": (
        rf"call(?P<uniform>\.uni)?\s+(?:\(\s*(?P<result>{_NAME})\s*\)\s*,\s*)?(?P<callee>{_NAME})\s*,"
        rf"\s*\((?P<arguments>{_LEAVES})\)\s*"
    ),
    "return": r"ret\s*",
    "pragma": r"\.pragma\s+\"(?P<value>[^\"]*)\"\s*",
}
_FORM = re.compile(rf"\s*(?:{'|'.join(f'(?P<{name}>{form};)' for name, form in _FORMS.items())})", re.ASCII)
_PARTS = re.compile(_LEAF, re.ASCII)


def read_form(text: str, start: int, end: int) -> Statement | None:
    """Return the statement of a common form at *start* of *text*, after white space; None for another."""
    match = _FORM.match(text, start, end)
    return _READERS[match.lastgroup](match) if match and match.lastgroup else None


def _access(match: re.Match[str]) -> Instruction:
    opcode, *modifiers = match["opcode"].split(".")
    start, end = match.span("access")
    operands = [*_values(match, "loaded"), _address(match), *_values(match, "stored")]
    return Instruction(opcode, tuple(modifiers), tuple(operands), start=start, end=end)


def _address(match: re.Match[str]) -> Address:
    element: Name | Expression = _name(match, "base")
    if match["offset"]:
        start, end = match.span("offset")
        number = Immediate(match["offset"], start=start, end=end)
        element = Expression((element, "+", number), start=element.start, end=end)
    start, end = match.span("address")
    return Address((element,), start=start, end=end)


def _values(match: re.Match[str], group: str) -> tuple[Operand, ...]:
    """Return the value in *group*, nothing if there is none."""
    value = match[group]
    if not value:
        return ()
    start, end = match.span(group)
    if value[0] == "{":
        return (Vector(_leaves(match, group), start=start, end=end),)
    return (_leaf(value, start, end),)


def _leaves(match: re.Match[str], group: str) -> tuple[Name | Immediate, ...]:
    """Return the names and numbers in *group*."""
    start, end = match.span(group)
    leaves = _PARTS.finditer(match.string, start, end)
    return tuple(_leaf(leaf[0], leaf.start(), leaf.end()) for leaf in leaves)


def _leaf(spelled: str, start: int, end: int) -> Name | Immediate:
    return (Immediate if spelled[0].isdigit() else Name)(spelled, start=start, end=end)


def _name(match: re.Match[str], group: str) -> Name:
    start, end = match.span(group)
    return Name(match[group], start=start, end=end)


def _declaration(match: re.Match[str]) -> Declaration:
    start, end = match.span("declaration")
    begin, stop = match.span("variable")
    variable = Variable(
        match["symbol"],
        "param",
        match["element"],
        alignment=int(match["alignment"] or 0),
        extents=(int(match["extent"]),) if match["extent"] else (),
        start=begin,
        end=stop,
    )
    return Declaration((variable,), Span(start, start), start=start, end=end)


def _registers(match: re.Match[str]) -> Registers:
    begin, stop = match.span("listed")
    count = int(match["count"]) if match["count"] else None
    register = Register(match["register"], count, start=begin, end=stop)
    start, end = match.span("registers")
    return Registers(match["type"], (register,), start=start, end=end)


def _call(match: re.Match[str]) -> Call:
    start, end = match.span("call")
    return Call(
        _name(match, "callee"),
        _leaves(match, "arguments"),
        (_name(match, "result"),) if match["result"] else (),
        modifiers=("uni",) if match["uniform"] else (),
        start=start,
        end=end,
    )


def _return(match: re.Match[str]) -> Instruction:
    start, end = match.span("return")
    return Instruction("ret", start=start, end=end)


def _pragma(match: re.Match[str]) -> Pragma:
    start, end = match.span("pragma")
    return Pragma((match["value"],), start=start, end=end)


_READERS: dict[str, Callable[[re.Match[str]], Statement]] = {
    "access": _access,
    "declaration": _declaration,
    "registers": _registers,
    "call": _call,
    "return": _return,
    "pragma": _pragma,
}
