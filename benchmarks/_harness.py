"""
What the benchmarks share: arguments, timing in turns, and rows that are shown as soon as they are measured.

A benchmark is a table of sections, functions that take a `Bench`. Contenders take turns and their ratio is
taken turn by turn, so that a busy machine slows both. A row is in the file of --json before it is printed.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import signal
import statistics
import subprocess
import sys
import timeit
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Samples = dict[str, dict[str, list[float]]]
    Sections = Mapping[str, Callable[["Bench"], None]]

# After this many seconds --quick begins nothing; the rest of the minute is for what has begun.
QUICK_SECONDS = 40
STARTED = timeit.default_timer()


class LeftOutError(Exception):
    """A section cannot go on; the message says why."""


def spread(samples: list[float]) -> dict[str, float]:
    """Return the median, the quartiles and the number of *samples*."""
    low, median, high = statistics.quantiles(samples if samples[1:] else samples * 2, n=4, method="inclusive")
    return {"median": median, "low": low, "high": high, "samples": len(samples)}


def compare(samples: Mapping[str, Sequence[float]]) -> dict[str, object]:
    """Return the medians in milliseconds, and unless it is zero the ratios to the first, turn by turn."""
    base, *others = samples if all(next(iter(samples.values()))) else [*samples][:1]
    pairs = {name: zip(samples[name], samples[base], strict=True) for name in others}
    ratios = {f"{name}/{base}": spread([a / b for a, b in pairs[name]]) for name in others}
    return {**{f"{name} ms": 1e3 * statistics.median(samples[name]) for name in samples}, **ratios}


def timed(call: Callable[[], object]) -> dict[str, list[float]]:
    """Call *call*; return its seconds as the figure "time"."""
    return {"time": [timeit.timeit(call, number=1)]}


@functools.cache
def missing_device() -> str:
    """Return why there is no usable device, "" where there is one."""
    command = [sys.executable, "-c", "from cuda.core import Device; Device(0).set_current()"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    reason = done.stderr.strip().rpartition("Error: ")[2].partition(". ")[0]
    return f"no CUDA device: {reason}" if done.returncode else ""


class Bench:
    """The options of a run, and what it has measured so far."""

    def __init__(self, options: argparse.Namespace, about: Mapping[str, object]) -> None:
        self.options, self.section, self.header = options, "", [""]
        self.report: dict[str, Any] = {"about": about, "complete": False, "rows": [], "left out": []}

    def row(self, cells: Mapping[str, object]) -> None:
        """Write and print one row; a header goes before it where the columns change."""
        self.report["rows"].append({"section": self.section, **cells})
        self.write()
        if self.header != (header := [self.section, *cells]):
            self.header = header
            print("", *(_pad(key, key, cell) for key, cell in cells.items()), sep="  ")
        print("", *(_pad(key, _text(cell), cell) for key, cell in cells.items()), sep="  ", flush=True)

    def leave_out(self, subject: str, reason: str) -> None:
        """Say that *subject* is not measured, and why."""
        self.report["left out"].append({"section": self.section, "subject": subject, "reason": reason})
        self.write()
        print(f"  left out: {subject}: {reason}", flush=True)

    def out_of_time(self) -> bool:
        """Return whether --quick begins nothing any more."""
        return self.options.quick and timeit.default_timer() - STARTED > QUICK_SECONDS

    def in_turns(self, contenders: Mapping[str, Callable[[], Any]], turns: int, warmup: int = 0) -> Samples:
        """Call the contenders in turns; return their samples, less *warmup* turns, by figure and name."""
        samples: Samples = {}
        for turn in range(warmup + turns):
            if self.out_of_time():
                if turn > warmup:
                    break
                raise LeftOutError(f"--quick begins nothing after {QUICK_SECONDS} s")
            for name, contender in contenders.items():
                for figure, values in contender().items():
                    samples.setdefault(figure, {}).setdefault(name, []).extend(
                        values if turn >= warmup else ()
                    )
        return samples

    def write(self) -> None:
        """Replace the file of --json by one with all that was measured so far."""
        if path := self.options.json:
            partial = path.with_name(f".{path.name}.{os.getpid()}")
            partial.write_text(json.dumps(self.report, indent=2) + "\n")
            partial.replace(path)


def make_parser(doc: str, sections: Sections, repeats: tuple[int, int]) -> argparse.ArgumentParser:
    """Return a parser of the common arguments. A default may be a pair: without and with --quick."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    # Before Python 3.12 the empty list that stands for no argument has to be a choice, too.
    add("sections", nargs="*", choices=[*sections, []], metavar="SECTION", help=", ".join(sections))
    add("--quick", action="store_true", help="end within a minute; takes the second of two defaults")
    add("--repeats", type=int, default=repeats, help="turns of each measurement, %(default)s")
    add("--json", type=Path, metavar="FILE", help="write the rows there, too, each when it is known")
    return parser


def run(parser: argparse.ArgumentParser, sections: Sections, **about: Any) -> Bench:
    """Run the sections that the arguments name. SIGINT and SIGTERM end the process with 130 and 143."""
    options = parser.parse_args()
    vars(options).update({k: v[options.quick] for k, v in vars(options).items() if isinstance(v, tuple)})
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    about |= {"python": sys.version.partition(" ")[0], "cores": len(os.sched_getaffinity(0))}
    print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    bench = Bench(options, about)
    for bench.section in options.sections or sections:
        print(f"\n{bench.section}", flush=True)
        try:
            sections[bench.section](bench)
        except LeftOutError as reason:
            bench.leave_out("what follows", str(reason))
    bench.report["complete"] = True
    bench.write()
    return bench


def _text(cell: Any) -> str:
    if isinstance(cell, dict):
        return "{} ({} to {}, n={})".format(*map(_text, cell.values()))
    return f"{cell:.{3 if abs(cell) < 10 else 1}f}" if isinstance(cell, float) else str(cell)


def _pad(key: str, text: str, cell: object) -> str:
    width = max(len(key), 30 if isinstance(cell, dict) else 9)
    return f"{text:28}" if isinstance(cell, str) else f"{text:>{width}}"
