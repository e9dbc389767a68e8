"""`python -m benchmarks`: what its parts measure is kept, read as figures, held against goals, and drawn."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import signal
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
from test_benchmarks import BENCHMARKS, ENVIRON, ROWS, SLEEPER, read_until

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


def bench_of(harness, **options):
    """Return a Bench without a file."""
    defaults = {"seconds": math.inf, "json": None, "quick": False}
    return harness.Bench(argparse.Namespace(**{**defaults, **options}), {})


def test_contenders_begin_every_second_turn_in_the_other_order(modules):
    """Nobody is always the first of a turn, and the samples of a turn are compared with each other."""
    called = []

    def contender(name):
        called.append(name)
        return {"time": [len(called)]}

    bench = bench_of(modules("_harness"))
    samples = bench.in_turns({name: lambda name=name: contender(name) for name in "abc"}, 2, warmup=1)
    assert "abccbaabc" == "".join(called)
    assert {"time": {"a": [6, 7], "b": [5, 8], "c": [4, 9]}} == samples


def test_each_measurement_has_its_share_of_the_time(modules, monkeypatch):
    """One that could go on for ever leaves time to the next, and each has a turn while any may begin."""
    harness, clock = modules("_harness"), [0.0]
    monkeypatch.setattr(harness, "timeit", SimpleNamespace(default_timer=lambda: clock[0]))
    bench = bench_of(harness)
    bench.end = bench.until = 10.0

    def turn():
        clock[0] += 1
        return {"time": [clock[0]]}

    counts = [len(bench.in_turns({"x": turn}, 1000)["time"]["x"]) for _ in bench.each("ab")]
    assert [5, 5] == counts
    clock[0] = 9.5
    assert {"time": {"x": [10.5]}} == bench.in_turns({"x": turn}, 1000)
    with pytest.raises(harness.LeftOutError, match="nothing begins after"):
        bench.in_turns({"x": turn}, 1000)


def test_ratios_are_of_the_contender_that_is_named(modules):
    """compare() takes ratios to the first, or of one to the others, and none to zero."""
    compare = modules("_harness").compare
    times = {"a": [1.0, 2.0], "b": [2.0, 4.0], "c": [4.0, 8.0]}
    assert [2.0, 4.0] == [compare(times)[key]["median"] for key in ("b/a", "c/a")]
    compared = compare(times, ours="b", unit="MB", scale=10)
    assert [2.0, 0.5] == [compared[key]["median"] for key in ("b/a", "b/c")]
    assert 15.0 == compared["a MB"]
    assert "b/a" not in compare({"a": [0.0], "b": [1.0]})


def test_rows_are_read_as_figures(modules):
    """A figure has the ratio with its quartiles; more samples replace fewer."""
    read = modules("_figures")
    figures = read.figures([*ROWS, pair_row(2.0, samples=1), pair_row(0.5)])
    assert ["first, x: b/a", "pairs, 1 function: link()/nvJitLink"] == [figure.label for figure in figures]
    assert [(1.5, 1.5, 1.5, 2), (0.5, 0.45, 0.55, 9)] == [
        (figure.ratio, figure.low, pytest.approx(figure.high), figure.samples) for figure in figures
    ]
    # Two samples have no quartiles.
    assert [False, True] == [figure.certain for figure in figures]


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


def test_results_of_one_machine_and_the_same_versions_come_together(modules, tmp_path, capsys):
    """A run of other parts adds to the file; one with other versions begins anew, and says so."""
    results = modules("_results")
    file = tmp_path / f"{results.name(HEAD['machine'], quick=True)}.json"
    assert "no-gpu-processor-9-2-cores-quick.json" == file.name
    results.Results(file, HEAD, quick=True).put("a", rows=[1])
    results.Results(file, HEAD, quick=True).put("b", rows=[2])
    assert {"a": {"rows": [1]}, "b": {"rows": [2]}} == json.loads(file.read_text())["parts"]
    results.Results(file, {**HEAD, "versions": {"numba": "2"}}, quick=True).put("c", rows=[3])
    assert {"c": {"rows": [3]}} == json.loads(file.read_text())["parts"]
    assert "is of another machine or of other versions" in capsys.readouterr().out
    assert [file] == list(tmp_path.iterdir())


def test_a_part_that_measured_nothing_leaves_what_is_there(modules, tmp_path):
    """A run whose time is over before a part has a row keeps the rows of an earlier run."""
    results = modules("_results").Results(tmp_path / "machine.json", HEAD, quick=False)
    assert results.put("a", rows=[])
    assert results.put("a", rows=[1])
    assert not results.put("a", rows=[])
    assert [1] == json.loads(results.file.read_text())["parts"]["a"]["rows"]


def test_a_long_part_runs_where_it_is_named(modules):
    """A run of all parts leaves out those that take as long as all the others; --only has them, too."""
    parts = modules("_parts")
    every = [part.name for part in parts.chosen([])]
    assert {part.name for part in parts.ALL if part.alone} == {part.name for part in parts.ALL} - {*every}
    assert ["call", "exports"] == [part.name for part in parts.chosen(["exports", "call"])]
    # What a run does not reach should not be what is promised.
    promised = {name for goal in modules("_goals").ALL for name in goal.parts}
    last = max(every.index(name) for name in promised if name in every)
    assert {*every[: last + 1]} <= promised | {"noise"}


@pytest.mark.parametrize(
    ("ending", "reason"),
    [("time.sleep(0.1)", "its time was over after"), ("sys.exit('no')", "it failed with 1")],
)
def test_a_part_that_does_not_end_well_keeps_its_rows(modules, tmp_path, monkeypatch, ending, reason):
    """A part that is late is ended, one that fails ends itself; what it has measured is kept, with why."""
    main, late = modules("__main__"), ending in SLEEPER
    monkeypatch.setattr(modules("_parts"), "HERE", tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    (tmp_path / "sleeper.py").write_text(SLEEPER.replace("time.sleep(0.1)", ending))
    part = modules("_parts").Part("sleeper", "Sleep", "sleeper", (1, 1))
    results = modules("_results").Results(tmp_path / "results.json", HEAD, quick=True)

    def clock():
        """Pass the time limit when there are rows."""
        return 1000.0 * (late and results.file.exists() and "none ms" in results.file.read_text())

    monkeypatch.setattr(main, "time", SimpleNamespace(monotonic=clock))
    assert int(not late) == main.measure(part, results, 60.0, 90.0, quick=True)
    entry = json.loads(results.file.read_text())["parts"]["sleeper"]
    assert ROWS == entry["rows"]
    assert reason in entry["left out"][-1]["reason"]


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


@pytest.mark.slow
def test_a_run_that_is_stopped_keeps_what_it_has(tmp_path):
    """SIGTERM ends a run with 143; the rows so far are in the JSON, with the reason."""
    command = [sys.executable, "-m", "benchmarks", "--only", "noise", "cache", "--out", str(tmp_path)]
    process = subprocess.Popen(
        command, env=ENVIRON, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    with process:
        read_until(process, "growth")
        process.send_signal(signal.SIGTERM)
        rest = process.communicate()[0]
    assert 143 == process.returncode, rest
    assert "Traceback" not in rest
    (file,) = tmp_path.glob("*.json")
    parts = json.loads(file.read_text())["parts"]
    assert ["noise", "cache"] == [*parts]
    assert parts["cache"]["rows"]
    assert "it was stopped" in parts["cache"]["left out"][-1]["reason"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


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
