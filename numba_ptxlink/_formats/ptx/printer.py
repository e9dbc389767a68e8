"""Print PTX: the text as read, with edits, or spelled from values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lexer import trivia_end
from .operands import Span
from .statements import Block

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .statements import Statement


def reassembled(text: str, spans: Iterable[Span]) -> str:
    """
    Return *text* out of its pieces, and the white space and comments between them.

    Args:
        text: The text of a module.
        spans: Where its nodes are, none inside of another. Tokens outside of them are left out.
    """
    pieces: list[str] = []
    end = 0
    for span in spans:
        pieces += (text[end : trivia_end(text, end)], text[span.start : span.end])
        end = span.end
    return "".join((*pieces, text[end : trivia_end(text, end)]))


def replaced(text: str, edits: Mapping[Span, str], within: Span | None = None) -> str:
    """
    Return *text* with other text in some places.

    Args:
        text: The text of a module.
        edits: New text for ranges of the text, which may be empty.
        within: The part of the text to return; None for all of it.

    Raises:
        ValueError: Ranges overlap, or lie outside of the text.
    """
    pieces: list[str] = []
    end, last = within or (0, len(text))
    for (start, stop), new in sorted(edits.items()):
        if not end <= start <= stop <= last:
            raise ValueError(f"the range {start}:{stop} overlaps another, or is outside of the text")
        pieces += (text[end:start], new)
        end = stop
    return "".join((*pieces, text[end:last]))


def statement_spans(statements: Iterable[Statement]) -> Iterator[Span]:
    """Yield the spans of *statements*; for a block, of its braces and its statements."""
    for statement in statements:
        if isinstance(statement, Block):
            yield Span(statement.start, statement.start + 1)
            yield from statement_spans(statement.statements)
            yield Span(statement.end - 1, statement.end)
        else:
            yield statement.span
