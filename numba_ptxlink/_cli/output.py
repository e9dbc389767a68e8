"""The report of a command, in each of the forms that a user can ask for."""

from __future__ import annotations

import io
import json
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

# All but the tab and the line feed.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@contextmanager
def printable() -> Iterator[None]:
    """Let the standard output escape what its encoding lacks, as the standard error does, for a block."""
    stdout = sys.stdout
    if not isinstance(stdout, io.TextIOWrapper) or stdout.errors != "strict":
        yield
        return
    stdout.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        if not stdout.closed:
            stdout.reconfigure(errors="strict")


def visible(text: str) -> str:
    """Return *text* with control characters escaped, by which names in a file could steer a terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


@dataclass(frozen=True)
class Report:
    """
    What a command has done or found.

    Args:
        content: All of it, as values that JSON has.
        text: What a person reads.
        brief: What is left of the text with --quiet.
        aside: Whether it goes to the standard error, because the standard output has the result itself.
        status: The exit status.
    """

    content: Any
    text: str
    brief: str = ""
    aside: bool = False
    status: int = 0

    def show(self, arguments: argparse.Namespace) -> None:
        """Print the form that *arguments* ask for."""
        if arguments.json:
            text = json.dumps(self.content, indent=2, sort_keys=True)
        else:
            text = self.brief if arguments.quiet else self.text
        if text:
            print(visible(text), file=sys.stderr if self.aside else sys.stdout)
