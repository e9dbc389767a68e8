"""Split PTX into tokens, into statements, and these into operands; the only module that searches its text."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["word", "number", "directive", "string", "line", "punctuation", "malformed", "end"]

# NUL ends a C string, and PTX out of a fat binary keeps it. A comment of one line ends at LF, never at CR.
_BLANKS = r"[ \t\r\n\f\v\0]*"
_TRIVIA = rf"{_BLANKS}(?:(?://[^\n]*|/\*.*?\*/){_BLANKS})*"
# An unclosed comment or string runs to the end of the text, so that each character is read once.
_TOKEN = r"""
    (?:[A-Za-z_]|[%$][\w$])[\w$]*(?:(?:\.|::)[\w$]+)*     # names, and opcodes with their modifiers
  | 0[fF][0-9a-fA-F]{8} | 0[dD][0-9a-fA-F]{16}            # the bits of a float
  | 0[xX][0-9a-fA-F]+U? | 0[bB][01]+U?
  | \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \d+U?
  | \.\d+(?:[eE][+-]?\d+)?(?![\w$])
  | \.[\w$]+(?:::[\w$]+)*
  | "[^"]*"?
  | \#[^\n]*
  | /\*.*
  | << | >> | <= | >= | == | != | && | \|\|
  | .
  | \Z
"""
_PIECE = re.compile(rf"({_TRIVIA})({_TOKEN})", re.ASCII | re.DOTALL | re.VERBOSE)
_ASIDE = r'"[^"]*"?|//[^\n]*|/\*(?:.*?\*/|.*)|\#[^\n]*'
_SKIPPED = re.compile(_ASIDE, re.DOTALL)
_COMMENT = re.compile(r"/(?:/[^\n]*|\*(?:.*?\*/|.*))", re.DOTALL)
# The search is fast if each alternative begins with a different letter.
_BRACE = re.compile(rf"{{|}}|{_ASIDE}", re.DOTALL)
_STOP = re.compile(rf";|{{|=|{_ASIDE}", re.DOTALL)
_COMMA = re.compile(rf";|,|{_ASIDE}", re.DOTALL)
_OPERATORS = frozenset(("<<", ">>", "<=", ">=", "==", "!=", "&&", "||"))

# A search is fast if its pattern begins with a set of characters, so what stands before comes after.
_REST = r"(?<![\w$%.:].)[\w$]*(?![\w$]*\()"
_NAME = re.compile(rf"[A-Za-z_%$]{_REST}", re.ASCII)
_SYMBOL = re.compile(rf"[A-Za-z_$]{_REST}", re.ASCII)
_OPERAND = re.compile(r"(?:[^,\[({]|\[[^\]]*\]|\{[^}]*\}|\([^)]*\))+", re.ASCII)
_INNER = r"[^;:{}\"@]*(?:(?:\{[^;:{}\"@]*\}|::)[^;:{}\"@]*)*"
_STATEMENT = re.compile(
    rf"\s*(?:(@\s*!?\s*[%\w$]+\s+)?([a-z][\w.]*(?:::\w[\w.]*)*)(?=[\s;])(?!\s*\.)({_INNER});"
    r"|([%\w$]+)[ \t]*:(?!:)"
    r"|(\.loc\b[^\n]*|\.\w+[^;{}\"]*(?:(?:\"[^\"]*\"|\{[^{}]*\})[^;{}\"]*)*;)|([{}])|(\S))",
    re.ASCII,
)


class MalformedError(ValueError):
    """Text that is no PTX. It stays in this package, whose callers get a `LinkError` or an unknown part."""


class Token(NamedTuple):
    """
    A piece of PTX text that is neither white space nor a comment.

    Args:
        text: The piece as it is spelled. Modifiers belong to their opcode, quotes to their string.
        start: Its offset into the text.
    """

    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset after the token."""
        return self.start + len(self.text)

    @property
    def kind(self) -> Kind:
        """The kind; "line" is a line of a preprocessor, "end" the end of the text."""
        return kind(self.text)


@functools.lru_cache(maxsize=4096)
def kind(token: str) -> Kind:
    """Return the kind of a token by its text."""
    first = token[:1]
    if not first:
        return "end"
    if first.isascii() and (first.isalpha() or first == "_" or (first in "%$" and len(token) > 1)):
        return "word"
    if first.isdigit() or (first == "." and token[1:2].isdigit() and set(token[1:]) <= set("0123456789eE+-")):
        return "number" if first.isascii() else "malformed"
    if first == "." and len(token) > 1:
        return "directive"
    if first == '"':
        return "string" if len(token) > 1 and token[-1] == '"' else "malformed"
    if first == "#":
        return "line"
    if token in _OPERATORS or token in "{}[]()<>,;:@!|+-*/%~&^=?.":
        return "punctuation"
    return "malformed"


def tokens(text: str, start: int, end: int) -> tuple[list[str], list[int]]:
    """Return the tokens of *text* from *start* to *end*, and where each begins."""
    pieces = _PIECE.findall(text, start, end)
    # The end is a token without a text, and so is white space before it.
    while pieces and not pieces[-1][1]:
        pieces.pop()
    places = itertools.accumulate(map(len, itertools.chain.from_iterable(pieces)), initial=start)
    return [token for _, token in pieces], [*itertools.islice(places, 1, None, 2)]


def token_at(text: str, start: int) -> Token:
    """Return the first token of *text* at or after *start*."""
    match = _PIECE.match(text, start)
    assert match  # noqa: S101 - the end of the text matches at the latest
    return Token(match[2], match.start(2))


def block_end(text: str, start: int) -> int | None:
    """Return the offset after the block whose opening brace is at *start*, None if it is not closed."""
    end = text.find("}", start)
    if end < 0:
        return None
    # Tables and short bodies hold no comments or strings, in which a brace could hide.
    if all(text.find(hiding, start + 1, end) < 0 for hiding in ("{", '"', "/", "#")):
        return end + 1
    depth = 0
    for match in _BRACE.finditer(text, start):
        brace = match[0]
        if brace == "{":
            depth += 1
        elif brace == "}":
            depth -= 1
            if not depth:
                return match.end()
    return None


def delimiter(text: str, start: int) -> tuple[int, str]:
    """Return where the first semicolon, opening brace or equals sign is, and which, "" for none."""
    return _found(_STOP, text, start)


def initializer_end(text: str, start: int) -> tuple[int, int]:
    """Return the end of the initializer at *start*, and the offset of the comma or semicolon after it."""
    if text[start : start + 1] == "{":
        end = block_end(text, start) or len(text)
        return end, _found(_COMMA, text, end)[0]
    stop, _ = _found(_COMMA, text, start)
    texts, starts = tokens(text, start, stop)
    return (starts[-1] + len(texts[-1]) if texts else start), stop


def _found(pattern: re.Pattern[str], text: str, start: int) -> tuple[int, str]:
    for match in pattern.finditer(text, start):
        if match[0] in ";,{=":
            return match.start(), match[0]
    return len(text), ""


def has_directive(text: str, word: str) -> bool:
    """Return whether the directive *word* is in *text*, but for comments and strings."""
    pattern = re.compile(rf"{_ASIDE}|(?<![\w.]){re.escape(word)}(?![\w.])", re.DOTALL)
    return any(match[0] == word for match in pattern.finditer(text))


def without_comments(text: str) -> str:
    """Return *text* with a blank for each comment."""
    if '"' not in text and "#" not in text:
        return _COMMENT.sub(" ", text)
    return _SKIPPED.sub(lambda aside: " " if aside[0][0] == "/" else aside[0], text)


def with_words(text: str, new: Mapping[str, str]) -> str:
    """
    Return *text* with other words; local names that hide a symbol are renamed like it.

    Registers `a<3>` are a0, a1 and a2, so they do not have the name a; nor has the opcode of `a.u32`.
    """
    words = "|".join(map(re.escape, sorted(new, key=len, reverse=True)))
    pattern = re.compile(rf"{_ASIDE}|(?<![\w$%.])(?:{words})(?![\w$.]|\s*<)", re.DOTALL | re.ASCII)
    return pattern.sub(lambda match: new.get(match[0], match[0]), text)


def names(operand: str) -> list[str]:
    """Return the registers, special registers, variables, functions and labels in *operand*."""
    return _NAME.findall(operand)


def symbols(operand: str) -> list[str]:
    """Return the same, but for those that begin like registers."""
    return _SYMBOL.findall(operand)


@functools.lru_cache(maxsize=4096)
def operands(listed: str) -> tuple[str, ...]:
    """Return what is between the commas of *listed*, but for those in brackets."""
    if "[" in listed or "{" in listed or "(" in listed:
        return tuple(map(str.strip, _OPERAND.findall(listed)))
    # Blanks have no meaning in any of them, and to strip each takes four times as long.
    text = "".join(listed.split())
    return tuple(text.split(",")) if text else ()


def statements(text: str) -> list[tuple[str, str, str, str, str, str, str]]:
    """
    Return the statements of *text*, which has no comments.

    Each is the predicate, opcode and operands of an instruction, or a label, or a directive, or a brace, or
    a letter that belongs to none of these.
    """
    return _STATEMENT.findall(text)
