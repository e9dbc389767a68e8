"""
Writes what the documentation shows of results: `python -m benchmarks page FILE.json...`.

That is `docs/benchmarks.md` with its pictures, and the table of the home page between two comments.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from . import _figures, _goals, _parts, _plots, _results

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PAGE = _results.HERE.parent / "docs" / "benchmarks.md"
HOME = PAGE.with_name("index.md")
PICTURES = PAGE.with_name("_static") / "benchmarks"
BEGIN, END = "<!-- calls -->\n", "\n<!-- /calls -->"
WAYS = {
    "LTO": "linked as LTO-IR",
    "PTX inlined": "linked as PTX, inlined by this package",
    "PTX": "linked as PTX by NVIDIA's linker",
}
HEAD = """\
<!-- Written by `python -m benchmarks page`. -->
# Benchmarks
"""
METHOD = """\
## Method

The peers are numba-cuda and numba-cuda-mlir without this package, nvJitLink called directly, a process
of ptxas, the driver's compiler, and nvcc on one C++ source. A ratio is this package's time (or memory)
over the peer's: **below 1 it needs less**. Contenders take turns in one run, in the other order every
second turn; the ratio is taken turn by turn, and the table shows the median with its quartiles.
Contenders that are equal take turns too: their ratio is the noise of the machine. Where caches matter
each state is a process of its own. A goal is met if no median is above its bound; *within the spread*
means that one is, and its lower quartile is not.
"""
REPEAT = """\
## Run them

```console
$ pip install "numba-ptxlink[bench,mlir]"
$ python -m benchmarks                     # in a checkout; nine minutes
$ python -m benchmarks --only start link   # some parts; they are added to the same file
$ python -m benchmarks --only exports      # a thousand functions, for which those minutes do not suffice
$ python -m benchmarks --quick             # two minutes, also without a GPU
$ python -m benchmarks page FILE.json      # this page and its pictures
```

Each row is printed, and written as JSON, when it is measured. A part has its share of the time and ends
its turns when that is over, so that a run of fewer parts, or with more `--minutes`, has more samples.

| part | measures |
| --- | --- |
"""


def write(contents: Sequence[Mapping[str, Any]]) -> None:
    """Write the page, its pictures and the table of the home page from the results of some machines."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for old in PICTURES.glob("*.svg"):
        old.unlink()
    machines = [*_machines(contents)]
    pictures = machines[0] if machines else []
    listed = "\n".join(
        f"| `{part.name}` | {part.title}{'; where it is named' * part.alone} |" for part in _parts.ALL
    )
    page = [HEAD.rstrip(), *pictures, "## Goals", goals(contents), *causes(contents), METHOD.rstrip()]
    page += [text for others in machines[1:] for text in others]
    PAGE.write_text("\n\n".join([*page, REPEAT + listed]) + "\n", encoding="utf-8")
    HOME.write_text(home(HOME.read_text(encoding="utf-8"), contents), encoding="utf-8")


def goals(contents: Sequence[Mapping[str, Any]]) -> str:
    """Return a table with a line for each goal and a column for each machine."""
    lines = [
        [goal.text, f"{goal.most:g}", *(goal.answer(content) for content in contents)] for goal in _goals.ALL
    ]
    return _table(["goal", "at most", *map(_short_name, contents)], lines)


def causes(contents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield why goals are missed, as far as that is known."""
    missed = [
        f"- {goal.text}: {goal.because}."
        for goal in _goals.ALL
        if goal.because and any("missed" in goal.answer(content) for content in contents)
    ]
    if missed:
        yield "Why some are missed:"
        yield "\n".join(missed)


def home(text: str, contents: Sequence[Mapping[str, Any]]) -> str:
    """Return *text*, the home page, with the calls from C++ of the first results that have them."""
    for content in contents:
        figures = [each for each in _figures.of_part(content, "call") if each.peer == "one source"]
        if not figures:
            continue
        ratios = {way: [each.ratio for each in figures if each.contender == way] for way in WAYS}
        programs = f"median of {len(ratios['LTO'])} programs, least, most"
        header = [
            f"called from a C++ kernel, on an {content['machine']['GPU']}",
            f"time against the same function in C++: {programs}",
        ]
        table = _table(header, [[title, _span(ratios[way])] for way, title in WAYS.items()])
        before, rest = text.split(BEGIN)
        return f"{before}{BEGIN}{table}{rest[rest.index(END) :]}"
    return text


def _machines(contents: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Yield what the page has of each machine: its name, its versions and its pictures."""
    for content in contents:
        machine = content["machine"]
        stem = PICTURES / _results.name(machine, quick=content["quick"])
        cuda = f" Driver {machine['driver']}, CUDA {machine[_CUDA]}." if "driver" in machine else ""
        versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
        dates = sorted(part["date"] for part in content["parts"].values())
        measured = f"Measured {dates[0]} to {dates[-1]} UTC.{_noise(content)}"
        yield [
            f"## {_short_name(content)}",
            *(f"![{title}]({_link(path)})" for path, title in _plots.draw(stem, content).items()),
            f"{machine['CPU']}, {machine['cores']} cores.{cuda} {versions}. {measured}",
        ]


_CUDA = "driver's CUDA"


def _noise(content: Mapping[str, Any]) -> str:
    found = _figures.of_part(content, "noise")
    spans = " and ".join(f"{figure.low:.2f} to {figure.high:.2f} ({figure.what})" for figure in found)
    return f" Between equal contenders half of the ratios were {spans}." if found else ""


def _short_name(content: Mapping[str, Any]) -> str:
    machine = content["machine"]
    return machine.get("GPU") or f"No GPU, {machine['cores']} cores"


def _link(path: Path) -> str:
    return path.relative_to(PAGE.parent).as_posix()


def _span(ratios: list[float]) -> str:
    shown = (statistics.median(ratios), min(ratios), max(ratios))
    return "{} ({} to {})".format(*(f"{ratio:.{0 if ratio >= 10 else 2}f}" for ratio in shown))


def _table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
