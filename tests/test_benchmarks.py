"""The benchmarks: they show and keep each row when it is measured, and --quick measures all of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
# The scripts import what they share from their own directory.
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}

# A benchmark whose second section does not end.
SLEEPER = f"""
import sys, time
sys.path.insert(0, {str(BENCHMARKS)!r})
import _harness

def first(bench):
    samples = bench.in_turns({{"a": lambda: {{"time": [2.0]}}, "b": lambda: {{"time": [3.0]}}}}, 2, warmup=1)
    bench.row({{"label": "x", **_harness.compare(samples["time"])}})
    bench.row(_harness.compare({{"none": [0.0], "b": [3.0]}}))

def second(bench):
    print("waiting", flush=True)
    # Python sees a signal that comes just before a sleep when that is over.
    for _ in range(6000):
        time.sleep(0.1)

def third(bench):
    raise _harness.LeftOutError("no third")

sections = {{"first": first, "second": second, "third": third}}
_harness.run(_harness.make_parser("", sections, (5, 2)), sections)
"""
ROWS = [
    {
        "section": "first",
        "label": "x",
        "a ms": 2000.0,
        "b ms": 3000.0,
        "b/a": {"median": 1.5, "low": 1.5, "high": 1.5, "samples": 2},
    },
    {"section": "first", "none ms": 0.0, "b ms": 3000.0},
]


def start(*command: str) -> subprocess.Popen[str]:
    """Start Python with *command*, which may run as long as it likes."""
    return subprocess.Popen(
        [sys.executable, *command],
        env=ENVIRON,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(process: subprocess.Popen[str], text: str) -> list[str]:
    """Return the lines of *process* up to the one that holds *text*."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    pytest.fail("".join(lines))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_interrupted_benchmark_keeps_its_rows(tmp_path, number, status):
    """What was measured before a signal is printed and in the file, which says that it is not complete."""
    file = tmp_path / "rows.json"
    with start("-c", SLEEPER, "--json", str(file)) as process:
        lines = read_until(process, "waiting")
        process.send_signal(number)
        rest = process.communicate()[0]
    assert status == process.returncode
    assert "Traceback" not in rest
    assert [line.split() for line in lines if "1.500" in line] == [
        ["x", "2000.0", "3000.0", "1.500", "(1.500", "to", "1.500,", "n=2)"]
    ]
    report = json.loads(file.read_text())
    assert ROWS == report["rows"]
    assert report["complete"] is False
    assert [file] == list(tmp_path.iterdir())


def test_sections_are_chosen_and_left_out_with_a_reason(tmp_path):
    """Only the named sections run, and one that cannot says why without failing the others."""
    file = tmp_path / "rows.json"
    with start("-c", SLEEPER, "third", "first", "--quick", "--json", str(file)) as process:
        output = process.communicate()[0]
    assert process.returncode == 0, output
    report = json.loads(file.read_text())
    assert report["complete"] is True
    assert ROWS == report["rows"]
    assert [{"section": "third", "subject": "what follows", "reason": "no third"}] == report["left out"]
    assert "left out: what follows: no third" in output


def test_an_unknown_section_is_refused():
    """A section that does not exist ends the benchmark before it measures anything."""
    with start("-c", SLEEPER, "fourth") as process:
        output = process.communicate()[0]
    assert process.returncode == 2
    assert "invalid choice: 'fourth'" in output


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("memory", "noise"),
        # All of them are in the quick run that is a step of CI.
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("activation", "assemble", "cache", "link", "load", "ptx", "udf_call")
        ),
    ],
)
def test_quick_prints_rows_as_it_goes(tmp_path, name):
    """With --quick a benchmark exits 0; its first row is out while it still runs, and all are in the file."""
    file = tmp_path / "rows.json"
    with start(str(BENCHMARKS / f"{name}.py"), "--quick", "--json", str(file)) as process:
        # A table's header and its first row come together.
        unit = {"udf_call": " bytes", "memory": " MB"}.get(name, " ms")
        lines = [*read_until(process, unit), next(process.stdout)]
        running = process.poll() is None
        lines += process.communicate()[0].splitlines(keepends=True)
    assert process.returncode == 0, "".join(lines)
    assert running
    report = json.loads(file.read_text())
    assert report["complete"] is True
    assert report["rows"]
    cells = [str(value) for row in report["rows"] for value in row.values() if isinstance(value, str)]
    assert all(cell in "".join(lines) for cell in cells)
