"""`python -m benchmarks`: what its parts measure is kept, read as figures, held against goals, and drawn."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from types import ModuleType

import pytest
from test_benchmarks import BENCHMARKS, ENVIRON

ROOT = BENCHMARKS.parent
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


@pytest.mark.slow
def test_the_page_shows_results(modules, tmp_path, monkeypatch):
    """The page has each goal, the pictures, and why a goal is missed; the home page the calls."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    page = modules("_page")
    content = content_of(link=[pair_row(0.5), pair_row(1.5, "2 functions"), pair_row(0.9, "3", samples=1)])
    start = {"section": "start", "kernel": "no link file", "caches": "warm"}
    rows = [{**start, "part": part, "stock ms": 10.0, "plugin ms": 5.0} for part in ("import", "link")]
    content["parts"]["start"] = {**content["parts"]["link"], "rows": rows}
    monkeypatch.setattr(page, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(page, "HOME", tmp_path / "index.md")
    monkeypatch.setattr(page, "PICTURES", tmp_path / "pictures")
    page.HOME.write_text(f"# Home\n\n{page.BEGIN}{page.END}\n")
    page.write([content])
    text = page.PAGE.read_text()
    assert "| **missed by 1 of 3**: 1.50 (1.35 to 1.65), the largest of 3: pairs, 2 functions |" in text
    assert "Why some are missed:\n\n- `link()` links two PTX" in text
    assert ["first-kernel", "ratios"] == sorted(
        path.stem.partition("cores-")[2] for path in page.PICTURES.iterdir()
    )
    assert all(f"pictures/{path.name}" in text for path in page.PICTURES.iterdir())


# CI runs it as a step of its own.
@pytest.mark.slow
@pytest.mark.long
def test_a_quick_run_ends_in_time(tmp_path):
    """A quick run exits 0, has rows of most parts, and prints the goals, whatever the machine."""
    command = [sys.executable, "-m", "benchmarks", "--quick", "--out", str(tmp_path)]
    done = subprocess.run(
        command, env=ENVIRON, cwd=ROOT, capture_output=True, text=True, check=False, timeout=180
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    (file,) = tmp_path.glob("*.json")
    parts = json.loads(file.read_text())["parts"]
    assert {"noise", "activation", "assemble", "link"} <= {
        name for name, part in parts.items() if part["rows"]
    }
    assert "| goal | at most |" in done.stdout
