"""
Show on a terminal what a long export does.

An export of many functions, for several GPUs, or with a header that nvcc compiles takes seconds. After two of
them, one line of standard error names the step; the line is deleted at the end.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_DELAY_SECONDS = 2.0
# Go to the beginning of the line, and delete the line (ECMA-48).
_DELETE_LINE = "\r\x1b[K"


class _Line:
    """The line of one export."""

    def __init__(self) -> None:
        self.total, self._count = 0, 0
        self._text, self._is_visible = "", False
        self._lock = threading.Lock()
        self._timer = threading.Timer(_DELAY_SECONDS, self._appear)
        self._timer.daemon = True
        self._timer.start()

    def show(self, text: str, *, counted: bool) -> None:
        """Replace the text, after the number of this step if it is counted."""
        with self._lock:
            self._count += counted
            self._text = f"[{self._count}/{self.total}] {text}" if counted else text
            if self._is_visible:
                self._write(self._text)

    def end(self) -> None:
        """Delete the line."""
        self._timer.cancel()
        with self._lock:
            if self._is_visible:
                self._write("")
                self._is_visible = False

    def _appear(self) -> None:
        with self._lock:
            self._is_visible = True
            self._write(self._text)

    @staticmethod
    def _write(text: str) -> None:
        # A terminal that has gone away is no reason to fail.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(_DELETE_LINE + text[: shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()


_line: _Line | None = None


@contextlib.contextmanager
def shown(*, is_quiet: bool = False) -> Iterator[None]:
    """Show the steps of a `with` block, if standard error is a terminal."""
    global _line  # noqa: PLW0603 - one terminal has one line
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if _line or is_quiet or not is_terminal:
        yield
        return
    line = _line = _Line()
    try:
        yield
    finally:
        _line = None
        line.end()


def expect(count: int) -> None:
    """Set the number of counted steps."""
    if _line:
        _line.total = count


def step(text: str, *, counted: bool = False) -> None:
    """Name the step that begins, if steps are shown."""
    if _line:
        _line.show(text, counted=counted)
