"""
Call functions of random signatures from C++ with random bytes, and compare what comes back byte for byte.

Needs a device:

    python tests/differential/signatures.py --signatures 10000 --inlined --workers 14
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
import abi_rows as rows
import hypothesis
from abi_bytes import Layout, fill, outcome, passed_wrongly

import numba_ptxlink as pl
from numba_ptxlink._arch import Arch
from numba_ptxlink._tools import nvjitlink

KINDS = ("ptx", "ltoir", "inlined")
"""PTX linked by nvJitLink, LTO-IR, and PTX inlined before it is assembled."""
BATCH = 50
THREADS = 8
MOST_FAILURES = 20


@dataclass(frozen=True)
class Way:
    """
    How signatures are compiled and linked.

    Args:
        arch: The device's architecture.
        kinds: Those of `KINDS` that are tried.
        front_end: What compiles the functions.
    """

    arch: str
    kinds: tuple[str, ...] = KINDS
    front_end: str = "numba-cuda"


@dataclass
class Counts:
    """
    What became of the signatures.

    Args:
        executed: How many were executed in each way.
        left_out: How many nvcc itself passes wrongly: it takes misaligned members of packed records for
            aligned. What the front end cannot compile is not drawn.
        trapping: How many trap between two pieces of C++ too.
        inlined: How many calls were inlined.
        failures: Seed, kind, signature and what happened.
        last: The last seed.
        seconds: The time it took.
    """

    executed: int = 0
    left_out: int = 0
    trapping: int = 0
    inlined: int = 0
    failures: list[tuple[int, str, Any, str]] = field(default_factory=list)
    last: int = 0
    seconds: float = 0

    def __str__(self) -> str:
        return (
            f"{self.executed} signatures executed with {THREADS} values each, {len(self.failures)} "
            f"mismatches, {self.inlined} calls inlined; {self.left_out} left out that nvcc passes wrongly, "
            f"{self.trapping} that trap between C++ and C++; seeds to {self.last}, {self.seconds:.0f} s"
        )


def artifact(echoes: list[rows.Echo], way: Way, kind: str = "") -> tuple[bytes, str, list[Layout]]:
    """Return the functions compiled as *kind*, if any, their header, and the layouts of their arguments."""
    compiled = rows.lower(echoes, way.arch, way.front_end)
    code = rows.build(compiled, way.arch, kind).artifacts[kind] if kind else b""
    return code, rows.header(compiled.signatures), lay_out(echoes, compiled.signatures)


def link(echoes: list[rows.Echo], way: Way, kind: str) -> tuple[bytes, list[Layout], int]:
    """Return a cubin with kernels `check0`, ..., the layouts of their arguments, and the inlined calls."""
    form = "ltoir" if kind == "ltoir" else "ptx"
    code, header, layouts = artifact(echoes, way, form)
    source = '#include "echo.h"\n' + "".join(layout.kernel() for layout in layouts)
    caller = compiled_with(header, source, way.arch, form)
    if kind == "inlined":
        linked = pl.link(caller, code, arch=way.arch, lto=False, inline="all")
        return linked.cubin, layouts, linked.inlined
    flags = [f"-arch={way.arch}", *(["-lto"] if kind == "ltoir" else [])]
    inputs = [(form, "caller", caller), (form, "echo", code)]
    return nvjitlink.link(inputs, flags, output="cubin").code, layouts, 0


def compiled_with(header: str, source: str, arch: str, output: str = "ptx") -> bytes:
    """Return what NVRTC makes of *source*, which includes *header* as echo.h."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "echo.h").write_text(header)
        return rows.nvrtc(source, arch, Path(folder), output=output)


def lay_out(echoes: list[rows.Echo], signatures: Any) -> list[Layout]:
    """Return the layout of the arguments of each function."""
    return [Layout.of(echo, signature) for echo, signature in zip(echoes, signatures, strict=True)]


def called_well(echoes: list[rows.Echo], way: Way) -> list[rows.Echo]:
    """Return those of *echoes* that C++ on both sides could call without a trap."""
    _, header, layouts = artifact(echoes, way)
    source = "".join(layout.kernel() + layout.probe() for layout in layouts)
    wrong = passed_wrongly(compiled_with(header, f'#include "echo.h"\n{source}', way.arch).decode())
    return [echo for number, echo in enumerate(echoes) if number not in wrong]


@dataclass(frozen=True)
class Batch:
    """
    Signatures that are linked together.

    Args:
        seed: The seed they were drawn by.
        echoes: The functions.
        cubins: The cubins by kind.
        layouts: The layouts of the arguments.
        inlined: How many calls were inlined.
        left_out: How many signatures nvcc passes wrongly.
    """

    seed: int
    echoes: list[rows.Echo]
    cubins: dict[str, bytes]
    layouts: list[Layout]
    inlined: int
    left_out: int


def prepare(seed: int, count: int, way: Way) -> Batch:
    """Compile and link the signatures that *seed* draws."""
    drawn = rows.draw(count, seed, way.front_end)
    echoes = called_well(drawn, way)
    linked = {kind: link(echoes, way, kind) for kind in way.kinds}
    cubins = {kind: cubin for kind, (cubin, _, _) in linked.items()}
    layouts = next(layouts for _, layouts, _ in linked.values())
    inlined = sum(inlined for _, _, inlined in linked.values())
    return Batch(seed, echoes, cubins, layouts, inlined, len(drawn) - len(echoes))


def mismatches(cubin: bytes, layouts: list[Layout], seed: int, front_end: str) -> list[int]:
    """Run every kernel of *cubin* on random arguments; return which gave anything but what they should."""
    from cuda.core import Device, LaunchConfig, ObjectCode, launch
    from numba import cuda

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    module = ObjectCode.from_cubin(cubin)
    generator = random.Random(seed)  # noqa: S311 - not for secrets
    wrong = []
    arguments = [[fill(layout, generator, front_end) for _ in range(THREADS)] for layout in layouts]
    sent = np.frombuffer(b"".join(b"".join(each) for each in arguments), np.uint8)
    room = sum(layout.result_size for layout in layouts) * THREADS
    source, target = cuda.to_device(sent), cuda.to_device(np.zeros(room, np.uint8))
    begin, end = (int(each.__cuda_array_interface__["data"][0]) for each in (source, target))
    for number, layout in enumerate(layouts):
        launch(stream, LaunchConfig(grid=1, block=THREADS), module.get_kernel(f"check{number}"), begin, end)
        try:
            stream.sync()
        except Exception as error:
            # The context is lost, and what has not run in it cannot be told.
            raise TrapError(number) from error
        begin += layout.arguments_size * THREADS
        end += layout.result_size * THREADS
    got, place = target.copy_to_host().tobytes(), 0
    for number, layout in enumerate(layouts):
        for argument in arguments[number]:
            result = got[place : place + layout.result_size]
            place += layout.result_size
            expected, relevant = outcome(layout, argument)
            seen = bytes(byte if matters else 0 for byte, matters in zip(result, relevant, strict=True))
            if seen != expected and number not in wrong:
                wrong.append(number)
    return wrong


class TrapError(Exception):
    """A kernel was stopped by the device."""


def check(seed: int, count: int, way: Way) -> tuple[int, int, int, int, list[tuple[str, rows.Echo, str]]]:
    """Return *seed*, how many of its signatures ran, were left out and inlined, and the failures by kind."""
    batch = prepare(seed, count, way)
    left_out, failures = batch.left_out, []
    for kind, cubin in batch.cubins.items():
        try:
            wrong = mismatches(cubin, batch.layouts, seed, way.front_end)
            failures += [(kind, batch.echoes[number], "wrong") for number in wrong]
        except TrapError as trap:
            failures.append((kind, batch.echoes[trap.args[0]], "trapped"))
            return seed, 0, left_out, batch.inlined, failures
    return seed, len(batch.echoes), left_out, batch.inlined, failures


def traps_in_cxx(echo: rows.Echo, way: Way, seed: int) -> bool:
    """Return whether the device traps on *echo* too where C++ that NVRTC compiled is on both sides."""
    _, header, layouts = artifact([echo], way)
    include = '#include "echo.h"\n'
    caller = compiled_with(header, include + layouts[0].kernel(), way.arch)
    callee = compiled_with(header, include + layouts[0].in_cxx(), way.arch)
    inputs = [("ptx", "caller", caller), ("ptx", "callee", callee)]
    try:
        mismatches(nvjitlink.link(inputs, [f"-arch={way.arch}"]).code, layouts, seed, way.front_end)
    except TrapError:
        return True
    return False


def target() -> str:
    """Return the device's architecture."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    return Arch.of(tuple(device.compute_capability)).sm


def run(count: int, first: int, way: Way, workers: int, seconds: float = float("inf")) -> Counts:
    """Execute *count* signatures from the seed *first* on, or what *workers* processes begin in *seconds*."""
    counts, started = Counts(last=first), time.monotonic()
    ends = started + seconds
    seeds = itertools.count(first)
    # A trap takes the process's context with it, so each batch has a process of its own.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        jobs = {pool.submit(check, next(seeds), BATCH, way) for _ in range(workers + 2)}
        while jobs:
            finished, jobs = wait(jobs, return_when=FIRST_COMPLETED)
            for seed, done, skipped, inlined, failed in map(Future.result, finished):
                counts.last = max(counts.last, seed)
                counts.executed += done
                counts.left_out += skipped
                counts.inlined += inlined
                counts.failures += [(seed, *failure) for failure in failed]
            missing = count - counts.executed - (BATCH // 2) * len(jobs)
            if missing > 0 and time.monotonic() < ends and len(counts.failures) < MOST_FAILURES:
                jobs |= {pool.submit(check, next(seeds), BATCH, way) for _ in finished}
        # What traps between two pieces of C++ is no matter of the Python function.
        theirs = {
            failure: pool.submit(traps_in_cxx, failure[2], way, failure[0])
            for failure in counts.failures
            if failure[1] != "ltoir" and failure[3] == "trapped"
        }
        trapping = {failure for failure, job in theirs.items() if job.result()}
    counts.failures = [failure for failure in counts.failures if failure not in trapping]
    counts.trapping = len(trapping)
    counts.seconds = time.monotonic() - started
    return counts


def smallest(counts: Counts, way: Way) -> str:
    """Return the failures of *counts*, and the simplest signature that fails like the first."""
    seed, kind, _, reason = counts.failures[0]
    try:
        found = shrink(kind, way, seed) if reason == "wrong" else "not sought, since the device traps"
    except Exception as error:  # noqa: BLE001 - another signature may trap, which ends the search
        found = f"not found: {error}"
    return "\n".join((*map(str, counts.failures), f"smallest found: {found}"))


def shrink(kind: str, way: Way, seed: int) -> Any:
    """Return the simplest signature of those that *seed* draws, or simpler, that fails."""

    def fails(echo: rows.Echo) -> bool:
        if not called_well([echo], way):
            return False
        cubin, layouts, _ = link([echo], way, kind)
        return bool(mismatches(cubin, layouts, seed, way.front_end))

    return hypothesis.find(
        rows.signatures(way.front_end),
        fails,
        settings=hypothesis.settings(max_examples=300, database=None, deadline=None),
        random=random.Random(seed),  # noqa: S311 - not for secrets
    )


def main() -> int:
    """Return 1 if a byte differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--signatures", type=int, default=10000)
    parser.add_argument("--first", type=int, default=1, help="the seed of the first batch")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after that time")
    parser.add_argument("--inlined", action="store_true", help="only as PTX that is inlined")
    parser.add_argument("--front-end", default="numba-cuda", help="what compiles the functions")
    options = parser.parse_args()
    way = Way(target(), ("inlined",) if options.inlined else KINDS, options.front_end)
    counts = run(options.signatures, options.first, way, options.workers, options.seconds)
    print(f"{way.arch}, {', '.join(way.kinds)}: {counts}")
    if counts.failures:
        print(smallest(counts, way))
    return int(bool(counts.failures))


if __name__ == "__main__":
    sys.exit(main())
