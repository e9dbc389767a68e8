"""Benchmarks alternate, empty caches, judge and write their page, here with processes that do nothing."""

import hashlib
import importlib
import json
import math
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# The process prints whether a process before it has filled the caches, and appends its name to a list.
PROGRAM = """
import json, os, pathlib
mark = pathlib.Path(os.environ["NUMBA_CACHE_DIR"])
found = mark.exists()
mark.mkdir(exist_ok=True)
open(os.environ.get("TURNS", os.devnull), "a").write(os.environ.get("NAME", ""))
print(json.dumps({"found": [float(found), 0]}))
"""


@pytest.fixture
def benchmarks(monkeypatch):
    """Return a function that imports a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


def results_of(ratio, noise, n=10):
    """Return results of one measure of links, in which *ratio* and *noise* are those of every turn."""
    quantities = {
        name: {"wall": [1e-3 * factor] * n, "cpu": [1e-3] * n, "memory": [1e6] * n}
        for name, factor in {"nvJitLink": 1.0, "link()": ratio, "the same again": noise}.items()
    }
    entry = {
        "part": "link",
        "name": "two inputs, caches off",
        "pairs": [["link()", "nvJitLink"]],
        "again": "nvJitLink",
        "noise": "",
        "date": "2026-01-02 03:04",
        "load": 0.0,
        "samples": {
            name: {"the whole process": samples, "10 functions": samples}
            for name, samples in quantities.items()
        },
    }
    head = {"machine": {"CPU": "fast", "cores": 2}, "versions": {"Python": "3.12.0"}, "commit": "abc"}
    return {**head, "measures": {"link: two inputs, caches off": entry}}


def test_contenders_take_turns(benchmarks, tmp_path):
    """Each turn runs one process of every contender, in the other order than the turn before."""
    protocol = benchmarks("protocol")
    turns = tmp_path / "turns"
    contenders = [
        protocol.Contender(name, ("-S", "-c", PROGRAM), environ={"TURNS": str(turns), "NAME": name})
        for name in "abc"
    ]
    kept_samples = {}
    measure = protocol.Measure("part", "name", tuple(contenders))
    failed = protocol.run(
        [measure], 2, end=math.inf, warm=True, keep=lambda _, samples: kept_samples.update(samples)
    )
    assert {} == failed
    assert "cba" + "abc" + "cba" == turns.read_text()
    assert [*"abc"] == sorted(kept_samples)


def test_caches_are_in_the_state_that_was_asked_for(benchmarks):
    """Empty caches are emptied before each process; full ones are those of a process that did not count."""
    protocol = benchmarks("protocol")
    contenders = [protocol.Contender(state, ("-S", "-c", PROGRAM), state) for state in ("empty", "full")]
    kept_samples = {}
    measure = protocol.Measure("part", "name", tuple(contenders))
    protocol.run([measure], 2, end=math.inf, warm=False, keep=lambda _, samples: kept_samples.update(samples))
    times = {name: figures["found"]["wall"] for name, figures in kept_samples.items()}
    assert {"empty": [0.0, 0.0], "full": [1.0, 1.0]} == times


def test_a_process_that_fails_has_no_figures(benchmarks):
    """The measure is left out with the last line that the process wrote, and the others go on."""
    protocol = benchmarks("protocol")
    programs = {"good": PROGRAM, "bad": "import sys; sys.exit('no such tool')"}
    measures = [
        protocol.Measure("part", name, (protocol.Contender(name, ("-S", "-c", program)),))
        for name, program in programs.items()
    ]
    kept_names = []
    failed = protocol.run(
        measures, 1, end=math.inf, warm=False, keep=lambda measure, _: kept_names.append(measure.name)
    )
    assert {"part: bad": "bad ended with 1: no such tool"} == failed
    assert ["good"] == kept_names


@pytest.mark.parametrize(
    ("measured", "most", "verdict"),
    [
        ((0.9, 1.01, 10), 1.02, "met"),
        ((1.02, 1.01, 10), 1.02, "met"),
        ((1.03, 1.01, 10), 1.02, "missed"),
        ((1.03, 1.05, 10), 1.02, "equal"),
        ((1.03, 0.95, 10), 1.02, "equal"),
        ((0.99, 1.05, 10), 1.02, "equal"),
        ((0.99, 1.05, 10), 0.7, "missed"),
        ((0.5, 1.01, 9), 1.02, "not measured"),
        ((1.5, 1.01, 9), 1.02, "not measured"),
    ],
)
def test_a_goal_has_a_verdict(benchmarks, measured, most, verdict):
    """Within the noise, either way, it is equal; with fewer than ten processes it is not measured."""
    goals = benchmarks("goals")
    (_, comparison) = goals.comparisons_in("link", results_of(*measured))
    assert verdict == comparison.verdict(most)


def test_what_a_part_of_the_turns_exceeds_is_open(benchmarks):
    """If only the median is above the bound, the comparison is undecided, and the goal is held."""
    goals = benchmarks("goals")
    content = results_of(1.03, 1.01)
    samples = content["measures"]["link: two inputs, caches off"]["samples"]["link()"]
    for figure in samples.values():
        figure["wall"] = [1e-3] * 4 + [1.1e-3] * 6
    (_, comparison) = goals.comparisons_in("link", content)
    assert ("open", "missed") == (comparison.verdict(1.02), goals.verdict_on_goal(["open", "missed"]))
    assert "held" == goals.verdict_on_goal(["open", "met"])
    assert "not measured" == goals.verdict_on_goal(["not measured"])


def test_the_page_shows_what_is_slower_in_the_same_table(benchmarks, tmp_path):
    """The page, README and the home page are written from one file, whose digest the page has."""
    pytest.importorskip("matplotlib", reason="matplotlib draws the pictures")
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "docs/index.md"):
        (tmp_path / name).write_text("before\n<!-- benchmarks -->\nold\n<!-- /benchmarks -->\nafter\n")
    file = tmp_path / "results.json"
    file.write_text(json.dumps(results_of(1.5, 1.01)))
    assert 0 == benchmarks("__main__").main(["page", str(file), "--root", str(tmp_path)])
    page = (tmp_path / "docs/benchmarks.md").read_text()
    cells = "| 1.15 | 1.50 (1.50 to 1.50) | 1.00 (1.00 to 1.00) | 10 | missed |"
    assert f"| `link()` beside nvJitLink | link, two inputs, caches off: 10 functions {cells}" in page
    raw = (tmp_path / "docs/_static/benchmarks/results.json").read_bytes()
    assert hashlib.sha256(raw).hexdigest() in page
    assert "old" not in (tmp_path / "README.md").read_text()
