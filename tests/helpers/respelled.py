"""Change the white space and the comments of PTX, with a tokenizer that is independent of the package's."""

from __future__ import annotations

import itertools
import random
import re

# Strings, comments, numbers, single letters, and names and opcodes with the words behind their dots. ptxas
# searches for the version before it parses, and has opcodes with a dot in their names, such as mad.wide.
_PIECE = re.compile(
    r"""
    ( "[^"]*" | \.version\s+\S+ ) | (?: //[^\n]* | /\*.*?\*/ | \s+ )
  | ( \d+\.\d*(?:[eE][+-]?\d+)? | \d\w* | [\w$%]+(?:(?:\.|::)\w+)* | \.[\w$]+(?:::\w+)* | . )
    """,
    re.DOTALL | re.VERBOSE,
)
_BLANKS = (" ", "\t", "\n", "\r", "\f", "\r\n", "/* ; } */", "// { ;\n", " /* .loc */\f", '//\r "\n')


def _tokens(text: str) -> list[str]:
    """Return the tokens between blanks and comments."""
    return [string or token for string, token in _PIECE.findall(text) if string or token]


def _need_blank(first: str, second: str) -> bool:
    """Return whether two tokens need a blank between them, to stay two tokens."""
    if second[0] == ".":
        return not first.startswith(".") and first[-1] not in ",;:{}()[]"
    return bool(re.match(r"[\w$]{2}", first[-1] + second[0]))


def joined(text: str) -> str:
    """Return *text* on one line, as far as possible without blanks and comments."""
    tokens = _tokens(text)
    parts = [" " * _need_blank(*pair) + pair[1] for pair in itertools.pairwise(tokens)]
    return "".join((*tokens[:1], *parts))


def split(text: str, seed: int) -> str:
    """Return *text* with blanks of all kinds and comments between all its tokens."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    return "".join(f"{token}{rng.choice(_BLANKS)}" for token in _tokens(text))
