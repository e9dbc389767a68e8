"""Show how far an export is: a bar on a terminal, plain lines elsewhere, both on the standard error."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Progress = Callable[[int, int, str], None]

_FEW = 4


@contextmanager
def shown(*, quiet: bool) -> Iterator[Progress]:
    """
    Yield what `export` takes as *progress*. An export of a few groups, which takes seconds, shows nothing.

    Args:
        quiet: Whether nothing is shown at all.
    """
    if quiet or sys.stderr is None:
        yield _silent
    elif sys.stderr.isatty():
        try:
            from rich import progress
            from rich.console import Console
        except ImportError:
            yield _line
            return
        with progress.Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("export", total=None, visible=False)

            def advance(done: int, total: int, title: str) -> None:
                bar.update(task, completed=done, total=total, description=title, visible=total > _FEW)

            yield advance
    else:
        yield _line


def _silent(done: int, total: int, title: str) -> None:
    del done, total, title


def _line(done: int, total: int, title: str) -> None:
    if total > _FEW:
        sys.stderr.write(f"[{done}/{total}] {title}\n")
        sys.stderr.flush()
