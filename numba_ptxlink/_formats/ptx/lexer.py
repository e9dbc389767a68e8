"""PTX text as tokens, and what jumps over code without looking at each of them."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["word", "number", "directive", "string", "line", "punctuation", "malformed", "end"]

# NUL ends a C string, and PTX out of a fat binary keeps it. A comment of one line ends at LF, never at CR.
_TRIVIA = r"(?:[ \t\r\n\f\v\0]+|//[^\n]*|/\*.*?\*/)*"
# What is never closed runs to the end of the text, so that each character is looked at once.
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
# Alternatives that all begin with a letter of their own are what the search is quick for.
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
        """The offset after it."""
        return self.start + len(self.text)

    @property
    def kind(self) -> Kind:
        """What it is; "line" is a line for a preprocessor or of DWARF, "end" the end of the text."""
        return kind(self.text)


@functools.lru_cache(maxsize=4096)
def kind(token: str) -> Kind:
    """Return what the text of a token is."""
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
    """Return whether a token that begins with a digit, or a dot and a digit, is a number: `.2d` is none."""
    return token[0] != "." or all(letter in "0123456789eE+-" for letter in token[1:])


def tokens(text: str, start: int = 0, end: int | None = None) -> Iterator[Token]:
    """Yield the tokens of *text* from *start* to *end*, the one for the end last."""
    texts, starts = split(text, start, len(text) if end is None else end)
    yield from map(Token, texts, starts)


def split(text: str, start: int, end: int) -> tuple[list[str], list[int]]:
    """Return the same as a list of texts and one of offsets, which is faster."""
    pieces = _PIECE.findall(text, start, end)
    places = itertools.accumulate(map(len, itertools.chain.from_iterable(pieces)), initial=start)
    return [token for _, token in pieces], list(itertools.islice(places, 1, None, 2))


def token_at(text: str, start: int) -> Token:
    """Return the first token of *text* from *start* on."""
    match = _PIECE.match(text, start)
    assert match  # noqa: S101 - the end of the text matches at the latest
    return Token(match[2], match.start(2))


def trivia_end(text: str, start: int) -> int:
    """Return where the white space and the comments end that begin at *start*."""
    match = _BLANK.match(text, start)
    return match.end() if match else start


def block_end(text: str, start: int) -> int | None:
    """Return the offset after the block whose opening brace is at *start*, None where it is not closed."""
    end = text.find("}", start)
    if end < 0:
        return None
    # Tables and short bodies hold nothing that a brace could hide in.
    if all(text.find(letter, start + 1, end) < 0 for letter in '{"/#@'):
        return end + 1
    depth = 0
    for match in _BRACE.finditer(text, start):
        found = match[0]
        if found == "{":
            depth += 1
        elif found == "}":
            depth -= 1
            if not depth:
                return match.end()
    return None


def contains(text: str, directive: re.Pattern[str], start: int, end: int) -> bool:
    """Return whether what *directive* matches is from *start* to *end*, not in a comment or a string."""
    match = directive.search(text, start, end)
    if match is None:
        return False
    either = re.compile(rf"{_ASIDE}|{directive.pattern}", re.DOTALL)
    return any(found[0][0] not in '"/#@' for found in either.finditer(text, start, end))


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
        stop, found = _stop(_STOP, text, start)
        more, places = split(text, start, stop)
        texts += more
        starts += places
        while texts and not texts[-1]:
            texts.pop()
            starts.pop()
        if found == "=":
            texts.append(found)
            starts.append(stop)
            begin = trivia_end(text, stop + 1)
            end, start = _initializer_end(text, begin)
            if end > begin:
                texts.append(text[begin:end])
                starts.append(begin)
        elif found == ";" and _ends_in_pragma(texts):
            texts.append(found)
            starts.append(stop)
            start = stop + 1
        else:
            texts.append("")
            starts.append(stop)
            return texts, starts, stop, found


def _ends_in_pragma(texts: list[str]) -> bool:
    """Return whether the last of a function's directives is a pragma, which has a semicolon of its own."""
    at = len(texts) - 1
    while at > 0 and (texts[at][0] == '"' or texts[at] == ","):
        at -= 1
    return at > 0 and texts[at] == ".pragma" and any(each in (".func", ".entry") for each in texts[:2])


def _initializer_end(text: str, start: int) -> tuple[int, int]:
    """Return where the initializer at *start* ends, and where the comma or semicolon after it is."""
    begin = start
    while True:
        stop, found = _stop(_DELIMITER, text, start)
        if found == "{":
            end = start = block_end(text, stop) or len(text)
            after = trivia_end(text, end)
            if text[after : after + 1] in (",", ";"):
                return end, after
        elif text.find("/", begin, stop) < 0:
            return begin + len(text[begin:stop].rstrip()), stop
        else:
            texts, starts = split(text, begin, stop)
            ends = [place + len(each) for each, place in zip(texts, starts, strict=True) if each]
            return max(ends, default=begin), stop


def _stop(pattern: re.Pattern[str], text: str, start: int) -> tuple[int, str]:
    """Return where the first character is that *pattern* looks for, and it; "" at the end of the text."""
    match = pattern.search(text, start)
    while match:
        if (found := match[0]) in ";,{=":
            return match.start(), found
        match = pattern.search(text, match.end())
    return len(text), ""
