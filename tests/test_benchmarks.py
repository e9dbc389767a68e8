"""The benchmarks: they show and keep each row when it is measured, and --quick measures all of them."""

from __future__ import annotations

import json
import os
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
