"""
Signatures drawn at random, called from C++ with random bytes, and what comes back compared byte for byte.

`NUMBA_PTXLINK_FUZZ=10000` sets how many signatures are drawn, `NUMBA_PTXLINK_FUZZ_SEED` where to begin.
"""

from __future__ import annotations

import collections
import itertools
import os
import random
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import abi_rows as rows
import hypothesis
import numpy as np
import pytest
from abi_bytes import Layout, fill, outcome, passed_wrongly

from numba_ptxlink._arch import Arch
from numba_ptxlink._tools import nvjitlink

BATCH = 50
THREADS = 8
MOST_FAILURES = 20
COUNT = int(os.environ.get("NUMBA_PTXLINK_FUZZ", "1000"))
SEED = int(os.environ.get("NUMBA_PTXLINK_FUZZ_SEED", "1"))


def link(echoes: list[rows.Echo], arch: str, kind: str) -> tuple[bytes, list[Layout]]:
    """Return a cubin with a kernel `check0`, … for each function, and the layout of its arguments."""
    compiled = rows.lower(echoes, arch)
    artifact = rows.build(compiled, arch, kind).artifacts[kind]
    layouts = lay_out(echoes, compiled)
    with TemporaryDirectory() as folder:
        (Path(folder) / "echo.h").write_text(rows.header(compiled.signatures))
        source = '#include "echo.h"\n' + "".join(layout.kernel() for layout in layouts)
        caller = rows.nvrtc(source, arch, Path(folder), output=kind)
    flags = [f"-arch={arch}", *(["-lto"] if kind == "ltoir" else [])]
    inputs = [(kind, "caller", caller), (kind, "echo", artifact)]
    return nvjitlink.link(inputs, flags, output="cubin").code, layouts


def lay_out(echoes: list[rows.Echo], compiled: Any) -> list[Layout]:
    """Return the layout of the arguments of each function."""
    return [Layout.of(echo, signature) for echo, signature in zip(echoes, compiled.signatures, strict=True)]


def called_well(echoes: list[rows.Echo], arch: str) -> list[rows.Echo]:
    """Return those of *echoes* that C++ on both sides could call without a trap."""
    compiled = rows.lower(echoes, arch)
    layouts = lay_out(echoes, compiled)
    with TemporaryDirectory() as folder:
        (Path(folder) / "echo.h").write_text(rows.header(compiled.signatures))
        source = "".join(layout.kernel() + layout.probe() for layout in layouts)
        ptx = rows.nvrtc(f'#include "echo.h"\n{source}', arch, Path(folder)).decode()
    wrong = passed_wrongly(ptx)
    return [echo for number, echo in enumerate(echoes) if number not in wrong]


def prepare(seed: int, count: int, arch: str) -> tuple[int, list[rows.Echo], dict[str, bytes], list[Layout]]:
    """Return the signatures that *seed* draws, and their cubins by the kind they were linked as."""
    echoes = called_well(rows.draw(count, seed), arch)
    cubins = {}
    layouts: list[Layout] = []
    for kind in ("ptx", "ltoir"):
        cubins[kind], layouts = link(echoes, arch, kind)
    return seed, echoes, cubins, layouts


def mismatches(cubin: bytes, layouts: list[Layout], seed: int) -> list[int]:
    """Run every kernel of *cubin* on random arguments; return which gave anything but what they should."""
    from cuda.core import Device, LaunchConfig, ObjectCode, launch
    from numba import cuda

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    module = ObjectCode.from_cubin(cubin)
    generator = random.Random(seed)  # noqa: S311 - not for secrets
    wrong = []
    arguments = [[fill(layout, generator) for _ in range(THREADS)] for layout in layouts]
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


def check(seed: int, count: int, arch: str) -> tuple[int, int, int, list[tuple[str, rows.Echo, str]]]:
    """Return *seed*, how many of its signatures were executed and left out, and the failures by kind."""
    _, echoes, cubins, layouts = prepare(seed, count, arch)
    failures = []
    for kind, cubin in cubins.items():
        try:
            failures += [(kind, echoes[number], "wrong") for number in mismatches(cubin, layouts, seed)]
        except TrapError as trap:
            failures.append((kind, echoes[trap.args[0]], "trapped"))
            return seed, 0, count - len(echoes), failures
    return seed, len(echoes), count - len(echoes), failures


def traps_in_cxx(echo: rows.Echo, arch: str, seed: int) -> bool:
    """Return whether the device traps on *echo* too where C++ that NVRTC compiled is on both sides."""
    compiled = rows.lower([echo], arch)
    layouts = lay_out([echo], compiled)
    with TemporaryDirectory() as folder:
        (Path(folder) / "echo.h").write_text(rows.header(compiled.signatures))
        include = '#include "echo.h"\n'
        caller = rows.nvrtc(include + layouts[0].kernel(), arch, Path(folder))
        callee = rows.nvrtc(include + layouts[0].in_cxx(), arch, Path(folder))
    inputs = [("ptx", "caller", caller), ("ptx", "callee", callee)]
    try:
        mismatches(nvjitlink.link(inputs, [f"-arch={arch}"]).code, layouts, seed)
    except TrapError:
        return True
    return False


def target() -> str:
    """Return the device's architecture."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    return Arch.of(tuple(device.compute_capability)).sm


def test_random_signatures(capsys):
    """What C++ passes to a Python function comes back unchanged, for every signature that is drawn."""
    if nvjitlink.version() < (13, 2):
        pytest.skip(
            f"nvJitLink {nvjitlink.version()} mixes up structs: 13.0 passes some wrongly, 13.1 refuses LTO"
        )
    started, arch = time.monotonic(), target()
    workers = max(1, (os.cpu_count() or 2) - 1)
    executed, left_out, last, failures = 0, 0, SEED, []
    seeds = itertools.count(SEED)
    # A trap takes the process's context with it, so each batch has a process of its own.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        jobs = collections.deque(pool.submit(check, next(seeds), BATCH, arch) for _ in range(2 * workers))
        while jobs:
            last, done, skipped, failed = jobs.popleft().result()
            executed, left_out = executed + done, left_out + skipped
            failures += [(last, *each) for each in failed]
            if executed + (BATCH // 2) * len(jobs) < COUNT and len(failures) < MOST_FAILURES:
                jobs.append(pool.submit(check, next(seeds), BATCH, arch))
        # What traps between two pieces of C++ is no matter of the Python function.
        theirs = {
            each: pool.submit(traps_in_cxx, each[2], arch, each[0])
            for each in failures
            if each[1] == "ptx" and each[3] == "trapped"
        }
        trapping = {each for each, job in theirs.items() if job.result()}
    failures = [each for each in failures if each not in trapping]
    with capsys.disabled():
        seconds = time.monotonic() - started
        print(
            f"\n{arch}: {executed} signatures executed as PTX and as LTO-IR with {THREADS} values each; "
            f"{left_out} left out that nvcc passes wrongly, {len(trapping)} that trap between C++ and C++; "
            f"seeds {SEED} to {last}, {workers} processes, {seconds:.0f} s"
        )
    if failures:
        seed, kind, _, reason = failures[0]
        shown = "\n".join(map(str, failures))
        try:
            smallest = shrink(kind, arch, seed) if reason == "wrong" else "not sought, since the device traps"
        except Exception as error:  # noqa: BLE001 - another signature may trap, which ends the search
            smallest = f"not found: {error}"
        pytest.fail(f"{len(failures)} failures:\n{shown}\nsmallest found: {smallest}")


def shrink(kind: str, arch: str, seed: int) -> Any:
    """Return the simplest signature of those that *seed* draws, or simpler, that fails."""

    def fails(echo: rows.Echo) -> bool:
        if not called_well([echo], arch):
            return False
        cubin, layouts = link([echo], arch, kind)
        return bool(mismatches(cubin, layouts, seed))

    return hypothesis.find(
        rows.SIGNATURES,
        fails,
        settings=hypothesis.settings(max_examples=300, database=None, deadline=None),
        random=random.Random(seed),  # noqa: S311 - not for secrets
    )
