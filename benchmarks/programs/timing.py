"""Measure the time of calls, and print the figures, for all programs."""

from __future__ import annotations

import json
import os
import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # Seconds by the clock, and by the processor.
    Seconds = tuple[float, float]


def now() -> Seconds:
    """Return the seconds by the clock and by this process's processor."""
    return time.perf_counter(), time.process_time()


def since(start: Seconds) -> Seconds:
    """Return the seconds since *start*, which `now` returned."""
    return time.perf_counter() - start[0], time.process_time() - start[1]


def since_start() -> Seconds:
    """Return the seconds since this process was started, the start of the interpreter included."""
    return since((float(os.environ["BENCHMARK_BEGUN"]), 0.0))


def time_call(call: Callable[[], object]) -> Seconds:
    """Return the seconds that *call* takes."""
    start = now()
    call()
    return since(start)


def median(samples: Sequence[Seconds]) -> Seconds:
    """Return the median of the seconds by the clock, and of those by the processor."""
    walls, cpus = zip(*samples, strict=True)
    return statistics.median(walls), statistics.median(cpus)


def shortest(samples: Sequence[Seconds]) -> Seconds:
    """
    Return the fewest seconds by the clock, and the fewest by the processor.

    Other processes can only slow down a sample, so the shortest of a few varies less than their median.
    """
    walls, cpus = zip(*samples, strict=True)
    return min(walls), min(cpus)


def print_figures(figures: dict[str, Seconds]) -> None:
    """Print *figures* as JSON, for the process that runs the program."""
    print(json.dumps(figures), flush=True)
