"""A file of results as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _figures, _goals, _parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TITLES = {part.name: part.title for part in _parts.ALL}


def report(stem: str, content: Mapping[str, Any]) -> str:
    """Return the page of one machine, whose files are called *stem*."""
    parts = [f"# {machine(content)}", *about(content), *plots(stem, content)]
    parts += ["## Goals", goals({"measured": content}), *tables(content, "##")]
    return "\n\n".join(parts) + "\n"


def plots(stem: str, content: Mapping[str, Any]) -> Iterator[str]:
    """Yield the images of the results whose files are called *stem*."""
    if headlines(content):
        yield f"![Ratios of times and memory, with the line at 1]({stem}.svg)"
    if rows(content, "start"):
        yield f"![What the time to the first kernel consists of]({stem}-first-kernel.svg)"
    if figures(content, "call"):
        yield f"![Times of calls from C++ over those of one C++ source]({stem}-calls.svg)"


def machine(content: Mapping[str, Any]) -> str:
    """Return the machine's name."""
    described = content["machine"]
    return f"{described.get('GPU', 'No GPU')}, {described['CPU']}, {described['cores']} cores"


def about(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield paragraphs on what was measured on."""
    described = content["machine"]
    if "driver" in described:
        cuda = described["driver's CUDA"]
        yield f"Driver {described['driver']}, CUDA {cuda}; {described['system']}."
    else:
        yield f"{described['system']}. Nothing was loaded or launched: figures with a device are left out."
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in content["versions"].items()) + "."
    if content["quick"]:
        yield "A quick run: few samples, which show that the benchmarks work, and orders of magnitude."
    yield from builds(content)
    loads = [part["load"] for part in content["parts"].values()]
    dates = sorted(part["date"] for part in content["parts"].values())
    yield (
        f"Measured {dates[0]} to {dates[-1]} UTC. Before the parts began, {min(loads):.1f} to "
        f"{max(loads):.1f} programs were running besides. {noise(content)}".rstrip()
    )


def builds(content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence where the parts are of several builds of this package."""
    parts: dict[str, list[str]] = {}
    for name, part in content["parts"].items():
        parts.setdefault(part.get("build") or "unknown", []).append(name)
    if parts.keys() - {"unknown"} and len(parts) > 1:
        listed = "; ".join(f"{build}: {', '.join(names)}" for build, names in parts.items())
        yield f"The parts are of several builds of numba-ptxlink: {listed}."


def noise(content: Mapping[str, Any]) -> str:
    """Return how far equal contenders were apart."""
    found = figures(content, "noise")
    if not found:
        return ""
    spans = " and ".join(f"{figure.low:.2f} to {figure.high:.2f} ({figure.what})" for figure in found)
    return f"Between equal contenders half of the ratios were {spans}."


def goals(contents: Mapping[str, Mapping[str, Any]]) -> str:
    """
    Return a table with each goal and what was measured, a column for each of *contents* by its title.

    Below it stands why, where one is missed.
    """
    lines = [
        [goal.text, f"{goal.most:g}", *(goal.answer(content) for content in contents.values())]
        for goal in _goals.ALL
    ]
    causes = [
        f"- {goal.text}: {goal.because}."
        for goal in _goals.ALL
        if goal.because and any(goal.missed(content) for content in contents.values())
    ]
    below = ["Why some are missed:", "\n".join(causes)] if causes else []
    return "\n\n".join([table(["goal", "at most", *contents], lines), *below])


def tables(content: Mapping[str, Any], heading: str) -> Iterator[str]:
    """Yield headings, tables, and what was left out, part by part."""
    for name, part in content["parts"].items():
        yield f"{heading} {TITLES.get(name, name)}"
        if lines := [*_ratio_rows(part["rows"])]:
            yield table(["", "this", "", "peer", "", "ratio", "quartiles", "n"], lines)
        if lines := [*_value_rows(part["rows"])]:
            yield table(["", "medians"], lines)
        left_out = [
            f"{each['section']}: {each['subject']}: {each['reason']}".removeprefix(": ")
            for each in part["left out"]
        ]
        if left_out:
            yield "Left out: " + "; ".join(dict.fromkeys(left_out)) + "."


def table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def show(value: float | None, unit: str) -> str:
    """Return *value* with three digits."""
    if value is None:
        return ""
    digits = sum(abs(value) < bound for bound in (100, 10, 1))
    return f"{value:.{digits}f} {unit}"


def figures(content: Mapping[str, Any], part: str) -> list[_figures.Figure]:
    """Return the figures of *part*."""
    return _figures.figures(rows(content, part))


def headlines(content: Mapping[str, Any]) -> dict[str, list[_figures.Figure]]:
    """Return the figures that the plot shows, by the title of their part."""
    shown = {
        part.title: [figure for figure in figures(content, part.name) if part.shows(figure.label)]
        for part in _parts.ALL
    }
    return {title: found for title, found in shown.items() if found}


def rows(content: Mapping[str, Any], part: str) -> list[dict[str, Any]]:
    """Return the rows of *part*, none if it was not run."""
    found: list[dict[str, Any]] = content["parts"].get(part, {}).get("rows", [])
    return found


def _ratio_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for figure in _figures.figures(rows):
        digits = 2 if figure.ratio >= 0.095 else 4
        yield [
            figure.what,
            _figures.NAMES.get(figure.contender, figure.contender),
            show(figure.value, figure.unit),
            _figures.NAMES.get(figure.peer, figure.peer),
            show(figure.peer_value, figure.unit),
            f"{figure.ratio:.{digits}f}",
            f"{figure.low:.{digits}f} to {figure.high:.{digits}f}" if figure.samples >= 3 else "",
            str(figure.samples),
        ]


def _value_rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for what, medians in _figures.values(rows):
        cells = []
        for key, value in medians.items():
            name, _, unit = key.rpartition(" ")
            cells.append(
                f"{_figures.NAMES.get(name, name)} {show(value, unit) if unit != 'bytes' else value}"
            )
        yield [what, ", ".join(cells)]
