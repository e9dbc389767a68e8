"""Read the directives at the head of a PTX module, and nothing behind them."""

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

    @classmethod
    def of(cls, values: dict[str, list[str]]) -> Header:
        """Return what *values* say, which are lists of words by directive, without its dot."""
        version = "".join(values.get("version", ())[:1])
        address_size = "".join(values.get("address_size", ())[:1])
        major, _, minor = version.partition(".")
        return cls(
            version=PtxVersion(int(major), int(minor)) if is_decimal(major) and is_decimal(minor) else None,
            target=tuple(values.get("target", ())),
            address_size=int(address_size) if is_decimal(address_size) else 0,
        )


def read_header(text: str) -> Header:
    """Return the directives at the head of the PTX *text*, without parsing the rest. Never raises."""
    values: dict[str, list[str]] = {}
    token = token_at(text, 0)
    while token.kind == "line" or token.text in HEADER:
        end = token.end
        if token.text in HEADER:
            texts, _, end = listed(text, end)
            values.setdefault(token.text[1:], texts[::2])
        token = token_at(text, end)
    return Header.of(values)


def begins_module(text: str) -> bool:
    """Return whether *text* begins like a PTX module: comments, `.version` and a number."""
    token = token_at(text, 0)
    while token.kind == "line":
        token = token_at(text, token.end)
    return token.text == ".version" and token_at(text, token.end).kind == "number"


def listed(text: str, start: int) -> tuple[list[str], list[int], int]:
    """Return the values at *start* and the commas between them, where each begins, and their end."""
    texts: list[str] = []
    starts: list[int] = []
    token = token_at(text, start)
    while token.kind in _LEAVES:
        texts.append(token.text)
        starts.append(token.start)
        start = token.end
        comma = token_at(text, start)
        token = token_at(text, comma.end)
        if comma.text != "," or token.kind not in _LEAVES:
            break
        texts.append(comma.text)
        starts.append(comma.start)
    return texts, starts, start


def is_decimal(text: str) -> bool:
    """Return whether *text* is a number of a few decimal digits."""
    return text.isascii() and text.isdigit() and len(text) < 10
