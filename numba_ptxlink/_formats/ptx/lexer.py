"""Split PTX into tokens, statements and operands by regular expressions."""

from __future__ import annotations

import functools
import itertools
import re
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

Kind = Literal["word", "number", "directive", "string", "line", "punctuation", "malformed", "end"]

# PTX out of a fat binary ends in the null byte of a C string.
_BLANKS = r"[ \t\r\n\f\v\0]*"
# A comment of one line ends at LF, never at CR. An unclosed comment or string runs to the end of the text, so
# that each character is read once.
_COMMENT_FORM = r"/(?:/[^\n]*|\*(?:.*?\*/|.*))"
# A string, a comment, or a line of a preprocessor.
_NO_CODE = rf'"[^"]*"?|{_COMMENT_FORM}|\#[^\n]*'
_DIGITS = "0[xX][0-9a-fA-F]+ | 0[bB][01]+ | 0[0-7]* | [1-9][0-9]*"
_INTEGER = rf"(?: {_DIGITS} ) U?"
# The forms of tokens by kind; the first form that matches is taken.
_FORMS: dict[Kind, str] = {
    # A name, or an opcode with its modifiers, such as `ld.global.f32`.
    "word": r"(?:[A-Za-z_]|[%$][\w$]) [\w$]* (?: (?:\.|::) [\w$]+ )*",
    # The bits of a float (`0f3F800000`), a decimal float or an integer. `.5` is a float, and `.2d` is not.
    "number": rf"""
        0[fF][0-9a-fA-F]{{8}} | 0[dD][0-9a-fA-F]{{16}}
      | [0-9]+ \.[0-9]* (?:[eE][+-]?[0-9]+)? | [0-9]+ [eE][+-]?[0-9]+ | {_INTEGER}
      | \.[0-9]+ (?:[eE][+-]?[0-9]+)? (?![\w$])""",
    "directive": r"\.[\w$]+ (?: ::[\w$]+ )*",
    "string": r'"[^"]*"',
    "line": r"\#[^\n]*",
    "malformed": r'"[^"]* | /\*.* | [^][{}()<>,;:@!|+*/%~&^=?.-]',
    "punctuation": r"<< | >> | <= | >= | == | != | && | \|\| | .",
    "end": r"\Z",
}
# A statement of a function, without comments: an instruction (guard, mnemonic, operands), a label, a
# directive or a brace. `.loc` has no semicolon. The group `other` is one character of text that is no
# statement.
_STATEMENT = rf"""
    \s*
    (?: (?P<guard> @ \s* !? \s* [%\w$]+ \s+ )?
        (?P<mnemonic> [a-z][\w.]* (?: ::\w[\w.]* )* ) (?![\w$.:]) \s*
        (?P<operands> [^;:{{}}"@]* (?: (?: \{{[^;:{{}}"@]*\}} | :: ) [^;:{{}}"@]* )* ) ;
    |   (?P<label> [%\w$]+ ) \s* : (?!:)
    |   (?P<directive>
            \.loc (?: \s+ {_INTEGER} ){{3}}
                (?: \s*,\s* function_name \s+ [%\w$]+ (?: \s*\+\s* {_INTEGER} )?
                    \s*,\s* inlined_at (?: \s+ {_INTEGER} ){{3}} )? (?![\w$])
        |   (?P<keyword> \.(?!loc\b)\w+ ) [^;{{}}"]* (?: (?: "[^"]*" | \{{[^{{}}]*\}} ) [^;{{}}"]* )* ; )
    |   (?P<brace> [{{}}] )
    |   (?P<other> \S )
    )"""
# A section for debuggers, without comments, such as `.section .debug_loc { .b32 1, $L__tmp0 }`. Each text
# matches in one way only, so that no search backtracks.
_DWARF_VALUE = r"-? [.%\w$]+ (?: \s* [+-] \s* [.%\w$]+ )?"
_DWARF = rf"""
    \.section \s+ \.[\w$]+ \s* \{{
    (?: \s* [%\w$]+ \s* : | \s* \.b(?:8|16|32|64) \s+ {_DWARF_VALUE} (?: \s*,\s* {_DWARF_VALUE} )* )*
    \s* \}}"""
# A name after its first character. Excluded are modifiers, which follow a dot (`.f32`), and operators with a
# parenthesis (`generic(x)`). The look-behind checks the character before the name; its `.` is the first
# character of the name, which the pattern matches before the look-behind, since a search is fast if its
# pattern begins with a set of characters.
_NAME_TAIL = r"(?<![\w$%.:].) [\w$]* (?![\w$]*\()"


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII | re.DOTALL | re.VERBOSE)


# Patterns that are not compiled here are compiled at their first use: a link of one PTX needs none of them.

# White space and comments, and the token after them.
_PIECE = _compiled(rf"({_BLANKS}(?:(?://[^\n]*|/\*.*?\*/){_BLANKS})*) ({' | '.join(_FORMS.values())})")
_KIND = _compiled(" | ".join(f"(?P<{kind}>{form})" for kind, form in _FORMS.items()))
_NAME, _SYMBOL = _compiled(f"[A-Za-z_%$]{_NAME_TAIL}"), _compiled(f"[A-Za-z_$]{_NAME_TAIL}")
# Text up to a comma that is outside of brackets.
_OPERAND = _compiled(r"(?: [^,\[({] | \[[^\]]*\] | \{[^}]*\} | \([^)]*\) )+")
_COMMENT, _STRING_OR_COMMENT = _compiled(_COMMENT_FORM), _compiled(_NO_CODE)
# The patterns match strings and comments as a whole, so that a brace or comma in them is not found. The
# search is fast if each alternative begins with a different character.
_BRACE, _DELIMITER, _SEPARATOR = (_compiled(rf"{char}|{_NO_CODE}") for char in (r"\{|\}", r";|\{|=", ";|,"))
_VALUE_KINDS = ("word", "number", "string")
_MAX_INTEGER_CHARS = 66  # 64 binary digits after "0b"


class MalformedError(ValueError):
    """Text that is no PTX. Callers of this package get a `LinkError` or an `UnparsedItem` instead."""


class Token(NamedTuple):
    """
    A piece of PTX text that is neither white space nor a comment.

    Args:
        text: The token, with the modifiers of an opcode and the quotes of a string; "" at the end.
        start: The offset into the text.
    """

    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset after the token."""
        return self.start + len(self.text)

    @property
    def kind(self) -> Kind:
        """The kind; "line" for a line of a preprocessor (`# 1 "a.cu"`), "end" for the end of the text."""
        return kind(self.text)


@functools.lru_cache(maxsize=4096)
def kind(token: str) -> Kind:
    """Return the kind of a token by its text."""
    match = _KIND.match(token)
    return cast("Kind", match.lastgroup) if match else "malformed"


def tokens(text: str, start: int, end: int) -> tuple[list[str], list[int]]:
    """Return the tokens of *text* from *start* to *end*, and their offsets."""
    pieces = _PIECE.findall(text, start, end)
    # The end matches as an empty token, and so does white space before the end.
    while pieces and not pieces[-1][1]:
        pieces.pop()
    # A piece is white space and a token: every second sum of their lengths is the offset of a token.
    offsets = itertools.accumulate(map(len, itertools.chain.from_iterable(pieces)), initial=start)
    return [token for _, token in pieces], [*itertools.islice(offsets, 1, None, 2)]


def token_at(text: str, start: int) -> Token:
    """Return the first token of *text* at or after *start*."""
    match = _PIECE.match(text, start)
    assert match  # noqa: S101 - the end of the text matches at the latest
    return Token(match[2], match.start(2))


def comma_separated(text: str, start: int) -> tuple[list[str], int]:
    """Return the comma-separated words, numbers and strings at *start*, and the offset after the last one."""
    values: list[str] = []
    while (token := token_at(text, start)).kind in _VALUE_KINDS:
        values.append(token.text)
        start = token.end
        comma = token_at(text, start)
        if comma.text != "," or token_at(text, comma.end).kind not in _VALUE_KINDS:
            break
        start = comma.end
    return values, start


def block_end(text: str, start: int) -> int | None:
    """Return the offset after the block whose opening brace is at *start*; None if it is not closed."""
    end = text.find("}", start)
    # Most bodies contain no other block, comment or string, and need no search by a pattern.
    if all(text.find(char, start + 1, end) < 0 for char in '{/"#'):
        return None if end < 0 else end + 1
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
    """
    Return the offset of the first semicolon, opening brace or equals sign from *start* on, and the character.

    If there is none, the result is the length of *text* and "".
    """
    return _find_outside_strings(_DELIMITER, text, start)


def initializer_end(text: str, start: int) -> tuple[int, int]:
    """Return the offset after the initializer at *start*, and that of the next comma or semicolon."""
    if text[start : start + 1] == "{":
        end = block_end(text, start) or len(text)
        return end, _find_outside_strings(_SEPARATOR, text, end)[0]
    stop, _ = _find_outside_strings(_SEPARATOR, text, start)
    texts, starts = tokens(text, start, stop)
    return (starts[-1] + len(texts[-1]) if texts else start), stop


def _find_outside_strings(pattern: re.Pattern[str], text: str, start: int) -> tuple[int, str]:
    """
    Return the offset and the character of the first match that is neither string nor comment.

    If there is none, the result is the length of *text* and "".
    """
    for match in pattern.finditer(text, start):
        if match[0] in ";,{=":
            return match.start(), match[0]
    return len(text), ""


def has_directive(text: str, word: str) -> bool:
    """Return whether *text* has the directive *word*, such as ".loc", outside of comments and strings."""
    pattern = re.compile(rf"{_NO_CODE}|(?<![\w.]){re.escape(word)}(?![\w.])", re.DOTALL)
    return any(match[0] == word for match in pattern.finditer(text))


def without_comments(text: str) -> str:
    """Return *text* with a blank in place of each comment."""
    if '"' not in text and "#" not in text:
        return _COMMENT.sub(" ", text)
    return _STRING_OR_COMMENT.sub(lambda match: " " if match[0][0] == "/" else match[0], text)


def is_dwarf(section: str) -> bool:
    """Return whether *section* is a `.section` that contains only labels and values."""
    return _compiled(_DWARF).fullmatch(without_comments(section)) is not None


def rename_symbols(text: str, new_names: Mapping[str, str]) -> str:
    """
    Return *text* with *new_names* for symbols; local names that hide a symbol are renamed, too.

    Words that are no symbol remain: `a<3>` declares the registers a0, a1 and a2, and `a.u32` is an opcode.
    """
    # The pattern matches strings and comments as a whole, so that words in them are not renamed.
    words = rf"({_NO_CODE}|(?<![\w$%.])[A-Za-z_%$][\w$]*(?![\w$.]|\s*<))"
    # The pattern has one group, so that every second piece is a match, and the others are the text between.
    pieces = _compiled(words).split(text)
    pieces[1::2] = [new_names.get(word, word) for word in pieces[1::2]]
    return "".join(pieces)


def find_names(operand: str) -> list[str]:
    """Return the registers, special registers, variables, functions and labels in *operand*."""
    return _NAME.findall(operand)


def find_symbols(operand: str) -> list[str]:
    """Return the names in *operand* that do not begin like registers."""
    return _SYMBOL.findall(operand)


@functools.lru_cache(maxsize=4096)
def operands(operand_text: str) -> tuple[str, ...]:
    """Split *operand_text* at its commas outside of brackets."""
    if "[" in operand_text or "{" in operand_text or "(" in operand_text:
        return tuple(map(str.strip, _OPERAND.findall(operand_text)))
    # Blanks have no meaning here. Removing all of them is four times as fast as stripping each operand.
    without_blanks = "".join(operand_text.split())
    return tuple(without_blanks.split(",")) if without_blanks else ()


def modifiers(text: str) -> tuple[str, str]:
    """
    Split the text after an opcode into its modifiers, without blanks, and the operands.

    For example: "  .global .f32 %f1, [x]" after `ld` has the modifiers ".global.f32".
    """
    match = _compiled(r"(?: \.[\w.:]+ \s* )*").match(text)
    assert match  # noqa: S101 - the pattern also matches an empty text
    return "".join(match[0].split()), text[match.end() :]


@functools.lru_cache(maxsize=4096)
def parse_integer(text: str) -> int | None:
    """Return the value of an integer literal, which may have a minus sign; None for other text."""
    match = _compiled(rf"(-?) \s* ({_DIGITS}) U?").fullmatch(text)
    if match is None or len(match[2]) > _MAX_INTEGER_CHARS:
        return None
    # Octal literals begin with 0, such as 017; base 0 reads decimal numbers, and the prefixes 0x and 0b.
    value = int(match[2], 8 if match[2].isdecimal() and match[2][0] == "0" else 0)
    return -value if match[1] else value


def statements(text: str) -> list[tuple[str, str, str, str, str, str, str, str]]:
    """
    Return the statements of *text*, which has no comments.

    Each statement is a tuple of eight parts, which are "" if it does not have them: the guard, mnemonic and
    operands of an instruction; a label; a directive and its first word, which is "" for `.loc`; a brace; and
    the first character of text that is no statement.
    """
    return _compiled(_STATEMENT).findall(text)
