"""
How everything is measured: fresh processes, in alternation.

A contender is the command of a process, its environment and the state of its caches. A measure is contenders
that do the same. Each turn runs one process of every contender of every measure, in the other order every
second time, so that what slows the machine down for a while slows all of them down. A contender has a folder
of its own, with its caches: those of this package, of the driver, and of the front ends.

A program prints its figures as JSON on its last line: a name, and the seconds by the clock and by the
processor. Those of the whole process are added here, with the most memory that it had.
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
WHOLE = "the whole process"
AGAIN = "the same again"
# The time at which a process was started, by the clock that it reads itself.
BEGUN = "BENCHMARK_BEGUN"
TIMEOUT = 300


@dataclass(frozen=True)
class Contender:
    """
    What is run once a turn.

    Args:
        name: What the results call it.
        command: What follows the interpreter.
        caches: off: none is used; empty: emptied before each process; full: of the process before, the first
            of which is not counted.
        environ: What its environment has besides.
        prepare: A command that follows the interpreter and runs once, in the contender's folder.
        ours: Whether it uses this package.
        detached: Whether it starts processes that it does not wait for, so that nobody can tell the processor
            time and the memory of all of them.
        python: The interpreter.
    """

    name: str
    command: tuple[str, ...]
    caches: Literal["off", "empty", "full"] = "off"
    environ: Mapping[str, str] = field(default_factory=dict)
    prepare: tuple[str, ...] = ()
    ours: bool = False
    detached: bool = False
    python: str = sys.executable


@dataclass(frozen=True)
class Measure:
    """
    Contenders that do the same.

    Args:
        part: What `--only` calls it, with others.
        name: What is measured.
        contenders: The first is the peer of the others, unless *pairs* says otherwise.
        pairs: A contender and its peer each.
        again: The contender of which two processes run in each turn: they are equal, and differ by the noise.
        noise: The measure of the same part whose noise stands for that of this one, if not its own.
        missing: Why it cannot be measured here.
    """

    part: str
    name: str
    contenders: tuple[Contender, ...]
    pairs: tuple[tuple[str, str], ...] = ()
    again: str = ""
    noise: str = ""
    missing: str = ""

    @property
    def key(self) -> str:
        """Its part and its name."""
        return f"{self.part}: {self.name}"

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        """Each contender with its peer."""
        return self.pairs or tuple((other.name, self.contenders[0].name) for other in self.contenders[1:])

    @property
    def processes(self) -> list[Contender]:
        """What runs in a turn."""
        again = [dataclasses.replace(each, name=AGAIN) for each in self.contenders if each.name == self.again]
        return [*self.contenders, *again]


@dataclass(frozen=True)
class Spread:
    """The median of ratios that were taken turn by turn, their quartiles, and how many there were."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, ratios: Sequence[float]) -> Spread:
        """Return that of *ratios*."""
        several = ratios if len(ratios) > 1 else [*ratios, *ratios]
        low, median, high = statistics.quantiles(several, n=4, method="inclusive")
        return cls(median, low, high, len(ratios))


class FailedError(Exception):
    """A process failed; the message says which, and the last line that it wrote."""


def beside(measures: Sequence[Measure], python: str) -> list[Measure]:
    """Return *measures* of this package beside the one that the interpreter *python* finds."""
    both = []
    for measure in measures:
        after = [contender for contender in measure.contenders if contender.ours]
        before = [
            dataclasses.replace(contender, name=f"{contender.name}, before", python=python)
            for contender in after
        ]
        pairs = tuple((new.name, old.name) for new, old in zip(after, before, strict=True))
        if pairs:
            again = measure.again and before[0].name
            both.append(dataclasses.replace(measure, contenders=(*before, *after), pairs=pairs, again=again))
    return both


def run(
    measures: Sequence[Measure],
    turns: int,
    *,
    end: float,
    warm: bool,
    keep: Callable[[Measure, Any], None],
) -> dict[str, str]:
    """
    Run *turns* turns of *measures* and one before that does not count; return what failed, and why.

    Args:
        measures: What is measured.
        turns: How many processes of each contender count.
        end: No turn begins that is not likely to have ended at this time of `time.monotonic`.
        warm: Whether every contender runs in the first turn, and not only those with full caches.
        keep: Is given each measure and all of its samples whenever a turn of it has ended.
    """
    failed: dict[str, str] = {}
    samples: dict[str, Any] = {measure.key: {} for measure in measures}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        longest = 0.0
        for turn in range(-1, turns):
            begun = time.monotonic()
            if begun + longest > end:
                print(f"  the time is over after {max(turn, 0)} turns", flush=True)
                break
            for number, measure in enumerate(measures):
                if measure.key in failed:
                    continue
                counted = turn >= 0
                chosen = [
                    (each, Path(scratch, f"{number}.{index}"))
                    for index, each in enumerate(measure.processes)
                    if counted or warm or each.caches == "full"
                ]
                try:
                    taken = {each.name: sample(each, place) for each, place in chosen[:: 1 - 2 * (turn % 2)]}
                except FailedError as error:
                    failed[measure.key] = str(error)
                    print(f"  {measure.key}: {error}", flush=True)
                    continue
                if counted:
                    _append(samples[measure.key], taken)
                    keep(measure, samples[measure.key])
            took = time.monotonic() - begun
            longest = max(longest, took)
            print(f"  turn {turn + 1} of {turns}: {took:.0f} s", flush=True)
    return failed


def _append(samples: dict[str, Any], taken: Mapping[str, Any]) -> None:
    for contender, figures in taken.items():
        for figure, quantities in figures.items():
            lists = samples.setdefault(contender, {}).setdefault(figure, {})
            for quantity, value in quantities.items():
                lists.setdefault(quantity, []).append(float(f"{value:.6g}"))


def sample(contender: Contender, place: Path) -> dict[str, dict[str, float]]:
    """Run one process of *contender* in its folder *place*; return its figures."""
    caches = place / "caches"
    new = not place.exists()
    if contender.caches == "empty":
        shutil.rmtree(caches, ignore_errors=True)
    caches.mkdir(parents=True, exist_ok=True)
    environ = environment(contender, place, caches)
    if new and contender.prepare:
        _process([contender.python, *contender.prepare], place, environ, contender.name)
    figures = _process([contender.python, *contender.command], place, environ, contender.name)
    if contender.detached:
        figures[WHOLE] = {"wall": figures[WHOLE]["wall"]}
    return figures


def environment(contender: Contender, place: Path, caches: Path) -> dict[str, str]:
    """Return the environment of a process of *contender*, whose folders these are."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
    # Packages are compiled to bytecode once, as they are where people install them.
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    off = contender.caches == "off"
    return {
        **own,
        "NUMBA_PTXLINK_CACHE": "0" if off else str(caches / "ptxlink"),
        "CUDA_CACHE_DISABLE": str(int(off)),
        "CUDA_CACHE_PATH": str(caches / "driver"),
        "NUMBA_CACHE_DIR": str(caches / "numba"),
        "XDG_CACHE_HOME": str(caches / "others"),
        # numba-cuda-mlir keeps there what every process needs, whatever it compiles.
        "NUMBA_CUDA_MLIR_CACHE_DIR": str(place / "numba-cuda-mlir"),
        **contender.environ,
    }


def _process(
    command: Sequence[str], place: Path, environ: Mapping[str, str], name: str
) -> dict[str, dict[str, float]]:
    """Run *command* in *place*; return the figures that it prints, and those of the process."""
    with tempfile.TemporaryFile() as errors:
        begun = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=place,
            env={**environ, BEGUN: repr(begun)},
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
        with process, _ending(process):
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            printed = process.stdout.read().decode()
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - begun
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise FailedError(f"{name} ended with {process.returncode}: {last}")
    whole = {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "memory": 1024.0 * usage.ru_maxrss}
    lines = printed.splitlines()
    figures = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    return {**{figure: {"wall": w, "cpu": c} for figure, (w, c) in figures.items()}, WHOLE: whole}


@contextlib.contextmanager
def _ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End *process* with all that it started, where this process is interrupted or it takes too long."""

    def kill(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    former = signal.signal(signal.SIGALRM, kill)
    signal.alarm(TIMEOUT)
    try:
        yield
    except BaseException:
        kill()
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def ratio(
    entry: Mapping[str, Any], figure: str, contender: str, peer: str, quantity: str = "wall"
) -> Spread | None:
    """Return how *contender* compares with *peer* in the results of a measure, None if it is not in them."""
    above, below = (
        entry["samples"].get(name, {}).get(figure, {}).get(quantity, []) for name in (contender, peer)
    )
    ratios = [a / b for a, b in zip(above, below, strict=False) if b]
    return Spread.of(ratios) if ratios else None
