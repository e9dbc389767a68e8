"""
What the benchmarks share: arguments, timing in turns, and rows that are shown as soon as they are measured.

A benchmark is a table of sections, functions that take a `Bench`. Contenders take turns, in the other order
every second time, and their ratio is taken turn by turn, so that a busy machine slows both. Where the time is
limited, what is left of it is shared among the measurements to come, and each ends its turns when its share
is over. A row is in the file of --json before it is printed: words and whole numbers say what was measured,
"NAME ms" and "NAME MB" are medians, and "NAME/OTHER" is the median ratio with its quartiles.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import timeit
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    Samples = dict[str, dict[str, list[float]]]
    Sections = Mapping[str, Callable[["Bench"], None]]

# After this many seconds --quick begins nothing; the rest of the minute is for what has begun.
QUICK_SECONDS = 40.0
SECONDS = (math.inf, QUICK_SECONDS)
STARTED = timeit.default_timer()


class LeftOutError(Exception):
    """A section cannot go on; the message says why."""


def spread(samples: list[float]) -> dict[str, float]:
    """Return the median, the quartiles and the number of *samples*."""
    low, median, high = statistics.quantiles(samples if samples[1:] else samples * 2, n=4, method="inclusive")
    return {"median": median, "low": low, "high": high, "samples": len(samples)}


def compare(
    samples: Mapping[str, Sequence[float]], ours: str = "", unit: str = "ms", scale: float = 1e3
) -> dict[str, object]:
    """
    Return the medians, times *scale*, and ratios taken turn by turn.

    The ratios are those of the others to the first or, with *ours*, of that one to the others. None is taken
    to what is zero.
    """
    names = [*samples]
    pairs = [(ours, name) for name in names if name != ours] if ours else [(n, names[0]) for n in names[1:]]
    ratios = {
        f"{name}/{base}": spread([a / b for a, b in zip(samples[name], samples[base], strict=True)])
        for name, base in pairs
        if all(samples[base])
    }
    return {**{f"{name} {unit}": scale * statistics.median(samples[name]) for name in names}, **ratios}


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
        self.end = self.until = STARTED + options.seconds
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

    def each(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield *items*; what is measured of each has its share of the time that is left."""
        items, end = [*items], self.until
        for index, item in enumerate(items):
            now = timeit.default_timer()
            self.until = now + max(0.0, end - now) / (len(items) - index)
            yield item
        self.until = end

    def out_of_time(self) -> bool:
        """Return whether what is measured now has had its share of the time."""
        return timeit.default_timer() > self.until

    def in_turns(self, contenders: Mapping[str, Callable[[], Any]], turns: int, warmup: int = 0) -> Samples:
        """Call the contenders in turns; return their samples, less *warmup* turns, by figure and name."""
        samples: Samples = {}
        for turn in range(warmup + turns):
            begun = timeit.default_timer()
            if begun > self.end:
                raise LeftOutError(f"nothing begins after {self.options.seconds:.0f} s")
            for name in [*contenders][:: -1 if turn % 2 else 1]:
                for figure, values in contenders[name]().items():
                    samples.setdefault(figure, {other: [] for other in contenders})[name].extend(
                        values if turn >= warmup else ()
                    )
            # Another turn would take as long as this one.
            now = timeit.default_timer()
            if turn >= warmup and now + (now - begun) > self.until:
                break
        return {f: {n: v for n, v in by_name.items() if v} for f, by_name in samples.items()}

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
    add("--repeats", type=int, default=repeats, help="turns of each measurement at most, %(default)s")
    add("--seconds", type=float, default=SECONDS, help="begin nothing after this time, %(default)s")
    add("--json", type=Path, metavar="FILE", help="write the rows there, too, each when it is known")
    return parser


def run(
    parser: argparse.ArgumentParser, sections: Sections, argv: Sequence[str] | None = None, **about: Any
) -> Bench:
    """Run the sections that the arguments name. SIGINT and SIGTERM end the process with 130 and 143."""
    options = parser.parse_args(argv)
    vars(options).update({k: v[options.quick] for k, v in vars(options).items() if isinstance(v, tuple)})
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    about |= {"python": sys.version.partition(" ")[0], "cores": len(os.sched_getaffinity(0))}
    print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    bench = Bench(options, about)
    for section in bench.each(options.sections or sections):
        bench.section = section
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
