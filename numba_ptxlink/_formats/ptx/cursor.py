"""Parse operands from a position in a list of tokens."""

from __future__ import annotations

import functools
from typing import NoReturn

from .lexer import MalformedError, kind
from .operands import Address, Expression, Immediate, Name, Negated, Operand, Pair, String, Vector, Word

_SIMPLE_ENDS = frozenset(",;]})")
_ENDS = frozenset((*_SIMPLE_ENDS, ""))
_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_%$")
_DIGITS = frozenset("0123456789")
# Valid operands nest no deeper than vectors of addresses of vectors; the bound protects the stack.
_DEEPEST = 32


def is_name(token: str) -> bool:
    """Return whether *token* is a name without a selector."""
    return token[:1] in _WORD and "." not in token


class Cursor:
    """
    A place among tokens.

    Args:
        text: The text of the module.
        texts: The tokens, the one for the end last, which is empty.
        starts: Their offsets into the text.
    """

    __slots__ = ("at", "starts", "text", "texts")

    def __init__(self, text: str, texts: list[str], starts: list[int]) -> None:
        self.text = text
        self.texts = texts
        self.starts = starts
        self.at = 0

    @property
    def token(self) -> str:
        """The next token."""
        return self.texts[self.at]

    @property
    def start(self) -> int:
        """The offset of the next token."""
        return self.starts[self.at]

    @property
    def end(self) -> int:
        """The end of the last token taken."""
        return self.starts[self.at - 1] + len(self.texts[self.at - 1])

    def take(self) -> str:
        """Return the next token and advance."""
        token = self.texts[self.at]
        if not token:
            self.fail("the text ends too early")
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        """Take the next token if it is *token*."""
        if self.texts[self.at] != token:
            return False
        self.at += 1
        return True

    def expect(self, token: str) -> None:
        """
        Take the next token.

        Raises:
            MalformedError: It is not *token*.
        """
        if not self.accept(token):
            self.fail(f"{token!r} is expected")

    def word(self, *, plain: bool = True) -> str:
        """
        Take a name.

        Raises:
            MalformedError: There is none, or it has a selector although it has to be *plain*.
        """
        token = self.texts[self.at]
        if token[:1] not in _WORD or (plain and "." in token):
            self.fail("a name is expected")
        self.at += 1
        return token

    def split_name(self) -> None:
        """Split the next token into a name and directives if no space separates them: `f.noreturn`."""
        name, *directives = self.texts[self.at].split(".")
        if name and directives:
            start = self.starts[self.at]
            self.texts[self.at : self.at + 1] = [name, *(f".{word}" for word in directives)]
            starts = [start]
            for before in (name, *(f".{word}" for word in directives[:-1])):
                starts.append(starts[-1] + len(before))
            self.starts[self.at : self.at + 1] = starts

    def integer(self) -> int:
        """
        Take a whole number.

        Raises:
            MalformedError: There is none.
        """
        value = _whole(self.texts[self.at])
        if value is None:
            self.fail("a whole number is expected")
        self.at += 1
        return value

    def fail(self, cause: str) -> NoReturn:
        """Raise MalformedError with *cause* and its place."""
        token = self.texts[self.at]
        shown = repr(token[:40]) if token else "the end"
        raise MalformedError(f"{cause}, not {shown}", self.starts[self.at])

    def operands(self, closing: str, depth: int = 0) -> tuple[Operand, ...]:
        """Take operands separated by commas, and the token *closing* after them."""
        if self.accept(closing):
            return ()
        operands = []
        while True:
            operands.append(self.operand(depth))
            token = self.texts[self.at]
            if token == ",":
                self.at += 1
            elif token == closing:
                self.at += 1
                return tuple(operands)
            else:
                self.fail(f"',' or {closing!r} is expected")

    def operand(self, depth: int = 0) -> Operand:
        """Take one operand."""
        at = self.at
        token, start = self.texts[at], self.starts[at]
        first = token[:1]
        if first in _WORD:
            following = self.texts[at + 1]
            if following in _SIMPLE_ENDS:
                self.at = at + 1
                name, _, selector = token.partition(".") if "." in token else (token, "", "")
                return Name(name, selector, start=start, end=start + len(token))
            return self._named(depth)
        if first == "[":
            return self._address(depth)
        if first == "{":
            self.at = at + 1
            self._deeper(depth)
            elements = self.operands("}", depth + 1)
            return Vector(elements, start=start, end=self.end)
        if first in _DIGITS and self.texts[at + 1] in _SIMPLE_ENDS:
            self.at = at + 1
            return Immediate(token, start=start, end=start + len(token))
        if first == '"' and kind(token) == "string":
            self.at = at + 1
            return String(token[1:-1], start=start, end=start + len(token))
        if first in ("!", "-") and self.texts[at + 1][:1] in _WORD:
            self.at = at + 1
            operand = self._name()
            if self.texts[self.at] in _ENDS:
                return Negated(token, operand, start=start, end=self.end)
            self.at = at
        return self._expression()

    def _deeper(self, depth: int) -> None:
        if depth >= _DEEPEST:
            self.fail("operands are nested too deeply")

    def _name(self) -> Name:
        """Take a name, with its selector even if white space separates the two."""
        start = self.start
        token = self.word(plain=False)
        end = self.end
        name, _, selector = token.partition(".")
        if not selector and kind(self.texts[self.at]) == "directive":
            selector = self.take()[1:]
            end = self.end
        return Name(name, selector, start=start, end=end)

    def _named(self, depth: int) -> Operand:
        """Take an operand that begins with a name and has more parts."""
        at, start = self.at, self.start
        name = self._name()
        token = self.texts[self.at]
        if token in _ENDS:
            return name
        if token == "|":
            self.at += 1
            self._deeper(depth)
            second = self.operand(depth + 1)
            return Pair(name, second, start=start, end=self.end)
        if token == "[" and not name.selector:
            self.at += 1
            elements = self.operands("]", depth + 1)
            return Address(elements, name.name, start=start, end=self.end)
        self.at = at
        return self._expression()

    def _address(self, depth: int) -> Address:
        start = self.start
        self.at += 1
        at, texts = self.at, self.texts
        if texts[at + 1 : at + 2] == ["]"] and is_name(texts[at]) and kind(texts[at + 2]) != "directive":
            begin = self.starts[at]
            self.at = at + 2
            name = Name(texts[at], start=begin, end=begin + len(texts[at]))
            return Address((name,), start=start, end=self.end)
        if texts[at + 1 : at + 4 : 2] == ["+", "]"] and is_name(texts[at]) and texts[at + 2][0] in _DIGITS:
            return self._sum(start, at)
        self._deeper(depth)
        elements = self.operands("]", depth + 1)
        suffix = self.take()[1:] if kind(self.texts[self.at]) == "directive" else ""
        return Address(elements, suffix=suffix, start=start, end=self.end)

    def _sum(self, start: int, at: int) -> Address:
        """Take the tokens of a name and a number from *at* on, and the bracket after them."""
        texts, starts = self.texts, self.starts
        self.at = at + 4
        begin, place = starts[at], starts[at + 2]
        end = place + len(texts[at + 2])
        name = Name(texts[at], start=begin, end=begin + len(texts[at]))
        number = Immediate(texts[at + 2], start=place, end=end)
        whole = Expression((name, "+", number), start=begin, end=end)
        suffix = self.take()[1:] if kind(texts[at + 4]) == "directive" else ""
        return Address((whole,), suffix=suffix, start=start, end=self.end)

    def _expression(self) -> Operand:
        """Take the tokens up to the end of the operand."""
        start = self.start
        parts: list[Operand | str] = []
        parentheses = 0
        while True:
            token = self.texts[self.at]
            which = kind(token)
            if which == "punctuation":
                if token in _SIMPLE_ENDS and not (token == ")" and parentheses):
                    break
                if token in "{[":
                    self.fail("an operator is expected")
                parentheses += {"(": 1, ")": -1}.get(token, 0)
                parts.append(token)
                self.at += 1
            elif which in ("word", "number", "directive", "string"):
                if parts and not isinstance(parts[-1], str):
                    self.fail("an operator is expected")
                parts.append(self._name() if which == "word" else self.leaf())
            else:
                break
        if not parts or parentheses:
            self.fail("an operand is expected" if not parts else "')' is expected")
        (only, *others) = parts
        if not others and not isinstance(only, str):
            return only
        return Expression(tuple(parts), start=start, end=self.end)

    def leaf(self) -> Name | Immediate | String | Word:
        """Take a token that is an operand by itself."""
        token, start = self.texts[self.at], self.starts[self.at]
        end = start + len(token)
        which = kind(token)
        if which not in ("word", "number", "string", "directive"):
            self.fail("an operand is expected")
        self.at += 1
        if which == "word":
            name, _, selector = token.partition(".")
            return Name(name, selector, start=start, end=end)
        if which == "number":
            return Immediate(token, start=start, end=end)
        if which == "string":
            return String(token[1:-1], start=start, end=end)
        return Word(token, start=start, end=end)

    def leaves(self) -> tuple[Name | Immediate | String | Word, ...]:
        """Take leaves separated by commas; none if the next token is not a leaf."""
        if kind(self.texts[self.at]) not in ("word", "number", "string"):
            return ()
        leaves = [self.leaf()]
        while self.accept(","):
            leaves.append(self.leaf())
        return tuple(leaves)


@functools.lru_cache(maxsize=1024)
def _whole(token: str) -> int | None:
    # Python refuses to convert thousands of digits.
    if token[:1] not in _DIGITS or kind(token) != "number" or len(token) > 100:
        return None
    value = Immediate(token).value
    return value if isinstance(value, int) else None
