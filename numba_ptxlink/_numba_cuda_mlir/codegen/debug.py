"""Debug locations of generated functions."""

from __future__ import annotations

import re
from typing import NamedTuple

_SUBPROGRAM = re.compile(r"!dbg !(\d+)")
_NODE = re.compile(r"^!(\d+) = ", re.MULTILINE)
_LINE = re.compile(r"\bline: (\d+)")
_NAMES = re.compile(r'\b(name|linkageName): "[^"]*"')


class Location(NamedTuple):
    """
    What a generated function carries where the module has debug information; nothing elsewhere.

    Args:
        function: Behind its head.
        call: Behind a call in it.
        nodes: The metadata that both name.
    """

    function: str = ""
    call: str = ""
    nodes: tuple[str, ...] = ()


def location(rest: str, attributes: str, name: str) -> Location:
    """
    Return the location of a function *name* that calls one with the *attributes*, in a module.

    LLVM drops the lines of a function that it inlines where the call has no line.

    Args:
        rest: The lines of the module outside of functions.
        attributes: The attributes of the function that is called.
        name: The symbol of the generated function.
    """
    match = _SUBPROGRAM.search(attributes)
    if match is None:
        return Location()
    scope = re.search(rf"^!{match[1]} = (.*)$", rest, re.MULTILINE)
    if scope is None or (line := _LINE.search(scope[1])) is None:
        return Location()
    first = max(map(int, _NODE.findall(rest))) + 1
    renamed = _NAMES.sub(lambda field: f'{field[1]}: "{name}"', scope[1])
    return Location(
        f" !dbg !{first}",
        f", !dbg !{first + 1}",
        (
            f"!{first} = {renamed}",
            f"!{first + 1} = !DILocation(line: {line[1]}, column: 1, scope: !{first})",
        ),
    )
