"""Define the goals for the speed of this package, and decide by results whether they are met."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import protocol
from .protocol import AGAIN, WHOLE, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Entry = Mapping[str, Any]

VERDICTS = ("met", "equal", "open", "missed", "not measured")
"""The verdicts on one comparison with a bound."""
# With fewer processes of each contender, no verdict is given.
MIN_PROCESSES = 10
# The bound of goals that only demand that this package is no slower.
EQUAL = 1.02


@dataclass(frozen=True)
class Goal:
    """
    A bound of ratios: the time of a contender, divided by that of its peer.

    Args:
        text: The goal in words.
        parts: The parts of `rows.PARTS` that measure it, with spaces between them.
        figures: A pattern for the names of figures.
        bound: The upper bound of the median ratio.
        measures: A pattern for the names of measures; "" for all.
        pairs: A pattern for contenders and peers, as "contender/peer"; "" for all.
        cause: The reason why the bound is above `EQUAL`, or why some comparisons miss it; "" if unknown.
    """

    text: str
    parts: str
    figures: str
    bound: float = EQUAL
    measures: str = ""
    pairs: str = ""
    cause: str = ""


@dataclass(frozen=True)
class Comparison:
    """
    The comparison of a contender with its peer, by one figure of a measure.

    Args:
        entry: The results of the measure, as `results.Results.put` stores them.
        figure: The name of the figure.
        contender: The name of the contender.
        peer: The name of the peer.
        wall: The ratio of their times by the clock; None if they were not measured.
        cpu: The ratio of their processor times; None if they were not measured.
        noise: The ratio of the times of two equal contenders; None if it was not measured.
    """

    entry: Entry
    figure: str
    contender: str
    peer: str
    wall: Spread | None
    cpu: Spread | None
    noise: Spread | None

    @property
    def n(self) -> int:
        """The number of compared processes of each contender."""
        return self.wall.n if self.wall else 0

    @property
    def outcome(self) -> str:
        """The outcome in a word: "equal", "less" or "more"; "" if there are too few processes."""
        if self.wall is None or self.noise is None or min(self.n, self.noise.n) < MIN_PROCESSES:
            return ""
        if self.noise.low <= self.wall.median <= self.noise.high:
            return "equal"
        return "less" if self.wall.median < 1 else "more"

    def verdict(self, bound: float) -> str:
        """
        Return the verdict on this comparison with *bound*: one of `VERDICTS`.

        The bound is missed if three of four turns exceed it, and open if only the median does. With too few
        processes, the verdict is "not measured".
        """
        if self.wall is None or self.n < MIN_PROCESSES:
            return "not measured"
        if self.outcome == "equal" and bound >= 1:
            return "equal"
        if self.wall.median <= bound:
            return "met"
        return "missed" if self.wall.low > bound else "open"


def comparisons_in(part: str, content: Entry) -> Iterator[Comparison]:
    """Yield each comparison of *part* in the results *content*."""
    for entry in content["measures"].values():
        if entry["part"] != part:
            continue
        for contender, peer in entry["pairs"]:
            for figure in _figures(entry, contender):
                wall, cpu = (
                    protocol.ratio(entry, figure, contender, peer, quantity) for quantity in ("wall", "cpu")
                )
                if wall:
                    yield Comparison(entry, figure, contender, peer, wall, cpu, noise(content, entry, figure))


def noise(content: Entry, entry: Entry, figure: str) -> Spread | None:
    """Return the spread of the ratio of equal contenders; None if it was not measured."""
    if not entry["again"]:
        # The noise of another measure stands for that of this one.
        entry = content["measures"].get(f"{entry['part']}: {entry['noise']}", entry)
    ratio = protocol.ratio(entry, figure, AGAIN, entry["again"])
    if ratio is None:
        return None
    # Neither of two equal contenders is the peer, so that 1.1 and 1 / 1.1 are the same noise.
    factor = max(ratio.high, 1 / ratio.low)
    return Spread(1.0, 1 / factor, factor, ratio.n)


def _figures(entry: Entry, contender: str) -> list[str]:
    """Return the names of the figures of *contender*; the whole process comes first."""
    names = [*entry["samples"].get(contender, {})]
    return sorted(names, key=lambda figure: figure != WHOLE)


def comparisons_of(goal: Goal, content: Entry) -> list[Comparison]:
    """Return the comparisons in the results *content* that *goal* is about."""
    return [
        comparison
        for part in goal.parts.split()
        for comparison in comparisons_in(part, content)
        if re.fullmatch(goal.figures, comparison.figure)
        and re.search(goal.measures, comparison.entry["name"])
        and re.search(goal.pairs, f"{comparison.contender}/{comparison.peer}")
    ]


def verdict_on_goal(verdicts: Sequence[str]) -> str:
    """Return the verdict on a goal, by the *verdicts* on its comparisons: "missed" if one is missed."""
    if not verdicts or set(verdicts) == {"not measured"}:
        return "not measured"
    return "missed" if "missed" in verdicts else "held"


# Figures of the part "call" with bounds of their own.
SHORT_LOOP = "early return"
CONVERTED_COUNTER = "a counter as double"
OTHER_CALLS = f"(?!{WHOLE}|{SHORT_LOOP}|{CONVERTED_COUNTER}).*"

GOALS = (
    Goal("From the start of Python to the end of the first kernel", "start mlir", "start to first kernel"),
    Goal("The first kernel of numba-cuda by itself", "start", "the first kernel"),
    Goal(
        "The first kernel of numba-cuda-mlir by itself",
        "mlir",
        "the first kernel",
        1.1,
        measures="no link file|caches full",
        cause="the kernel waits for the import of this package's modules, which takes about 25 ms",
    ),
    Goal(
        "The first kernel of numba-cuda-mlir that compiles C++",
        "mlir",
        "the first kernel",
        1.45,
        measures="a link file, caches empty",
        cause="it takes 196 ms without this package and 45 more with it, of which about 25 are the import",
    ),
    Goal("A later kernel of numba-cuda", "start", "later kernels"),
    Goal("A later kernel of numba-cuda-mlir", "mlir", "later kernels", measures="link file"),
    Goal(
        "A later kernel of numba-cuda-mlir with cache=True",
        "mlir",
        "later kernels",
        1.6,
        measures="cache=True",
        cause="the key of a kernel on disk has the options, link files and tools that numba-cuda-mlir's "
        "lacks, which takes a tenth of a millisecond",
    ),
    Goal("Python to PTX by numba-cuda", "start", "Python to PTX"),
    Goal("Python to PTX by numba-cuda-mlir", "mlir", "Python to PTX", 0.9),
    Goal(
        "`link()` beside nvJitLink",
        "link",
        f"(?!{WHOLE}).*",
        1.15,
        measures="caches off",
        cause="assembling the text with its calls inlined takes about as long as all of nvJitLink's link, "
        "which inlines nothing",
    ),
    Goal(
        "`link()` beside nvJitLink, both from their caches",
        "link",
        f"(?!{WHOLE}).*",
        1.6,
        measures="caches full",
        cause="three results are looked for (compared prototypes, the text, the machine code), and one by "
        "nvJitLink: half a millisecond",
    ),
    Goal("100 functions to all artifacts", "export", WHOLE, measures="100", pairs="export/cuda.compile"),
    Goal("The same after an edit of one", "edits", WHOLE, 0.9, measures="100", pairs="one edit/export"),
    Goal(
        "The same by two jobs",
        "edits",
        WHOLE,
        0.85,
        measures="100",
        pairs="-j 2/export",
        cause="Numba and the front end are imported before the jobs begin, and the assembler makes the "
        "machine code of all functions for an architecture in one run: three tenths of one job's time",
    ),
    Goal("The first kernel by `load()`", "load", "start to first kernel", 0.4, pairs="cache=True"),
    Goal("A call from C++, linked as LTO-IR", "call", OTHER_CALLS, pairs="LTO/one source"),
    Goal(
        "A loop of at most three turns, linked as LTO-IR",
        "call",
        SHORT_LOOP,
        2.6,
        pairs="LTO/one source",
        cause="Numba's `range` counts in 64 bits, so that NVVM cannot tell that a loop has at most three "
        "turns, and unrolls it otherwise than the one of C++",
    ),
    Goal(
        "A host version, beside C++",
        "host",
        "(polynomial|struct), an element",
        1.1,
        cause="a NaN that is returned gets the bits that a GPU gives it",
    ),
    Goal("A call from C++, inlined as PTX", "call", OTHER_CALLS, 1.03, pairs="inlined/LTO"),
    Goal("A loop of at most three turns, inlined as PTX", "call", SHORT_LOOP, 1.03, pairs="inlined/LTO"),
    Goal(
        "A loop whose counter becomes a double, inlined as PTX",
        "call",
        CONVERTED_COUNTER,
        1.4,
        pairs="inlined/LTO",
        cause="where NVVM sees the function's body it makes the conversion of a loop's counter to a double "
        "into a running sum; text that is inlined after NVVM keeps the conversion in each turn",
    ),
    Goal(
        "A loop whose counter becomes a double, linked as LTO-IR",
        "call",
        CONVERTED_COUNTER,
        pairs="LTO/one source",
    ),
)
