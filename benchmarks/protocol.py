"""
Run the processes of all contenders in turns, and collect their figures.

A contender is the command of a process, its environment and the state of its caches. A measure is a group of
contenders that do the same work. Each turn runs one process of every contender of every measure, in the
reverse order every second time, so that a slow phase of the machine slows all contenders. Each contender has
a folder of its own, with the caches of this package, of the driver, and of the front ends.

A program prints its figures as JSON on the last line: for each name, the seconds by the clock and by the
processor. This module adds the figures of the whole process, with its largest memory size.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

PROGRAMS = Path(__file__).resolve().parent / "programs"
# The name of the figure of a whole process, and of the contender that repeats another one.
WHOLE = "the whole process"
AGAIN = "the same again"
# The variable with the time at which a process was started, by `time.perf_counter`.
START_VARIABLE = "BENCHMARK_BEGUN"
TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Contender:
    """
    A command that runs once a turn.

    Args:
        name: The name in the results.
        command: The arguments of the interpreter.
        caches: "off": no cache is used; "empty": caches are emptied before each process; "full": caches have
            the results of an earlier process, which does not count.
        environ: Additional environment variables.
        prepare: Arguments of the interpreter for a command that runs once before the first turn, in the
            contender's folder; empty for none.
        uses_package: Whether the command uses this package.
        detached: Whether the command starts processes and does not wait for them. Their processor time and
            memory cannot be measured.
        python: The interpreter.
    """

    name: str
    command: tuple[str, ...]
    caches: Literal["off", "empty", "full"] = "off"
    environ: Mapping[str, str] = field(default_factory=dict)
    prepare: tuple[str, ...] = ()
    uses_package: bool = False
    detached: bool = False
    python: str = sys.executable


@dataclass(frozen=True)
class Measure:
    """
    Contenders that do the same work.

    Args:
        part: The name of its part, an argument of `--only`.
        name: The name of the measured work.
        contenders: The contenders.
        pairs: Pairs of the names of a contender and its peer; if empty, the first contender is the peer of
            all others.
        again: The contender that runs twice in each turn, so that its two processes differ only by the noise;
            "" for none.
        noise: The name of the measure of this part that measures the noise; "" for this measure.
        skip_reason: The reason why this machine cannot measure it; "" if it can.
    """

    part: str
    name: str
    contenders: tuple[Contender, ...]
    pairs: tuple[tuple[str, str], ...] = ()
    again: str = ""
    noise: str = ""
    skip_reason: str = ""

    @property
    def key(self) -> str:
        """The part and the name."""
        return f"{self.part}: {self.name}"

    @property
    def compared_pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of the names of a contender and its peer."""
        peer, *compared = self.contenders
        return self.pairs or tuple((contender.name, peer.name) for contender in compared)

    @property
    def processes(self) -> list[Contender]:
        """The contenders that run in a turn: all, and one of them again."""
        repeated = [
            dataclasses.replace(contender, name=AGAIN)
            for contender in self.contenders
            if contender.name == self.again
        ]
        return [*self.contenders, *repeated]


@dataclass(frozen=True)
class Spread:
    """The median and the quartiles of ratios, and the number of ratios: one for each turn."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Spread:
        """Return the spread of *ratios*."""
        # `quantiles` needs two values.
        at_least_two = ratios if len(ratios) > 1 else [*ratios, *ratios]
        low, median, high = statistics.quantiles(at_least_two, n=4, method="inclusive")
        return cls(median, low, high, len(ratios))


class FailedError(Exception):
    """A process failed. The message has the contender's name and the last line that the process wrote."""


def compare_with(measures: Sequence[Measure], python: str) -> list[Measure]:
    """Return measures that compare this package with the version that the interpreter *python* imports."""
    comparisons = []
    for measure in measures:
        new_contenders = [contender for contender in measure.contenders if contender.uses_package]
        old_contenders = [
            dataclasses.replace(contender, name=f"{contender.name}, before", python=python)
            for contender in new_contenders
        ]
        pairs = tuple((new.name, old.name) for new, old in zip(new_contenders, old_contenders, strict=True))
        if pairs:
            again = measure.again and old_contenders[0].name
            comparisons.append(
                dataclasses.replace(
                    measure, contenders=(*old_contenders, *new_contenders), pairs=pairs, again=again
                )
            )
    return comparisons


def run(
    measures: Sequence[Measure],
    turns: int,
    *,
    end: float,
    warm: bool,
    keep: Callable[[Measure, Any], None],
) -> dict[str, str]:
    """
    Run *turns* turns of *measures*, after one that does not count; return the reason for each failed measure.

    Args:
        measures: The measures.
        turns: The number of processes of each contender that count.
        end: The time, by `time.monotonic`, after which no turn should end.
        warm: Whether all contenders run in the turn that does not count, or only those with full caches.
        keep: Called with a measure and all of its samples after each turn.
    """
    failure_reasons: dict[str, str] = {}
    samples: dict[str, Any] = {measure.key: {} for measure in measures}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        longest_turn = 0.0
        for turn in range(-1, turns):
            start_time = time.monotonic()
            if start_time + longest_turn > end:
                print(f"  the time is over after {max(turn, 0)} turns", flush=True)
                break
            for number, measure in enumerate(measures):
                if measure.key in failure_reasons:
                    continue
                is_counted = turn >= 0
                contenders = [
                    (contender, Path(scratch, f"{number}.{index}"))
                    for index, contender in enumerate(measure.processes)
                    if is_counted or warm or contender.caches == "full"
                ]
                try:
                    # Every second turn is in the reverse order.
                    new_samples = {
                        contender.name: sample(contender, folder)
                        for contender, folder in (contenders[::-1] if turn % 2 else contenders)
                    }
                except FailedError as error:
                    failure_reasons[measure.key] = str(error)
                    print(f"  {measure.key}: {error}", flush=True)
                    continue
                if is_counted:
                    _append(samples[measure.key], new_samples)
                    keep(measure, samples[measure.key])
            duration = time.monotonic() - start_time
            longest_turn = max(longest_turn, duration)
            print(f"  turn {turn + 1} of {turns}: {duration:.0f} s", flush=True)
    return failure_reasons


def _append(samples: dict[str, Any], new_samples: Mapping[str, Any]) -> None:
    """Append each value of *new_samples* to its list in *samples*: by contender, figure and quantity."""
    for contender, figures in new_samples.items():
        for figure, quantities in figures.items():
            values_by_quantity = samples.setdefault(contender, {}).setdefault(figure, {})
            for quantity, value in quantities.items():
                values_by_quantity.setdefault(quantity, []).append(float(f"{value:.6g}"))


def sample(contender: Contender, folder: Path) -> dict[str, dict[str, float]]:
    """Run one process of *contender* in its folder; return its figures."""
    caches = folder / "caches"
    is_first = not folder.exists()
    if contender.caches == "empty":
        shutil.rmtree(caches, ignore_errors=True)
    caches.mkdir(parents=True, exist_ok=True)
    environ = environment(contender, folder, caches)
    if is_first and contender.prepare:
        _process([contender.python, *contender.prepare], folder, environ, contender.name)
    figures = _process([contender.python, *contender.command], folder, environ, contender.name)
    if contender.detached:
        figures[WHOLE] = {"wall": figures[WHOLE]["wall"]}
    return figures


def environment(contender: Contender, folder: Path, caches: Path) -> dict[str, str]:
    """Return the environment of a process of *contender*, in a folder with *caches*."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
    # Let Python compile packages to bytecode once, as users do.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    is_off = contender.caches == "off"
    return {
        **inherited,
        "NUMBA_PTXLINK_CACHE": "0" if is_off else str(caches / "ptxlink"),
        "CUDA_CACHE_DISABLE": str(int(is_off)),
        "CUDA_CACHE_PATH": str(caches / "driver"),
        "NUMBA_CACHE_DIR": str(caches / "numba"),
        "XDG_CACHE_HOME": str(caches / "others"),
        # Every process of numba-cuda-mlir needs these files, whatever it compiles: they are outside of
        # *caches*, and stay when those are emptied.
        "NUMBA_CUDA_MLIR_CACHE_DIR": str(folder / "numba-cuda-mlir"),
        **contender.environ,
    }


def _process(
    command: Sequence[str], folder: Path, environ: Mapping[str, str], name: str
) -> dict[str, dict[str, float]]:
    """Run *command* in *folder*; return the figures that it prints, and those of the process."""
    with tempfile.TemporaryFile() as errors:
        start_time = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environ, START_VARIABLE: repr(start_time)},
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        with process, _kill_on_timeout(process):
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            printed = process.stdout.read().decode()
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - start_time
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            last_line = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise FailedError(f"{name} ended with {process.returncode}: {last_line}")
    # The kernel counts memory in KiB.
    whole = {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "memory": 1024.0 * usage.ru_maxrss}
    lines = printed.splitlines()
    figures = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    own_figures = {figure: {"wall": seconds[0], "cpu": seconds[1]} for figure, seconds in figures.items()}
    return {**own_figures, WHOLE: whole}


@contextlib.contextmanager
def _kill_on_timeout(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill *process* and its children if it takes too long, or if this process is interrupted."""

    def kill(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    old_handler = signal.signal(signal.SIGALRM, kill)
    signal.alarm(TIMEOUT_SECONDS)
    try:
        yield
    except BaseException:
        kill()
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old_handler)


def ratio(
    entry: Mapping[str, Any], figure: str, contender: str, peer: str, quantity: str = "wall"
) -> Spread | None:
    """Return the ratios of *contender* to *peer* in the results of a measure; None if there are none."""
    numerators, denominators = (
        entry["samples"].get(name, {}).get(figure, {}).get(quantity, []) for name in (contender, peer)
    )
    # If only one of the two has this figure or quantity, the other list is empty, and so is `ratios`. For
    # example, a detached contender has no processor time.
    ratios = [
        numerator / denominator
        for numerator, denominator in zip(numerators, denominators, strict=False)
        if denominator
    ]
    return Spread.of(ratios) if ratios else None
