"""Split PTX text into tokens, and skip code without reading its tokens."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

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
  | \#[^\n]* | @@\w[^\n]*
  | /\*.*
  | << | >> | <= | >= | == | != | && | \|\|
  | .
  | \Z
"""
_PIECE = re.compile(rf"({_TRIVIA})({_TOKEN})", re.ASCII | re.DOTALL | re.VERBOSE)
_BLANK = re.compile(_TRIVIA, re.ASCII | re.DOTALL)
_ASIDE = r'"[^"]*"?|//[^\n]*|/\*(?:.*?\*/|.*)|\#[^\n]*|@@\w[^\n]*'
# The search is fast if each alternative begins with a different letter.
_BRACE = re.compile(rf"{{|}}|{_ASIDE}", re.DOTALL)
_STOP = re.compile(rf";|{{|=|{_ASIDE}", re.DOTALL)
_DELIMITER = re.compile(rf";|,|{{|{_ASIDE}", re.DOTALL)
_OPERATORS = frozenset(("<<", ">>", "<=", ">=", "==", "!=", "&&", "||"))


class MalformedError(ValueError):
    """
    Text that is no PTX. It stays inside of this package, whose callers get a `LinkError` or an `Unknown`.

    Args:
        cause: What is wrong.
        start: Where, as an offset into the text.
    """

    def __init__(self, cause: str, start: int) -> None:
        super().__init__(cause, start)
        self.cause = cause
        self.start = start


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
        """The kind; "line" is a line of a preprocessor or of DWARF, "end" the end of the text."""
        return kind(self.text)


@functools.lru_cache(maxsize=4096)
def kind(token: str) -> Kind:
    """Return the kind of a token by its text."""
    first = token[:1]
    if not first:
        return "end"
    if first.isascii() and (first.isalpha() or first == "_" or (first in "%$" and len(token) > 1)):
        return "word"
    if first.isdigit() or (first == "." and token[1:2].isdigit() and is_number(token)):
        return "number" if first.isascii() else "malformed"
    if first == "." and len(token) > 1:
        return "directive"
    if first == '"':
        return "string" if len(token) > 1 and token[-1] == '"' else "malformed"
    if first == "#" or token.startswith("@@"):
        return "line"
    if token in _OPERATORS or token in "{}[]()<>,;:@!|+-*/%~&^=?.":
        return "punctuation"
    return "malformed"


def is_number(token: str) -> bool:
    """Return whether a token that begins with a digit, or a dot and a digit, is a number; `.2d` is not."""
    return token[0] != "." or all(letter in "0123456789eE+-" for letter in token[1:])


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of *text*, the end token last."""
    yield from map(Token, *split(text, 0, len(text)))


def split(text: str, start: int, end: int) -> tuple[list[str], list[int]]:
    """Return the tokens from *start* to *end* as a list of texts and one of offsets, which is faster."""
    pieces = _PIECE.findall(text, start, end)
    places = itertools.accumulate(map(len, itertools.chain.from_iterable(pieces)), initial=start)
    return [token for _, token in pieces], list(itertools.islice(places, 1, None, 2))


def token_at(text: str, start: int) -> Token:
    """Return the first token of *text* at or after *start*."""
    match = _PIECE.match(text, start)
    assert match  # noqa: S101 - the end of the text matches at the latest
    return Token(match[2], match.start(2))


def trivia_end(text: str, start: int) -> int:
    """Return the end of the white space and comments at *start*."""
    match = _BLANK.match(text, start)
    return match.end() if match else start


def block_end(text: str, start: int) -> int | None:
    """Return the offset after the block whose opening brace is at *start*, None if it is not closed."""
    end = text.find("}", start)
    if end < 0:
        return None
    # Tables and short bodies hold no comments or strings, in which a brace could hide.
    if all(text.find(letter, start + 1, end) < 0 for letter in '{"/#@'):
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


def contains(text: str, directive: re.Pattern[str], start: int, end: int) -> bool:
    """Return whether *directive* matches between *start* and *end*, outside comments and strings."""
    match = directive.search(text, start, end)
    if match is None:
        return False
    either = re.compile(rf"{_ASIDE}|{directive.pattern}", re.DOTALL)
    return any(hit[0][0] not in '"/#@' for hit in either.finditer(text, start, end))


def declaration(text: str, start: int) -> tuple[list[str], list[int], int, str]:
    """
    Return the tokens of the declaration at *start*, each initializer as one token.

    Returns:
        Texts and offsets of the tokens, the one for the end last; where that end is; and what stands there:
        a semicolon, an opening brace, or nothing where the text ends.
    """
    texts: list[str] = []
    starts: list[int] = []
    while True:
        stop, delimiter = _stop(_STOP, text, start)
        more, places = split(text, start, stop)
        texts += more
        starts += places
        while texts and not texts[-1]:
            texts.pop()
            starts.pop()
        if delimiter == "=":
            texts.append(delimiter)
            starts.append(stop)
            begin = trivia_end(text, stop + 1)
            end, start = _initializer_end(text, begin)
            if end > begin:
                texts.append(text[begin:end])
                starts.append(begin)
        elif delimiter == ";" and _ends_in_pragma(texts):
            texts.append(delimiter)
            starts.append(stop)
            start = stop + 1
        else:
            texts.append("")
            starts.append(stop)
            return texts, starts, stop, delimiter


def _ends_in_pragma(texts: list[str]) -> bool:
    """Return whether a function's last directive is a pragma, which has its own semicolon."""
    at = len(texts) - 1
    while at > 0 and (texts[at][0] == '"' or texts[at] == ","):
        at -= 1
    return at > 0 and texts[at] == ".pragma" and any(text in (".func", ".entry") for text in texts[:2])


def _initializer_end(text: str, start: int) -> tuple[int, int]:
    """Return the offsets of the end of the initializer at *start* and of the comma or semicolon after it."""
    begin = start
    while True:
        stop, delimiter = _stop(_DELIMITER, text, start)
        if delimiter == "{":
            end = start = block_end(text, stop) or len(text)
            after = trivia_end(text, end)
            if text[after : after + 1] in (",", ";"):
                return end, after
        elif text.find("/", begin, stop) < 0:
            return begin + len(text[begin:stop].rstrip()), stop
        else:
            texts, starts = split(text, begin, stop)
            ends = [place + len(token) for token, place in zip(texts, starts, strict=True) if token]
            return max(ends, default=begin), stop


def _stop(pattern: re.Pattern[str], text: str, start: int) -> tuple[int, str]:
    """Return the offset of the first delimiter that *pattern* matches, and the delimiter, "" at the end."""
    match = pattern.search(text, start)
    while match:
        if (character := match[0]) in ";,{=":
            return match.start(), character
        match = pattern.search(text, match.end())
    return len(text), ""
