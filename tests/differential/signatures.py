"""
Call functions of random signatures from C++ with random bytes, and compare what comes back byte for byte.

Needs a device:

    python tests/differential/signatures.py --signatures 10000 --inlined --seconds 200 --workers 16
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
sys.path.insert(0, str(Path(__file__).parent))
import abi_rows as rows
import hypothesis
import servers
from abi_bytes import Layout, fill, outcome, passed_wrongly

import numba_ptxlink as pl
from numba_ptxlink._arch import Arch
from numba_ptxlink._tools import nvjitlink

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

KINDS = ("ptx", "ltoir", "inlined")
"""PTX linked by nvJitLink, LTO-IR, and PTX inlined before it is assembled."""
BATCH = 50
THREADS = 8
MOST_FAILURES = 20
LONGEST = 300
"""Seconds for a batch."""
TRAPPED = "trapped"


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
        failures: Seed, kind, number in its batch, signature and what happened.
        batches: How many batches were done.
        last: The last seed.
        seconds: The time it took.
    """

    executed: int = 0
    left_out: int = 0
    trapping: int = 0
    inlined: int = 0
    failures: list[tuple[int, str, int, Any, str]] = field(default_factory=list)
    batches: int = 0
    last: int = 0
    seconds: float = 0

    def add(self, seed: int, checked: Checked, way: Way) -> None:
        """Add the batch that *seed* drew."""
        self.batches += 1
        self.last = max(self.last, seed)
        self.executed += checked.executed
        self.left_out += checked.left_out
        self.inlined += checked.inlined
        drawn = rows.draw(BATCH, seed, way.front_end) if checked.failures else []
        self.failures += [
            (seed, kind, number, drawn[number], reason) for kind, number, reason in checked.failures
        ]

    def __str__(self) -> str:
        return (
            f"{self.executed} signatures executed with {THREADS} values each, {len(self.failures)} "
            f"mismatches, {self.inlined} calls inlined; {self.left_out} left out that nvcc passes wrongly, "
            f"{self.trapping} that trap between C++ and C++; seeds to {self.last}, {self.seconds:.0f} s"
        )


@dataclass(frozen=True)
class Lowered:
    """
    Functions, compiled as far as LLVM IR.

    Args:
        compiled: The functions.
        layouts: The layouts of their arguments.
    """

    compiled: Any
    layouts: list[Layout]

    @classmethod
    def of(cls, echoes: list[rows.Echo], way: Way) -> Lowered:
        """Compile *echoes*, named f0, f1 and so on."""
        compiled = rows.lower(echoes, way.arch, way.front_end)
        pairs = zip(echoes, compiled.signatures, strict=True)
        return cls(compiled, [Layout.of(echo, signature) for echo, signature in pairs])

    def without(self, numbers: Collection[int]) -> Lowered:
        """Return the functions but those with *numbers*; the others keep theirs."""
        kept = [number not in numbers for number in range(len(self.layouts))]
        compiled = replace(
            self.compiled,
            functions=tuple(itertools.compress(self.compiled.functions, kept)),
            lowered=tuple(itertools.compress(self.compiled.lowered, kept)),
        )
        return Lowered(compiled, list(itertools.compress(self.layouts, kept)))

    def called_by(self, source: str, way: Way, output: str = "ptx") -> bytes:
        """Return what NVRTC makes of C++ that calls the functions."""
        with TemporaryDirectory() as folder:
            (Path(folder) / "echo.h").write_text(rows.header(self.compiled.signatures))
            return rows.nvrtc(f'#include "echo.h"\n{source}', way.arch, Path(folder), output=output)


def links(lowered: Lowered, way: Way) -> dict[str, tuple[bytes, int]]:
    """Return by kind a cubin with kernels `check0`, ..., and how many calls are inlined in it."""
    forms = {kind: "ltoir" if kind == "ltoir" else "ptx" for kind in way.kinds}
    artifacts = rows.build(lowered.compiled, way.arch, *dict.fromkeys(forms.values())).artifacts
    source = "".join(layout.kernel() for layout in lowered.layouts)
    callers = {form: lowered.called_by(source, way, form) for form in artifacts}
    linked = {}
    for kind, form in forms.items():
        caller, code = callers[form], artifacts[form]
        if kind == "inlined":
            fused = pl.link(caller, code, arch=way.arch, lto=False, inline="all")
            linked[kind] = fused.cubin, fused.inlined
        else:
            flags = [f"-arch={way.arch}", *(["-lto"] if kind == "ltoir" else [])]
            inputs = [(form, "caller", caller), (form, "echo", code)]
            linked[kind] = nvjitlink.link(inputs, flags, output="cubin").code, 0
    return linked


def called_well(lowered: Lowered, way: Way) -> Lowered:
    """Return those of the functions that C++ on both sides could call without a trap."""
    source = "".join(layout.kernel() + layout.probe() for layout in lowered.layouts)
    return lowered.without(passed_wrongly(lowered.called_by(source, way).decode()))


@dataclass(frozen=True)
class Batch:
    """
    Signatures that are linked together.

    Args:
        cubins: The cubins by kind.
        layouts: The layouts of the arguments.
        inlined: How many calls were inlined.
        left_out: How many signatures nvcc passes wrongly.
    """

    cubins: dict[str, bytes]
    layouts: list[Layout]
    inlined: int
    left_out: int


def prepare(echoes: list[rows.Echo], way: Way) -> Batch:
    """Compile and link functions of the signatures *echoes*."""
    lowered = called_well(Lowered.of(echoes, way), way)
    linked = links(lowered, way) if lowered.layouts else {}
    return Batch(
        {kind: cubin for kind, (cubin, _) in linked.items()},
        lowered.layouts,
        sum(inlined for _, inlined in linked.values()),
        len(echoes) - len(lowered.layouts),
    )


def mismatches(cubin: bytes, layouts: list[Layout], seed: int, front_end: str) -> list[Layout]:
    """Run every kernel of *cubin* on random arguments; return those that gave what they should not."""
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
    for layout in layouts:
        kernel = module.get_kernel(f"check{layout.number}")
        launch(stream, LaunchConfig(grid=1, block=THREADS), kernel, begin, end)
        try:
            stream.sync()
        except Exception as error:
            # The context is lost, and what has not run in it cannot be told.
            raise TrapError(layout.number) from error
        begin += layout.arguments_size * THREADS
        end += layout.result_size * THREADS
    got, place = target.copy_to_host().tobytes(), 0
    for layout, each in zip(layouts, arguments, strict=True):
        for argument in each:
            result = got[place : place + layout.result_size]
            place += layout.result_size
            expected, relevant = outcome(layout, argument)
            seen = bytes(byte if matters else 0 for byte, matters in zip(result, relevant, strict=True))
            if seen != expected and layout not in wrong:
                wrong.append(layout)
    return wrong


class TrapError(Exception):
    """A kernel was stopped by the device."""


@dataclass
class Checked:
    """
    What became of a batch.

    Args:
        executed: How many signatures were executed in each way.
        left_out: How many nvcc itself passes wrongly.
        inlined: How many calls were inlined.
        failures: Kind, number of the signature in the batch and what happened.
    """

    executed: int
    left_out: int
    inlined: int
    failures: list[tuple[str, int, str]]


def check(seed: int, way: Way) -> Checked:
    """Compile, link and execute the signatures that *seed* draws. Leaves a broken context after a trap."""
    batch = prepare(rows.draw(BATCH, seed, way.front_end), way)
    failures: list[tuple[str, int, str]] = []
    for kind, cubin in batch.cubins.items():
        try:
            wrong = mismatches(cubin, batch.layouts, seed, way.front_end)
            failures += [(kind, layout.number, "wrong") for layout in wrong]
        except TrapError as trap:
            failures.append((kind, trap.args[0], TRAPPED))
            return Checked(0, batch.left_out, batch.inlined, failures)
    return Checked(len(batch.layouts), batch.left_out, batch.inlined, failures)


def traps_in_cxx(echo: rows.Echo, way: Way, seed: int) -> bool:
    """Return whether the device traps on *echo* too where C++ that NVRTC compiled is on both sides."""
    lowered = Lowered.of([echo], way)
    (layout,) = lowered.layouts
    inputs = [
        ("ptx", "caller", lowered.called_by(layout.kernel(), way)),
        ("ptx", "callee", lowered.called_by(layout.in_cxx(), way)),
    ]
    try:
        mismatches(nvjitlink.link(inputs, [f"-arch={way.arch}"]).code, [layout], seed, way.front_end)
    except TrapError:
        return True
    return False


def answer(request: tuple[int, int | None], way: Way, say: Callable[[Any], None]) -> None:
    """Say what becomes of the batch of a seed, or whether one of its signatures traps in C++ too."""
    seed, number = request
    if number is None:
        checked = check(seed, way)
        say(asdict(checked))
        trapped = any(reason == TRAPPED for _, _, reason in checked.failures)
    else:
        trapped = traps_in_cxx(rows.draw(BATCH, seed, way.front_end)[number], way, seed)
        say(trapped)
    if trapped:
        # The process's context is lost, and another process takes its place.
        sys.exit()


def target() -> str:
    """Return the device's architecture."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    return Arch.of(tuple(device.compute_capability)).sm


def run(count: int, first: int, way: Way, workers: int, seconds: float = float("inf")) -> Counts:
    """Execute *count* signatures from the seed *first* on, or as many as there is time for."""
    counts = Counts(last=first)
    ends = time.monotonic() + seconds
    progress = servers.Progress("signatures", count)
    command = [sys.executable, __file__, "--serve", way.arch, ",".join(way.kinds), way.front_end]
    seeds = itertools.count(first)

    def batches() -> Iterator[tuple[int, None]]:
        for begun in itertools.count(1):
            yield next(seeds), None
            # Those that are in work are taken to have half of what they might.
            if counts.executed + BATCH // 2 * (begun - counts.batches) >= count:
                break

    while counts.executed < count and time.monotonic() < ends and len(counts.failures) < MOST_FAILURES:
        counts.batches = 0
        for reply in servers.answers(command, batches(), workers, ends=ends):
            seed, _ = reply.request
            checked = Checked(**reply.said[-1]) if reply.said else Checked(0, 0, 0, [("", 0, reply.error)])
            counts.add(seed, checked, way)
            progress.add(checked.executed)
            if len(counts.failures) >= MOST_FAILURES:
                break
    # What traps between two pieces of C++ is no matter of the Python function.
    doubtful = {
        (seed, number)
        for seed, kind, number, _, reason in counts.failures
        if kind != "ltoir" and reason == TRAPPED
    }
    trapping = {
        tuple(reply.request) for reply in servers.answers(command, doubtful, workers) if True in reply.said
    }
    counts.trapping = len(trapping)
    counts.failures = [failure for failure in counts.failures if (failure[0], failure[2]) not in trapping]
    counts.seconds = progress.seconds
    return counts


def smallest(counts: Counts, way: Way) -> str:
    """Return the failures of *counts*, and the simplest signature that fails like the first."""
    seed, kind, _, _, reason = counts.failures[0]
    try:
        found = shrink(kind, way, seed) if reason == "wrong" else "not sought, since the device traps"
    except Exception as error:  # noqa: BLE001 - another signature may trap, which ends the search
        found = f"not found: {error}"
    return "\n".join((*map(str, counts.failures), f"smallest found: {found}"))


def shrink(kind: str, way: Way, seed: int) -> Any:
    """Return the simplest signature of those that *seed* draws, or simpler, that fails."""

    def fails(echo: rows.Echo) -> bool:
        batch = prepare([echo], replace(way, kinds=(kind,)))
        cubins = batch.cubins.values()
        return any(mismatches(cubin, batch.layouts, seed, way.front_end) for cubin in cubins)

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
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after that time")
    parser.add_argument("--inlined", action="store_true", help="only as PTX that is inlined")
    parser.add_argument("--front-end", default="numba-cuda", help="what compiles the functions")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        arch, kinds, front_end = options.serve
        served = Way(arch, tuple(kinds.split(",")), front_end)
        servers.serve(lambda request, say: answer(request, served, say), LONGEST)
        return 0
    way = Way(target(), ("inlined",) if options.inlined else KINDS, options.front_end)
    counts = run(options.signatures, options.first, way, options.workers, options.seconds)
    print(f"{way.arch}, {', '.join(way.kinds)}: {counts}")
    if counts.failures:
        print(smallest(counts, way))
    return int(bool(counts.failures))


if __name__ == "__main__":
    sys.exit(main())
