"""`python -m benchmarks`: what its parts measure is read as figures and held against goals. CI runs it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
HEAD = {
    "machine": {"CPU": "Processor(R) 9 @ 3.0GHz", "cores": 2, "system": "Linux"},
    "versions": {"numba": "1"},
}


@pytest.fixture(scope="module")
def modules():
    """Return what imports a module of the benchmarks, without a checkout on the path."""
    package = sys.modules["benchmarks"] = ModuleType("benchmarks")
    package.__path__ = [str(BENCHMARKS)]
    yield lambda name: importlib.import_module(f"benchmarks.{name}")
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


def content_of(**parts):
    """Return the content of a file of results with the rows of *parts*."""
    entries = {
        name: {"date": "2026-01-01 00:00", "load": 0.5, "rows": rows, "left out": []}
        for name, rows in parts.items()
    }
    return {**HEAD, "quick": False, "parts": entries}


def pair_row(ratio, pair="1 function", samples=9):
    """Return a row of a link of two PTX that takes *ratio* times what nvJitLink takes."""
    cell = {"median": ratio, "low": 0.9 * ratio, "high": 1.1 * ratio, "samples": samples}
    return {
        "section": "pairs",
        "pair": pair,
        "nvJitLink ms": 10.0,
        "link() ms": 10 * ratio,
        "link()/nvJitLink": cell,
    }


@pytest.mark.parametrize(
    ("ratios", "answer"),
    [
        ((), "not measured"),
        ((0.5,), "**met**: 0.50 (0.45 to 0.55)"),
        ((1.5,), "**missed**: 1.50 (1.35 to 1.65)"),
        ((1.05,), "**within the spread**: 1.05 (0.95 to 1.16)"),
        ((0.5, 1.5), "**missed by 1 of 2**: 1.50 (1.35 to 1.65), the largest of 2: pairs, 1"),
    ],
)
def test_a_goal_is_held_against_the_largest_ratio(modules, ratios, answer):
    """A goal is met if every figure that it is about is; the largest is shown."""
    (goal,) = (goal for goal in modules("_goals").ALL if "nvJitLink" in goal.pattern)
    rows = [pair_row(ratio, str(number)) for number, ratio in enumerate(ratios)]
    assert answer == goal.answer(content_of(link=rows))


def test_each_pattern_is_of_a_part(modules):
    """Each goal names a part, and each part a benchmark that there is, but for one that may be missing."""
    parts = {part.name: part for part in modules("_parts").ALL}
    assert {name for goal in modules("_goals").ALL for name in goal.parts} <= parts.keys()
    assert {part.name for part in modules("_parts").present()} >= parts.keys() - {"export", "exports"}
