"""Read the header of a PTX module: its `.version`, `.target` and `.address_size`."""

from __future__ import annotations

import re
from typing import NamedTuple

from numba_ptxlink._arch import PtxVersion

HEADER_DIRECTIVES = (".version", ".target", ".address_size")
# The usual beginning of compiled PTX, read without the lexer: comments of one line, and the three directives
# in this order. For example: `.version 9.0 .target sm_90, debug .address_size 64`.
_TARGET_WORD = r"[A-Za-z_]\w*"
_USUAL = (
    r"\s*(?://[^\n]*\n\s*)*\.version\s+(\d{1,3})\.(\d{1,3})\s+"
    rf"\.target\s+({_TARGET_WORD}(?:\s*,\s*{_TARGET_WORD})*)\s+\.address_size\s+(\d{{1,3}})\s"
)


class Header(NamedTuple):
    """
    The directives at the head of a module.

    Args:
        version: The PTX ISA version; None if it is not declared.
        target: The words of `.target`, such as ("sm_90", "debug"); empty if there is none.
        address_size: The size of an address in bits; 0 if it is not declared.
    """

    version: PtxVersion | None = None
    target: tuple[str, ...] = ()
    address_size: int = 0


def read_header(text: str) -> Header:
    """Return the directives at the head of the PTX *text*, without parsing the rest. Never raises."""
    if usual := re.match(_USUAL, text, re.ASCII):
        major, minor, target, size = usual.groups()
        target_words = tuple(word.strip() for word in target.split(","))
        return Header(PtxVersion(int(major), int(minor)), target_words, int(size))
    return _read(text)


def _read(text: str) -> Header:
    """Read a header in any valid form by the lexer."""
    # Deferred: the import takes longer than a link of one PTX whose cubin is in the cache.
    from .ptx.lexer import comma_separated, token_at

    words: dict[str, list[str]] = {}
    token = token_at(text, 0)
    # A token of kind "line" is a line of a preprocessor, such as `# 1 "file.cu"`.
    while token.kind == "line" or token.text in HEADER_DIRECTIVES:
        end = token.end
        if token.text in HEADER_DIRECTIVES:
            values, end = comma_separated(text, end)
            words.setdefault(token.text, values)
        token = token_at(text, end)
    version, target, size = (words.get(directive, []) for directive in HEADER_DIRECTIVES)
    major, _, minor = (version or [""])[0].partition(".")
    return Header(
        version=PtxVersion(int(major), int(minor)) if _is_decimal(major) and _is_decimal(minor) else None,
        target=tuple(target),
        address_size=int(size[0]) if size and _is_decimal(size[0]) else 0,
    )


def _is_decimal(text: str) -> bool:
    """Return whether *text* is a decimal number that is short enough for int()."""
    # int() raises an exception for thousands of digits; numbers in a valid header have at most three.
    return text.isascii() and text.isdigit() and len(text) < 10
