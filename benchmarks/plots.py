"""Draw pictures of the results: one for README, and one of all goals with their bounds."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from . import goals
from .rows import CACHED, LOAD, PLUGIN

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GREEN, RED, GRAY = "#0a7d4f", "#c2410c", "#6b7280"
VERDICT_COLORS = dict(zip(goals.VERDICTS, (GREEN, GRAY, "#eab308", RED, "#d1d5db"), strict=True))
# The contenders of the part "call" that the summary shows, by their names.
WAYS = {
    "LTO": "Python, as LTO-IR",
    "PTX inlined": "Python, as PTX by numba-ptxlink",
    "PTX": "Python, as PTX by NVIDIA's linker",
}
STYLE = {"font.size": 9, "font.family": "DejaVu Sans", "svg.fonttype": "none", "svg.hashsalt": "ptxlink"}
SUMMARY_TITLE = (
    "A function in Python is as fast as one in C++, and the first kernel of a process comes earlier"
)
GOALS_TITLE = "Each goal: the median and quartiles of its ratio, and its bound"
START_FIGURE = "start to first kernel"


def draw(folder: Path, content: Mapping[str, Any]) -> dict[str, str]:
    """Write the pictures of *content* as SVG into *folder*; return their titles by name."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    titles = {}
    with plt.rc_context(STYLE):
        for name, (plot, title) in {
            "summary": (_summary, SUMMARY_TITLE),
            "goals": (_goals, GOALS_TITLE),
        }.items():
            figure = plot(content)
            if figure is not None:
                path = folder / f"{name}.svg"
                figure.savefig(path, bbox_inches="tight", facecolor="white", metadata={"Date": None})
                plt.close(figure)
                titles[name] = title
    return titles


def ratios_of_calls(content: Mapping[str, Any]) -> dict[str, list[float]]:
    """
    Return for each contender the median ratios of calls from C++: to those of the same function in C++.

    Without a device, there are no contenders.
    """
    ratios: dict[str, list[float]] = {}
    for comparison in goals.comparisons_in("call", content):
        if comparison.peer == "one source" and comparison.figure != goals.WHOLE and comparison.wall:
            ratios.setdefault(comparison.contender, []).append(comparison.wall.median)
    return ratios


def _summary(content: Mapping[str, Any]) -> Any:
    """Return a plot of two figures: calls from C++ by the way they are linked, and first kernels."""
    import matplotlib.pyplot as plt

    calls = ratios_of_calls(content)
    contender_titles = {
        PLUGIN.format("numba-cuda"): "with numba-ptxlink",
        LOAD: "exported, without Numba",
    }
    # Only comparisons with numba-cuda, cache=True: a measure of "start" has this name, and a peer of "load".
    comparisons = {
        contender_titles[comparison.contender]: comparison
        for part in ("start", "load")
        for comparison in goals.comparisons_in(part, content)
        if comparison.figure == START_FIGURE
        and "cache=True" in f"{comparison.entry['name']}, {comparison.peer}"
    }
    first_kernels = {
        title: comparison.wall.median for title, comparison in comparisons.items() if comparison.wall
    }
    if not calls or not first_kernels:
        return None
    bars = (
        {"C++, in one source": 1.0, **{title: statistics.median(calls[way]) for way, title in WAYS.items()}},
        {CACHED: 1.0, **first_kernels},
    )
    figure, both_axes = plt.subplots(1, 2, figsize=(9.6, 1.9))
    titles = (
        "Function called by a C++ kernel: time, shorter is better",
        "First kernel of a process: time, shorter is better",
    )
    for axes, title, ratios in zip(both_axes, titles, bars, strict=True):
        for y, ratio in enumerate(ratios.values()):
            # The first bar, of the peer, is gray.
            color = GREEN if ratio < 1.05 else RED
            axes.barh(y, ratio, height=0.7, color=color if y else GRAY)
            axes.text(ratio, y, f" {ratio:.2f}x", va="center", weight="bold")
        axes.set_yticks(range(len(ratios)), ratios)
        axes.invert_yaxis()
        axes.set_xticks([])
        axes.set_title(title, fontsize=9.5, weight="bold", loc="right")
        axes.spines[["right", "top", "bottom"]].set_visible(False)
    figure.subplots_adjust(wspace=0.85)
    return figure


def _goals(content: Mapping[str, Any]) -> Any:
    """Return a plot of the goals: a point for the ratio, a bar for its quartiles, a mark for the bound."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    comparisons = [
        (goal, comparison)
        for goal in goals.GOALS
        for comparison in goals.comparisons_of(goal, content)
        if comparison.wall
    ]
    if not comparisons:
        return None
    figure, axes = plt.subplots(figsize=(5, 0.8 + 0.2 * len(comparisons)))
    labels = []
    for y, (goal, comparison) in enumerate(comparisons):
        wall, color = comparison.wall, VERDICT_COLORS[comparison.verdict(goal.bound)]
        bar = [[max(wall.median - wall.low, 0)], [max(wall.high - wall.median, 0)]]
        axes.errorbar(wall.median, y, xerr=bar, fmt="o", color=color, ms=4, elinewidth=3)
        axes.plot([goal.bound] * 2, [y - 0.4, y + 0.4], color="black", lw=1)
        label = f"{goal.text} ({comparison.entry['part']}, {comparison.entry['name']}, {comparison.figure})"
        labels.append(label.replace("`", ""))
    axes.set_xscale("log")
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color="#d1d5db", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.set_xlabel("ratio to the peer: left of 1 needs less; the line is the bound")
    for verdict, color in VERDICT_COLORS.items():
        axes.plot([], [], "o", color=color, label=verdict)
    axes.legend(ncols=len(VERDICT_COLORS), loc="lower center", bbox_to_anchor=(0.0, 1.0), frameon=False)
    return figure
