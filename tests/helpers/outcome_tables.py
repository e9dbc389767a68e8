"""Read and update tables on a page whose cells are results of tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def stored_outcomes(file: Path, column: str, outcomes: dict[str, str], *, update: bool) -> dict[str, str]:
    """Return the outcomes of *column* in *file*, after *outcomes* were written to it if *update* is true."""
    columns = json.loads(file.read_text())
    if update:
        columns[column] = outcomes
        file.write_text(json.dumps(columns, indent=1, ensure_ascii=False) + "\n")
    column_outcomes: dict[str, str] = columns[column]
    return column_outcomes
