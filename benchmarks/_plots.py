"""A file of results as plots: the ratios beside 1, and what the time to the first kernel consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _figures, _report

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ._figures import Figure

LESS, MORE, EVEN = "#0a7d4f", "#c2410c", "#6b7280"
WAYS = {"nvcc": "#6b7280", "LTO": "#2563eb", "PTX inlined": "#0a7d4f", "PTX": "#c2410c"}
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
STYLE = {"font.size": 9, "font.family": "DejaVu Sans", "svg.fonttype": "path", "svg.hashsalt": "ptxlink"}


def draw(file: Path, content: Mapping[str, Any]) -> None:
    """
    Write the plots of *content* beside *file*, as SVG and PNG.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plots = {"": _ratios, "-first-kernel": _first_kernel, "-calls": _calls}
    with plt.rc_context(STYLE):
        for suffix, plot in plots.items():
            drawn = plot(content)
            if drawn is None:
                continue
            for kind, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 144})):
                path = file.with_name(f"{file.stem}{suffix}.{kind}")
                drawn.savefig(path, bbox_inches="tight", facecolor="white", **options)
            plt.close(drawn)


def _ratios(content: Mapping[str, Any]) -> Any:
    """Return a plot of the headlines: a point for each median, a bar for the quartiles, on a log axis."""
    import matplotlib.pyplot as plt

    lines: list[str | Figure] = []
    for title, figures in _report.headlines(content).items():
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
    for equal in _report.figures(content, "noise"):
        axes.axvspan(equal.low, equal.high, color="#9ca3af", alpha=0.35, lw=0, zorder=1)
    _ratio_axis(axes, len(lines))
    axes.set_xlabel("ratio to the peer, median and quartiles: left of 1 needs less")
    axes.set_title(_report.machine(content), weight="bold", x=0.5 - LABELS / 2)
    return figure


def _calls(content: Mapping[str, Any]) -> Any:
    """Return a plot of calls from C++: the times of each way to link, over those of one C++ source."""
    import matplotlib.pyplot as plt

    calls: dict[str, dict[str, Figure]] = {}
    for each in _report.figures(content, "call"):
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
        for row in _report.rows(content, part):
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
