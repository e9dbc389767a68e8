"""Count the words, semicolons, long sentences and vague clauses of a page."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_SENTENCE = 35
_NOT_PROSE = re.compile(
    r"^(`{3,}|:{3,}).*?^\1 *$|^:{3,}.*?$|<!-- (\w+) -->.*?<!-- /\2 -->|<!--.*?-->|^:sync:.*?$",
    re.MULTILINE | re.DOTALL,
)
_CODE = re.compile(r"(`+)[^`]+\1")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
# A full stop before a space, a blank line, an item of a list, and the borders of cells end a sentence.
_SENTENCE_END = re.compile(r"(?<=[.!?:]) |\n{2,}|^(?:[-*]|\d+\.) |\|", re.MULTILINE)
_VAGUE = re.compile(
    r"\bwhat\b(?! to\b)|\bbut for\b|, too\b|\bthe former\b|\bnor\b|(?-i:^Of )", re.IGNORECASE | re.MULTILINE
)


class Prose(NamedTuple):
    """
    The measures of a page, without its blocks of code and its generated tables.

    Args:
        words: The number of words. A piece of code within a sentence is one word.
        semicolons: The number of semicolons.
        vague: The clauses with "what" in place of a noun, and double negations.
        long: The sentences of more than `LONGEST_SENTENCE` words.
    """

    words: int
    semicolons: int
    vague: list[str]
    long: list[str]


def measure(text: str) -> Prose:
    """Return the measures of a page."""
    text = _LINK.sub(r"\1", _CODE.sub("CODE", _NOT_PROSE.sub("", text)))
    sentences = [" ".join(part.split()) for part in _SENTENCE_END.split(text)]
    return Prose(
        words=_count(text),
        semicolons=text.count(";"),
        vague=[text[max(match.start() - 30, 0) : match.end() + 30] for match in _VAGUE.finditer(text)],
        long=[sentence for sentence in sentences if _count(sentence) > LONGEST_SENTENCE],
    )


def measure_page(page: Path) -> Prose:
    """Return the measures of the page in a file."""
    return measure(page.read_text())


def _count(text: str) -> int:
    return len(re.findall(r"\S*\w\S*", text))
