"""The table of how long links took, which is told and never judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def tell(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Return what adds a line to the table at the end of the run."""
    return pytestconfig.stash.setdefault(ROWS, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the table."""
    if rows := config.stash.get(ROWS, []):
        terminalreporter.section("programs of others, stock / plugin")
        for row in rows:
            terminalreporter.write_line(row)
