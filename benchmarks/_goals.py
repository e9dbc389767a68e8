"""What this package promises in figures, and what a file of results says about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _figures

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._figures import Figure


@dataclass(frozen=True)
class Goal:
    """
    A bound of a ratio.

    Args:
        text: What is promised.
        parts: The parts that measure it.
        pattern: Which of their figures do, by their labels.
        most: What no median may exceed.
        because: Why it is missed where it is, as far as that is known.
    """

    text: str
    parts: tuple[str, ...]
    pattern: str
    most: float
    because: str = ""

    def figures(self, content: Mapping[str, Any]) -> list[Figure]:
        """Return the figures of *content* that the goal is about, the largest ratio first."""
        found = [
            each
            for part in self.parts
            for each in _figures.of_part(content, part)
            if re.search(self.pattern, each.label)
        ]
        return sorted(found, key=lambda figure: -figure.ratio)

    def answer(self, content: Mapping[str, Any]) -> str:
        """Return what was measured in words: the largest ratio, of how many, and whether it is a good one."""
        found = self.figures(content)
        if not found:
            return "not measured"
        worst = found[0]
        above = [figure for figure in found if figure.ratio > self.most]
        if not above:
            verdict = "met"
        elif all(figure.samples >= 3 and figure.low <= self.most for figure in above):
            verdict = "within the spread"
        else:
            verdict = f"missed by {len(above)} of {len(found)}" if found[1:] else "missed"
        largest = f"{show_ratio(worst)}" + (
            f", the largest of {len(found)}: {worst.what}" if found[1:] else ""
        )
        return f"**{verdict}**: {largest}"


def show_ratio(figure: Figure) -> str:
    """Return a ratio with its quartiles."""
    numbers = (figure.ratio, figure.low, figure.high)
    digits = 2 if figure.ratio >= 0.095 else 4
    ratio, low, high = (f"{number:.{digits}f}" for number in numbers)
    return f"{ratio} ({low} to {high})" if figure.samples >= 3 else f"{ratio} (n={figure.samples})"


ALL = (
    Goal(
        "The first kernel of a process, when it is in the caches, comes no later than with numba-cuda alone",
        ("start",),
        r"cache=True, caches warm, all: plugin/stock",
        1.0,
    ),
    Goal(
        "The kernels after the first one take no more time to compile and link than with numba-cuda alone",
        ("link",),
        r"caches (off|empty), later kernels: plugin/stock",
        1.0,
    ),
    Goal(
        "A kernel that `load()` takes from an export is done in a fraction of the time of `cache=True`",
        ("load",),
        "load/numba cached",
        0.4,
    ),
    Goal(
        "`link()` links two PTX in no more time than nvJitLink",
        ("link",),
        r"link\(\)/nvJitLink",
        1.0,
        "assembling the text with its calls inlined takes about as long as all of nvJitLink's link, which "
        "inlines nothing",
    ),
    Goal(
        "Making one PTX of two, with the calls inlined, is a fraction of assembling it",
        ("link",),
        "inlining/assembling",
        0.1,
    ),
    Goal(
        "A call that is inlined as PTX takes the time of one linked as LTO-IR",
        ("call",),
        "PTX inlined/LTO",
        1.03,
        "where NVVM sees the function's body it makes the conversion of a loop's counter to a double into a "
        "running sum; text that is inlined after NVVM keeps the conversion in each turn",
    ),
    Goal(
        "A call that is linked as LTO-IR takes the time of one C++ source",
        ("call",),
        ": LTO/one source",
        1.02,
        "Numba's `range` counts in 64 bits, so that NVVM cannot tell that a loop has at most three turns, "
        "and unrolls it otherwise than the one of C++",
    ),
    Goal(
        "Reading a PTX module is a fraction of assembling it",
        ("read",),
        "module/assemble",
        0.05,
        "declarations alone leave the assembler nothing to do",
    ),
    Goal(
        "numba-cuda-mlir compiles to PTX in a fraction of its own time",
        ("compile",),
        r"caches off, later kernels: mlir plugin/mlir",
        0.7,
    ),
    Goal(
        "A second process needs a fraction of the time of numba-cuda-mlir's back end",
        ("mlir",),
        r"caches warm, wall: mlir plugin/mlir",
        0.3,
    ),
    Goal(
        "A function of a thousand takes hardly more time than one of a hundred",
        ("export", "exports"),
        "1000 functions/100",
        1.12,
    ),
    Goal(
        "Two jobs export in a fraction of the time of one",
        ("export", "exports"),
        r"\b1000? functions.*: 2 jobs.*/1 job",
        0.59,
        "Numba and the front end are imported before the jobs begin, which counts where the functions are "
        "few; and nvJitLink 13.0 joins no machine code, so that one process makes all of it where that is "
        "installed",
    ),
    Goal(
        "An export after an edit of one function in a hundred takes less time than the first one, though it "
        "lowers all of them",
        ("export", "exports"),
        r"\b100 functions.*: edited/all",
        0.9,
    ),
)
