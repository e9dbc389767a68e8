"""
Write the results of one machine to the documentation: `python -m benchmarks page FILE.json...`.

The page is `docs/benchmarks.md`, with its pictures and the samples as JSON. In README and in the home page,
the text between two comments is replaced. Without a file, the page has no results.
"""

from __future__ import annotations

import hashlib
import re
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

from . import goals, plots, results, rows
from .protocol import AGAIN, WHOLE, Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from .goals import Comparison

# The comments in README and in the home page.
BEGIN, END = "<!-- benchmarks -->\n", "\n<!-- /benchmarks -->"
HEAD = "<!-- Written by `python -m benchmarks page`. -->\n# Benchmarks"
NO_RESULTS = "No run has been made of this version; `python -m benchmarks` makes one."
# The contenders of the part "call" that the home page shows, by their names.
WAYS = {
    "LTO": "linked as LTO-IR",
    "PTX inlined": "linked as PTX, inlined by this package",
    "PTX": "linked as PTX by NVIDIA's linker",
}
METHOD = f"""\
## Method

The peers are numba-cuda and numba-cuda-mlir without this package, nvJitLink called directly, a process of
ptxas, the driver's compiler, and nvcc and NVRTC on one C++ source. **A ratio below 1 means that this package
needs less.**

Every sample is a process of its own, with caches of its own: those of this package, of the driver and of the
front ends are off, emptied before each process, or full of what the process before has left there. The
contenders take turns, in the other order every second turn, so that what slows the machine down slows all of
them down. The ratio is taken turn by turn; the tables have its median and quartiles, by the clock and by the
processor, and n, the number of processes of each contender. Depending on its part, a process links
three variants of each pair, compiles several kernels, or repeats each loop on the host; its figure is the
shortest time. An export runs in children that nobody waits for: their processor time and memory are not told.

The noise is measured the same way: one contender runs twice in each turn, and its two processes are compared.
A median within the noise is *equal*. A bound is *met* by the median, *missed* where three of four turns
exceed it, and *open* where the median alone does; with fewer than {goals.MIN_PROCESSES} processes it is
*not measured*. A goal is *held* if none of its comparisons has missed it.

## Run them

```console
$ pip install "numba-ptxlink[bench,mlir]"
$ python -m benchmarks --only start link  # in a checkout; other parts are added to the same file
$ python -m benchmarks --quick            # a minute, which only shows that all of it works
$ python -m benchmarks --only link --beside old/bin/python  # beside another version of this package
$ python -m benchmarks page FILE.json     # this page and its pictures
```

| part | measures |
| --- | --- |
"""


def write(content: Mapping[str, Any] | None, root: Path) -> None:
    """Write the page and its pictures, and the parts of README and the home page, below *root*."""
    docs = root / "docs"
    pictures = docs / "_static" / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    for old_file in (*pictures.glob("*.svg"), *pictures.glob("*.json")):
        old_file.unlink()
    parts = "\n".join(f"| `{part}` | {rows.PARTS[part][0]} |" for part in rows.PARTS)
    paragraphs = [*_results(content, pictures)] if content else [NO_RESULTS]
    page = "\n\n".join([HEAD, *paragraphs, METHOD + parts]) + "\n"
    (docs / "benchmarks.md").write_text(page, encoding="utf-8")
    for file, text in (
        (root / "README.md", _for_readme(content, pictures)),
        (docs / "index.md", _for_home(content)),
    ):
        before, rest = file.read_text(encoding="utf-8").split(BEGIN)
        file.write_text(f"{before}{BEGIN}{text}{rest[rest.index(END) :]}", encoding="utf-8")


def _results(content: Mapping[str, Any], pictures: Path) -> Iterator[str]:
    """Yield the paragraphs about *content*."""
    text = results.as_text(content)
    (pictures / "results.json").write_text(text, encoding="utf-8")
    titles = plots.draw(pictures, content)
    machine = content["machine"]
    dates = sorted(entry["date"] for entry in content["measures"].values())
    if "summary" in titles:
        yield f"![{titles['summary']}](_static/benchmarks/summary.svg)"
    yield (
        f"{machine_of(content)}: {results.in_words(machine)}. {results.in_words(content['versions'])}. "
        f"Commit {content['commit']}. Measured {dates[0]} to {dates[-1]} UTC. All samples are in [one file]"
        f"(_static/benchmarks/results.json), SHA-256 `{hashlib.sha256(text.encode()).hexdigest()}`."
    )
    yield f"## Goals\n\n{goal_table(content)}"
    yield from _causes(content)
    if "goals" in titles:
        yield f"![{titles['goals']}](_static/benchmarks/goals.svg)"
    yield "## Results"
    for part in rows.PARTS:
        if results_table := table(content, part):
            yield f"### {rows.PARTS[part][0]}\n\n{results_table}"
    yield f"## Noise\n\n{_noise(content)}"
    yield f"## Main memory\n\n{_memory(content)}"


def goal_table(content: Mapping[str, Any]) -> str:
    """Return a table of the goals with verdicts, and a table of all comparisons."""
    lines, goal_rows = [], []
    for goal in goals.GOALS:
        comparisons = goals.comparisons_of(goal, content)
        bound = f"{goal.bound:g}"
        if not comparisons:
            lines.append([goal.text, "", bound, "", "", "0", "not measured"])
        verdicts = [comparison.verdict(goal.bound) for comparison in comparisons]
        counts = Counter(verdicts)
        summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in goals.VERDICTS if counts[verdict])
        goal_rows.append([goal.text, bound, summary, goals.verdict_on_goal(verdicts)])
        lines += [
            [goal.text, _subject(comparison), bound, *_ratios(comparison), verdict]
            for comparison, verdict in zip(comparisons, verdicts, strict=True)
        ]
    header = ["goal", "measured", "at most", "ratio (quartiles)", "processor", "n", ""]
    return "\n\n".join(
        (_table(["goal", "at most", "comparisons", "verdict"], goal_rows), _table(header, lines))
    )


def _causes(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the known reasons why bounds are above `goals.EQUAL`, or missed."""
    causes = [
        f"- {goal.text}: {goal.cause}."
        for goal in goals.GOALS
        if goal.cause and goals.comparisons_of(goal, content)
    ]
    if causes:
        yield f"Why some bounds are above {goals.EQUAL}, or missed:\n\n" + "\n".join(causes)


def table(content: Mapping[str, Any], part: str) -> str:
    """Return a table of all comparisons of a part, "" without any."""
    lines = [
        [
            f"{comparison.entry['name']}: {comparison.figure}",
            comparison.contender,
            _median(comparison, comparison.contender),
            comparison.peer,
            _median(comparison, comparison.peer),
            *_ratios(comparison),
            comparison.outcome,
        ]
        for comparison in goals.comparisons_in(part, content)
    ]
    header = ["measured", "", "time", "beside", "time", "ratio (quartiles)", "processor", "n", ""]
    return _table(header, lines) if lines else ""


def _noise(content: Mapping[str, Any]) -> str:
    """Return a table of the ratios of two processes of one contender."""
    lines = [
        [entry["part"], f"{entry['name']}: {figure}", entry["again"], _spread(noise), str(noise.n)]
        for entry in content["measures"].values()
        for figure in entry["samples"].get(AGAIN, {})
        if entry["again"] and (noise := goals.noise(content, entry, figure))
    ]
    return _table(["part", "measured", "twice", "half of the ratios were", "n"], lines)


def _memory(content: Mapping[str, Any]) -> str:
    """Return a table of the main memory that contenders and peers have used at most."""
    lines = []
    for entry in content["measures"].values():
        for pair in entry["pairs"]:
            figures = [entry["samples"][name][WHOLE] for name in pair]
            if any("memory" not in figure for figure in figures):
                continue
            sizes = [statistics.median(figure["memory"]) for figure in figures]
            cells = (f"{name}: {size / 1e6:.0f} MB" for name, size in zip(pair, sizes, strict=True))
            lines.append([entry["part"], entry["name"], *cells, f"{sizes[0] / sizes[1]:.2f}"])
    return _table(["part", "measured", "", "beside", "ratio"], lines)


def _for_readme(content: Mapping[str, Any] | None, pictures: Path) -> str:
    """Return the sentence and the picture of README."""
    calls = plots.ratios_of_calls(content).get("LTO") if content else None
    if content is None or not calls or not (pictures / "summary.svg").exists():
        return "[Benchmarks](docs/benchmarks.md) has how it is measured beside NVIDIA's tools."
    ratio = f"{statistics.median(calls):.2f} times"
    spread = f"median of {len(calls)} programs, {min(calls):.2f} to {max(calls):.3g}"
    return (
        f"![{plots.SUMMARY_TITLE}](docs/_static/benchmarks/summary.svg)\n\n"
        f"On an {machine_of(content)} a call takes {ratio} as long as the same function in C++\n({spread}). "
        "[Benchmarks](docs/benchmarks.md) has the method, and the slower cases."
    )


def _for_home(content: Mapping[str, Any] | None) -> str:
    """Return the text of the home page about calls from C++."""
    calls = plots.ratios_of_calls(content) if content else {}
    if content is None or not calls:
        return "[Benchmarks](benchmarks.md) has how it is measured beside NVIDIA's tools."
    count = len(calls["LTO"])
    header = [
        f"called from a C++ kernel, on an {machine_of(content)}",
        f"time against the same function in C++: median of {count} programs, least, most",
    ]
    spans = [
        [title, f"{statistics.median(calls[way]):.2f} ({min(calls[way]):.2f} to {max(calls[way]):.3g})"]
        for way, title in WAYS.items()
    ]
    link = "[Benchmarks](benchmarks.md) has all measurements and the method."
    return f"{_table(header, spans)}\n\n{link}"


def machine_of(content: Mapping[str, Any]) -> str:
    """Return the name of the GPU; "machine without a GPU" if there is none."""
    return str(content["machine"].get("GPU", "machine without a GPU"))


def _subject(comparison: Comparison) -> str:
    """Return the names of the part, the measure and the figure of a comparison."""
    figure = "" if comparison.figure == WHOLE else f": {comparison.figure}"
    return f"{comparison.entry['part']}, {comparison.entry['name']}{figure}"


def _ratios(comparison: Comparison) -> list[str]:
    """Return the ratios by the clock and by the processor, and the number of samples."""
    wall, cpu = (_spread(spread) if spread else "" for spread in (comparison.wall, comparison.cpu))
    return [wall, cpu, str(comparison.n)]


def _spread(spread: Spread) -> str:
    """Return a ratio with its quartiles; small ones have more digits."""
    ratios = (spread.median, spread.low, spread.high)
    median, low, high = (f"{ratio:.{2 if ratio >= 0.095 else 4}f}" for ratio in ratios)
    return f"{median} ({low} to {high})" if spread.n > 1 else median


def _median(comparison: Comparison, name: str) -> str:
    """Return the median time of the contender *name* with its unit, such as "1.23 ms"."""
    seconds = statistics.median(comparison.entry["samples"][name][comparison.figure]["wall"])
    units = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))
    unit, factor = next(((unit, factor) for unit, factor in units if seconds * factor >= 1), ("ns", 1e9))
    time = seconds * factor
    return f"{time:.3g} {unit}" if time < 1000 else f"{time:.0f} {unit}"


def _table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(re.sub(r"\|", r"\\|", cell) for cell in line) + " |" for line in lines)
