"""Read the directives at the head of a PTX module."""

from __future__ import annotations

from typing import NamedTuple

from numba_ptxlink._arch import PtxVersion

from .lexer import token_at

HEADER = (".version", ".target", ".address_size")
_LEAVES = ("word", "number", "string")


class Header(NamedTuple):
    """
    What a module says about itself before anything else.

    Args:
        version: The PTX ISA version, None where none is declared.
        target: What `.target` lists, such as ("sm_90", "debug").
        address_size: Bits of an address, 0 where it is not declared.
    """

    version: PtxVersion | None = None
    target: tuple[str, ...] = ()
    address_size: int = 0


def read_header(text: str) -> Header:
    """Return the directives at the head of the PTX *text*, without parsing the rest. Never raises."""
    values: dict[str, list[str]] = {}
    token = token_at(text, 0)
    while token.kind == "line" or token.text in HEADER:
        end = token.end
        if token.text in HEADER:
            found, end = listed(text, end)
            values.setdefault(token.text, found)
        token = token_at(text, end)
    version, target, size = (values.get(directive, []) for directive in HEADER)
    major, _, minor = "".join(version[:1]).partition(".")
    return Header(
        version=PtxVersion(int(major), int(minor)) if _is_decimal(major) and _is_decimal(minor) else None,
        target=tuple(target),
        address_size=int(size[0]) if size and _is_decimal(size[0]) else 0,
    )


def listed(text: str, start: int) -> tuple[list[str], int]:
    """Return the values at *start* with commas between them, and their end."""
    texts: list[str] = []
    while (token := token_at(text, start)).kind in _LEAVES:
        texts.append(token.text)
        start = token.end
        comma = token_at(text, start)
        if comma.text != "," or token_at(text, comma.end).kind not in _LEAVES:
            break
        start = comma.end
    return texts, start


def _is_decimal(text: str) -> bool:
    """Return whether *text* is a number of a few decimal digits."""
    return text.isascii() and text.isdigit() and len(text) < 10
