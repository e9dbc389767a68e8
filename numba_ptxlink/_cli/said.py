"""What a command says, in each of the forms that a user can ask for."""

from __future__ import annotations

import io
import json
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator


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


@dataclass(frozen=True)
class Said:
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
            print(text, file=sys.stderr if self.aside else sys.stdout)
