"""Results as pictures: the ratios beside 1, the calls from C++, and the time to the first kernel."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from . import _figures, _parts

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ._figures import Figure

LESS, MORE, EVEN = "#0a7d4f", "#c2410c", "#6b7280"
WAYS = {"nvcc": "#6b7280", "LTO": "#2563eb", "PTX inlined": "#0a7d4f", "PTX": "#c2410c"}
SUMMARY_WAYS = {"LTO": "as LTO-IR", "PTX inlined": "as PTX, inlined here", "PTX": "as PTX by nvJitLink"}
FIRST = {
    "with this package": ("start", "no link file, cache=True, caches warm, all: plugin/stock"),
    "load(), without Numba": ("load", ": load/numba cached"),
}
# Inches: the axis of ratios, and a line of it. The labels are left of it, at this multiple of its width.
WIDTH, HEIGHT, LABELS = 4.4, 0.215, 1.22
WHOLE = "not told apart"
STAGES = {
    "import": "#94a3b8",
    "context": "#cbd5e1",
    "front end": "#60a5fa",
    "NVVM": "#a78bfa",
    "link": "#f59e0b",
    "load": "#34d399",
    "rest": "#e5e7eb",
    WHOLE: "#64748b",
}
STYLE = {"font.size": 9, "font.family": "DejaVu Sans", "svg.fonttype": "none", "svg.hashsalt": "ptxlink"}


def draw(stem: Path, content: Mapping[str, Any]) -> dict[Path, str]:
    """
    Write the pictures of *content* as SVG; return what each shows, by its path.

    Args:
        stem: Their path, which a suffix follows.
        content: The results of one machine.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    pictures = {
        "summary": (_summary, "Calls from C++ beside one C++ source; the first kernel of a process"),
        "calls": (_calls, "Times of calls from C++ over those of one C++ source"),
        "first-kernel": (_first_kernel, "What the time to the first kernel consists of"),
        "ratios": (_ratios, "Ratios of times and memory, with the line at 1"),
    }
    drawn = {}
    with plt.rc_context(STYLE):
        for suffix, (plot, title) in pictures.items():
            figure = plot(content)
            if figure is not None:
                path = stem.with_name(f"{stem.name}-{suffix}.svg")
                figure.savefig(path, bbox_inches="tight", facecolor="white", metadata={"Date": None})
                plt.close(figure)
                drawn[path] = title
    return drawn


def _ratios(content: Mapping[str, Any]) -> Any:
    """Return a plot of the headlines: a point for each median, a bar for the quartiles, on a log axis."""
    import matplotlib.pyplot as plt

    lines: list[str | Figure] = []
    for title, figures in _headlines(content).items():
        lines += [title, *figures]
    if not lines:
        return None
    figure = plt.figure(figsize=(WIDTH, 0.9 + HEIGHT * len(lines)))
    axes = figure.add_axes((0, 0, 1, 1))
    for y, line in enumerate(lines):
        if isinstance(line, str):
            axes.text(-LABELS, y, line, weight="bold", va="center", transform=axes.get_yaxis_transform())
            continue
        color = EVEN if not line.certain else LESS if line.ratio < 1 else MORE
        _point(axes, line, y, color)
        text = {"va": "center", "transform": axes.get_yaxis_transform()}
        axes.text(-LABELS, y, f"   {line.subject}", **text)
        axes.text(-0.015, y, line.names, ha="right", color="#374151", **text)
        ratio = f"{line.ratio:.2f}" if line.ratio >= 0.095 else f"{line.ratio:.2g}"
        axes.text(1.02, y, ratio, weight="bold", color=color, **text)
        if y % 2:
            axes.axhspan(y - 0.5, y + 0.5, color="#f3f4f6", zorder=0, lw=0)
    for equal in _figures.of_part(content, "noise"):
        axes.axvspan(equal.low, equal.high, color="#9ca3af", alpha=0.35, lw=0, zorder=1)
    _ratio_axis(axes, len(lines))
    axes.set_xlabel("ratio to the peer, median and quartiles: left of 1 needs less")
    return figure


def _summary(content: Mapping[str, Any]) -> Any:
    """Return a plot of two figures: calls from C++ by the way they are linked, and first kernels."""
    import matplotlib.pyplot as plt

    calls = [each for each in _figures.of_part(content, "call") if each.peer == "one source"]
    ratios = {
        title: each.ratio
        for title, (part, label) in FIRST.items()
        for each in _figures.of_part(content, part)
        if each.label.endswith(label)
    }
    if not calls or not ratios:
        return None
    medians = {
        title: statistics.median(each.ratio for each in calls if each.contender == way)
        for way, title in SUMMARY_WAYS.items()
    }
    kernels = {"numba-cuda, cache=True": 1.0, **ratios}
    figure, both = plt.subplots(1, 2, figsize=(9.6, 1.75))
    titles = "time of a call from C++, one C++ source = 1", "time to a process's first kernel, numba-cuda = 1"
    for axes, title, bars in zip(both, titles, ({"one C++ source": 1.0, **medians}, kernels), strict=True):
        for y, ratio in enumerate(bars.values()):
            axes.barh(y, ratio, height=0.7, color=LESS if y and ratio < 1.05 else MORE if y else EVEN)
            axes.text(ratio, y, f" {ratio:.2f}", va="center", weight="bold")
        axes.set_yticks(range(len(bars)), bars)
        axes.invert_yaxis()
        axes.set_xticks([])
        axes.set_title(title, fontsize=9)
        axes.spines[["right", "top", "bottom"]].set_visible(False)
    figure.subplots_adjust(wspace=0.75)
    return figure


def _headlines(content: Mapping[str, Any]) -> dict[str, list[Figure]]:
    """Return the figures that the picture of ratios shows, by the title of their part."""
    shown = {
        part.title: [figure for figure in _figures.of_part(content, part.name) if part.shows(figure.label)]
        for part in _parts.ALL
    }
    return {title: found for title, found in shown.items() if found}


def _calls(content: Mapping[str, Any]) -> Any:
    """Return a plot of calls from C++: the times of each way to link, over those of one C++ source."""
    import matplotlib.pyplot as plt

    calls: dict[str, dict[str, Figure]] = {}
    for each in _figures.of_part(content, "call"):
        if each.contender in WAYS and each.peer == "one source":
            calls.setdefault(each.subject, {})[each.contender] = each
    if not calls:
        return None
    figure, axes = plt.subplots(figsize=(8, 1 + 0.42 * len(calls)))
    for y, (call, ways) in enumerate(calls.items()):
        text = {"va": "center", "transform": axes.get_yaxis_transform()}
        axes.text(-0.02, y, call, ha="right", **text)
        for offset, (way, color) in enumerate(WAYS.items()):
            if way in ways:
                _point(axes, ways[way], y + 0.18 * (offset - 1.5), color)
        if y % 2:
            axes.axhspan(y - 0.5, y + 0.5, color="#f3f4f6", zorder=0, lw=0)
    for way, color in WAYS.items():
        axes.plot([], [], "o", color=color, label=f"linked as {way}" if way != "nvcc" else "nvcc, one source")
    axes.legend(ncols=len(WAYS), loc="lower center", bbox_to_anchor=(0.4, 1.0), frameon=False)
    _ratio_axis(axes, len(calls))
    axes.set_xlabel("time over that of one C++ source, median and quartiles")
    return figure


def _point(axes: Any, figure: Figure, y: float, color: str) -> None:
    """Draw a ratio with its quartiles; it is hollow where there are too few samples for them."""
    bar = [[max(figure.ratio - figure.low, 0)], [max(figure.high - figure.ratio, 0)]]
    face = color if figure.samples >= 3 else "white"
    axes.errorbar(figure.ratio, y, xerr=bar, fmt="o", color=color, mfc=face, ms=5, elinewidth=3.5, zorder=3)


def _ratio_axis(axes: Any, lines: int) -> None:
    """Make the x axis one of ratios, with its line at 1, and the y axis one of *lines* lines."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    axes.axvline(1, color="black", lw=1.2, zorder=2)
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.5), max(high, 2))
    # The numbers of four decades would overlap.
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if low > 0.005 else (1, 3)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x", color="#d1d5db", lw=0.6, zorder=0)
    _plain(axes, lines)


def _plain(axes: Any, lines: int) -> None:
    """Leave of the frame of *axes* the line below."""
    axes.set_ylim(lines - 0.4, -0.8)
    axes.set_yticks([])
    axes.spines[["left", "right", "top"]].set_visible(False)


def _stages(content: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the milliseconds of each stage up to the first kernel, by what was launched and how."""
    bars: dict[tuple[str, str], dict[str, float]] = {}
    for part, stage_of, title in (
        ("start", lambda row: row.get("part", ""), "{kernel}, {caches} caches"),
        ("load", lambda row: WHOLE * ("kernel" in row), "without Numba, with the start of the interpreter"),
    ):
        for row in _figures.rows(content, part):
            if (stage := stage_of(row)) in STAGES:
                for key in row:
                    name, _, unit = key.rpartition(" ")
                    if unit == "ms":
                        bars.setdefault((title.format(**row), name), {})[stage] = row[key]
    return bars


def _first_kernel(content: Mapping[str, Any]) -> Any:
    """Return a plot of what the time to the first kernel consists of, a bar for each process."""
    import matplotlib.pyplot as plt

    bars = _stages(content)
    if not bars:
        return None
    groups = dict.fromkeys(group for group, _ in bars)
    lines: list[str | tuple[str, str]] = []
    for group in groups:
        lines += [group, *(process for process in bars if process[0] == group)]
    figure, axes = plt.subplots(figsize=(11, 1.2 + 0.27 * len(lines)))
    for y, line in enumerate(lines):
        text = {"va": "center", "transform": axes.get_yaxis_transform()}
        if isinstance(line, str):
            axes.text(-0.25, y, line, weight="bold", **text)
            continue
        left = 0.0
        for stage, color in STAGES.items():
            if stage not in bars[line]:
                continue
            width = bars[line][stage]
            axes.barh(y, width, left=left, height=0.78, color=color, label=stage, edgecolor="white", lw=0.5)
            left += width
        axes.text(left, y, f"  {left:.0f} ms", va="center", weight="bold")
        axes.text(-0.01, y, _figures.NAMES.get(line[1], line[1]), ha="right", **text)
    handles, labels = axes.get_legend_handles_labels()
    legend = dict(zip(labels, handles, strict=True))
    axes.legend(
        legend.values(),
        legend,
        ncols=len(legend),
        loc="lower center",
        bbox_to_anchor=(0.45, 1.0),
        frameon=False,
    )
    _plain(axes, len(lines))
    axes.set_xlabel("ms from the first import to the end of the first kernel; the median of each stage")
    axes.grid(axis="x", color="#d1d5db", lw=0.6)
    axes.set_axisbelow(True)
    return figure
