"""Tables of a page that tell what became of each row in each column, and are written by the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BEGIN, END = "<!-- outcomes -->\n", "<!-- /outcomes -->"


def held(page: Path, column: str, outcomes: dict[str, str], *, update: bool) -> dict[str, str]:
    """Return what *page* has in *column* by the row, *outcomes* where they are written to it first."""
    before, _, rest = page.read_text().partition(BEGIN)
    text, _, after = rest.partition(END)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    columns = {
        name: {row[0]: row[number] for row in cells[2:]} for number, name in enumerate(cells[0][1:], start=1)
    }
    assert text == written(columns)
    if update:
        columns[column] = outcomes
        page.write_text(f"{before}{BEGIN}{written(columns)}{END}{after}")
    return columns[column]


def written(columns: dict[str, dict[str, str]]) -> str:
    """Return the table of *columns*."""
    names = dict.fromkeys(row for column in columns.values() for row in column)
    rows = [["", *columns], ["---"] * (len(columns) + 1)]
    rows += [[name, *(column.get(name, "") for column in columns.values())] for name in names]
    return "".join(f"| {' | '.join(row)} |\n".replace("|  |", "| |") for row in rows)
