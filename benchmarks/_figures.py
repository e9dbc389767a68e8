"""Figures: one ratio each, with its spread, out of the rows of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAMES = {
    "stock": "numba-cuda",
    "plugin": "numba-cuda + ptxlink",
    "mlir": "numba-cuda-mlir",
    "mlir plugin": "numba-cuda-mlir + ptxlink",
    "nvjitlink": "nvJitLink",
    "assemble": "assemble()",
    "load": "load()",
    "driver": "the driver's compiler",
    "ptxas": "a ptxas process",
}
# What is this package's in a ratio, so that its name says nothing.
OURS = (
    "assemble",
    "cache",
    "hit",
    "link()",
    "load",
    "load and pack",
    "mlir plugin",
    "numba_ptxlink",
    "plugin",
)
# Columns that count something.
COUNTED = ("bytes", "functions", "jobs", "processes", "threads")
UNITS = (" ms", " MB", " kB", " bytes")


@dataclass(frozen=True)
class Figure:
    """
    How a contender compares with a peer; below 1 it needs less.

    Args:
        section: The section of the benchmark.
        what: What was measured.
        contender: Its name in the row; the peer's likewise.
        ratio: The median of the ratios, which were taken turn by turn.
        low: Their lower quartile; *high*, the upper.
        samples: How many there were.
    """

    section: str
    what: str
    contender: str
    peer: str
    ratio: float
    low: float
    high: float
    samples: int

    @property
    def label(self) -> str:
        """What is compared, and with what."""
        return f"{self.what}: {self.contender}/{self.peer}"

    @property
    def subject(self) -> str:
        """What was measured, without the section of the benchmark."""
        return self.what.partition(", ")[2] if self.what.startswith(f"{self.section}, ") else self.what

    @property
    def names(self) -> str:
        """The peer, and the contender where it is not this package."""
        peer = NAMES.get(self.peer, self.peer)
        return f"beside {peer}" if self.contender in OURS else f"{self.contender} / {peer}"

    @property
    def certain(self) -> bool:
        """Whether the quartiles are on one side of 1, and there are enough samples to have some."""
        return self.samples >= 3 and (self.high < 1 or self.low > 1)


def what(row: Mapping[str, Any]) -> str:
    """Return what a row is about: its words and whole numbers, where they need it with their names."""
    cells = {
        key: value
        for key, value in row.items()
        if key != "section" and isinstance(value, str | int) and not key.endswith(UNITS) and "," not in key
    }
    # A size says little beside a name.
    if any(isinstance(value, str) for key, value in cells.items() if key != "caches"):
        cells.pop("bytes", None)
    words = ", ".join(_describe(key, value) for key, value in cells.items())
    section = str(row["section"])
    if not words:
        return section
    return words if section in words or section.isdigit() else f"{section}, {words}"


def _describe(key: str, value: str | int) -> str:
    if key in COUNTED:
        return f"{value} {key if value != 1 else key.removesuffix('s')}"
    return value if isinstance(value, str) and key != "caches" else f"{key} {value}"


def figures(measured: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return each ratio of *measured*, the last one where one was measured again with more samples."""
    return [*{figure.label: figure for figure in _figures(measured)}.values()]


def of_part(content: Mapping[str, Any], part: str) -> list[Figure]:
    """Return the figures of *part* in a file of results."""
    return figures(rows(content, part))


def rows(content: Mapping[str, Any], part: str) -> list[dict[str, Any]]:
    """Return the rows of *part*, none if it was not run."""
    found: list[dict[str, Any]] = content["parts"].get(part, {}).get("rows", [])
    return found


def _figures(measured: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    for row in measured:
        for key, cell in row.items():
            contender, slash, peer = key.partition("/")
            if not slash or not isinstance(cell, dict):
                continue
            spread = (cell[name] for name in ("median", "low", "high", "samples"))
            yield Figure(row["section"], what(row), contender, peer, *spread)
