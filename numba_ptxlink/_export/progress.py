"""
Show the current step of a long export on a terminal.

An export takes seconds if it has many functions, is for several GPUs, or has nvcc compile its header. After
two seconds, a line on standard error names the step; the line is deleted at the end. Child processes that
compile report their steps to the process that waits for them.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from typing import TYPE_CHECKING

from numba_ptxlink._locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_DELAY_SECONDS = 2.0
# Go to the beginning of the line, and delete the line (ECMA-48).
_DELETE_LINE = "\r\x1b[K"


class _Line:
    """The line of a terminal that shows the current step."""

    def __init__(self) -> None:
        # Numbers of parts, such as functions.
        self._completed = 0
        self._expected = 0
        self._text = ""
        self._is_visible = False
        self._lock = Lock()
        self._timer = threading.Timer(_DELAY_SECONDS, self._appear)
        self._timer.daemon = True
        self._timer.start()

    def show(self, text: str, expected: int, completed: int) -> None:
        """Add to the counts of parts; if *text* is not empty, show it instead of the previous text."""
        with self._lock.held:
            self._expected += expected
            self._completed += completed
            if text:
                self._text = f"[{self._completed}/{self._expected}] {text}" if self._expected else text
                if self._is_visible:
                    self._write(self._text)

    def end(self) -> None:
        """Delete the line."""
        self._timer.cancel()
        with self._lock.held:
            if self._is_visible:
                self._write("")
                self._is_visible = False

    def _appear(self) -> None:
        with self._lock.held:
            self._is_visible = True
            self._write(self._text)

    @staticmethod
    def _write(text: str) -> None:
        # The terminal may have been closed, which is no reason to fail.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # End with "\r", so that a warning overwrites the line from its beginning.
            sys.stderr.write(f"{_DELETE_LINE}{text[: shutil.get_terminal_size().columns - 1]}\r")
            sys.stderr.flush()


# The function that `step` calls with its arguments; None outside of `display`.
_show: Callable[[str, int, int], None] | None = None


@contextlib.contextmanager
def display(*, is_quiet: bool = False) -> Iterator[None]:
    """
    Show the steps of a `with` block, if standard error is a terminal.

    Within the `with` block of another call, a call changes nothing.

    Args:
        is_quiet: Whether the steps of the block are not shown, even on a terminal.
    """
    global _show  # noqa: PLW0603 - one terminal has one line
    if _show is not None:
        yield
        return
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    line = _Line() if is_terminal and not is_quiet else None
    _show = line.show if line else _show_nothing
    try:
        yield
    finally:
        _show = None
        if line:
            line.end()


def report_to(receive: Callable[[str, int, int], None]) -> None:
    """Call *receive* with the arguments of each `step` of this process, which is a child."""
    global _show  # noqa: PLW0603 - as above
    _show = receive


def step(text: str = "", expected: int = 0, completed: int = 0) -> None:
    """
    Name the step that begins, if steps are shown.

    Args:
        text: The step; "" to change the counts alone.
        expected: The number of parts, such as functions, to add to the total.
        completed: The number of parts to add to those that are completed.
    """
    if _show is not None:
        _show(text, expected, completed)


def _show_nothing(text: str, expected: int, completed: int) -> None:
    """Ignore a step."""
