"""
Writes what the documentation shows of the committed results: `python -m benchmarks page`.

That is `docs/benchmarks.md`, and the table of the home page between two comments.
"""

from __future__ import annotations

import json
import os
import statistics
from typing import Any

from . import _parts, _report, _results

PAGE = _results.HERE.parent / "docs" / "benchmarks.md"
HOME = PAGE.with_name("index.md")
BEGIN, END = "<!-- calls -->\n", "\n<!-- /calls -->"
WAYS = {
    "LTO": "linked as LTO-IR",
    "PTX inlined": "linked as PTX, inlined by this package",
    "PTX": "linked as PTX by NVIDIA's linker",
}
HEAD = """\
<!-- Written by `python -m benchmarks page`. -->
# Benchmarks

What this package costs and saves, beside numba-cuda and numba-cuda-mlir on their own, nvJitLink called
directly, a process of ptxas, the driver's compiler, and nvcc on one C++ source. Every figure on this page is
read from files of results that a run of the benchmarks wrote.

A ratio is this package's time (or memory) over the peer's: **below 1 it needs less**. Contenders take turns
in one run, in the other order every second time; the ratio is taken turn by turn, and what is shown is the
median with its quartiles. Equal contenders take turns, too, as the measure of the machine's noise. Where
caches matter each state is a process of its own: *off*, *cold* or *empty*, and *warm* or *full*; that is the
driver's cache and this package's. The number n counts samples: a process that compiles seven kernels gives
seven of them. Points without three samples are hollow and have no quartiles. A goal is met if no median is
above its bound; *within the spread* says that one is, and its lower quartile is not.
"""
REPEAT = """\
## Repeating it

```console
$ pip install "numba-ptxlink[bench,mlir]"
$ python -m benchmarks                     # in a checkout; nine minutes
$ python -m benchmarks --only start link   # some parts; they are added to the same file
$ python -m benchmarks --only exports      # a thousand functions, for which those minutes do not suffice
$ python -m benchmarks --quick             # two minutes, also without a GPU
$ python -m benchmarks plot FILE.json      # Markdown, SVG and PNG out of the results
```

Each part has its share of the time and ends its turns when that is over: a run of fewer parts, or with more
`--minutes`, has more samples. A run that is interrupted keeps what it has measured, and a part that measures
nothing leaves what an earlier run has. The first parts are those with the figures that are promised.

| part | measures |
| --- | --- |
"""


def read() -> dict[str, dict[str, Any]]:
    """Return the committed results by the names of their files, those with a device first."""
    contents = {
        file.stem: json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(_results.FOLDER.glob("*.json"))
    }
    return dict(sorted(contents.items(), key=lambda item: "GPU" not in item[1]["machine"]))


def home(text: str) -> str:
    """Return *text*, the home page, with the calls from C++ of the first results that have them."""
    for content in read().values():
        figures = [each for each in _report.figures(content, "call") if each.peer == "one source"]
        if not figures:
            continue
        ratios = {way: [each.ratio for each in figures if each.contender == way] for way in WAYS}
        programs = f"median of {len(ratios['LTO'])} programs, least, most"
        header = [
            f"called from a C++ kernel, on an {content['machine']['GPU']}",
            f"time against the same function in C++: {programs}",
        ]
        table = _report.table(header, [[title, _span(ratios[way])] for way, title in WAYS.items()])
        before, rest = text.split(BEGIN)
        return f"{before}{BEGIN}{table}{rest[rest.index(END) :]}"
    return text


def _span(ratios: list[float]) -> str:
    shown = (statistics.median(ratios), min(ratios), max(ratios))
    return "{} ({} to {})".format(*(f"{ratio:.{0 if ratio >= 10 else 2}f}" for ratio in shown))


def page() -> str:
    """Return the text of the page about benchmarks."""
    ordered = read()
    titles = {
        content["machine"].get("GPU", f"no GPU, {content['machine']['cores']} cores"): content
        for content in ordered.values()
    }
    parts = [HEAD.rstrip(), "## Goals", _report.goals(titles)]
    folder = os.path.relpath(_results.FOLDER, PAGE.parent)
    for stem, content in ordered.items():
        parts += [f"## {_report.machine(content)}", *_report.about(content)]
        parts += _report.plots(f"{folder}/{stem}", content)
        parts += _report.tables(content, "###")
    listed = "\n".join(
        f"| `{part.name}` | {part.title}{'; where it is named' * part.alone} |" for part in _parts.ALL
    )
    return "\n\n".join([*parts, REPEAT + listed]) + "\n"
