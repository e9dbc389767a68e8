"""
How far two equal contenders are apart on this machine: ratios nearer to 1 than that say nothing.

process: the start of an interpreter. call: assembling a kernel of 8 kB in this process, with every cache off.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import TYPE_CHECKING

# Read when the package is imported.
os.environ["NUMBA_PTXLINK_CACHE"] = "0"

import _compilers
import _harness

from numba_ptxlink import assemble

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def process(bench: _harness.Bench) -> None:
    """Measure two equal starts of an interpreter."""
    measure("start of Python", lambda: subprocess.run([sys.executable, "-I", "-c", ""], check=True), bench)


def call(bench: _harness.Bench) -> None:
    """Measure two equal calls."""
    ptx = _compilers.generate_ptx(8_000)
    measure("assemble", lambda: assemble(ptx, "sm_90"), bench)


def measure(name: str, contender: Callable[[], object], bench: _harness.Bench) -> None:
    """Measure a contender beside itself."""
    timed = functools.partial(_harness.timed, contender)
    times = bench.in_turns({"first": timed, "second": timed}, bench.options.repeats, warmup=1)["time"]
    bench.row({"equal": name, **_harness.compare(times)})


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    sections = {"process": process, "call": call}
    parser = _harness.make_parser(__doc__, sections, repeats=(50, 10))
    _harness.run(parser, sections, argv)


if __name__ == "__main__":
    main()
