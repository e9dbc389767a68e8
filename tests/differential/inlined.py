"""
Run random programs of two CUDA C++ units, linked as PTX in this process, beside the same program as one unit.

Needs a device:

    python tests/differential/inlined.py --programs 2000 --workers 14
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from cxx_pairs import THREADS, Program

import numba_ptxlink as pl

LINKED = ("auto", "all", "none")
_LOOPS = 3


def build(seed: int, arch: str) -> tuple[int, dict[str, bytes | str], Counter[str]]:
    """Return the cubins of the program *seed*, or the error of one, and what the links said."""
    program, said = Program(seed), Counter()
    results: dict[str, bytes | str] = {}
    for way in ("single", *LINKED):
        units = (program.single,) if way == "single" else (program.caller, program.callee)
        inline = "auto" if way == "single" else way
        try:
            linked = pl.link(*units, arch=arch, lto=False, inline=inline, nvrtc_flags=["-w"])
        except pl.PtxlinkError as error:
            results[way] = str(error)
            continue
        results[way] = linked.cubin
        if way != "single":
            said[f"{way}: {linked.backend}"] += 1
            said[f"{way}: calls inlined"] += linked.inlined
            said.update(
                f"{way}: {line.rpartition(': ')[2]}" for line in linked.log.splitlines() if "call not" in line
            )
    return seed, results, said


def run(cubin: bytes) -> np.ndarray:
    """Return what the kernel of *cubin* writes."""
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    buffer = device.allocate(8 * THREADS, stream=stream)
    kernel = ObjectCode.from_cubin(cubin).get_kernel("k")
    launch(stream, LaunchConfig(grid=1, block=THREADS), kernel, int(buffer.handle), np.int32(_LOOPS))
    stream.sync()
    from cuda.bindings import runtime

    host = np.zeros(THREADS, np.uint64)
    runtime.cudaMemcpy(
        host.ctypes.data, int(buffer.handle), host.nbytes, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
    )
    buffer.close()
    return host


def _as_linked(cubin: bytes | str, linked: bytes | str) -> bool:
    """Return whether two cubins compute the same."""
    if isinstance(cubin, str) or isinstance(linked, str):
        return False
    return np.array_equal(run(cubin), run(linked))


def compare(first: int, count: int, workers: int) -> int:
    """Build and run *count* programs; print the differences and return how many there are."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    arch = "sm_{}{}".format(*device.compute_capability)
    totals: Counter[str] = Counter()
    differences = 0
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        for seed, results, said in pool.map(build, range(first, first + count), [arch] * count, chunksize=4):
            totals += said
            if isinstance(results["single"], str):
                totals["not compiled"] += 1
                continue
            expected = run(results["single"])
            for way in LINKED:
                cubin = results[way]
                if isinstance(cubin, str):
                    wrong = cubin.splitlines()[0]
                else:
                    wrong = "" if np.array_equal(expected, run(cubin)) else "other values"
                if wrong and way != "none" and _as_linked(cubin, results.get("none", "")):
                    # NVRTC compiles the two units to something else than the one.
                    totals[f"{way}: as nvJitLink links it, not as one unit"] += 1
                elif wrong:
                    totals[f"{way}: wrong"] += 1
                    differences += way != "none"
                    print(f"program {seed}, {way}: {wrong[:300]}", flush=True)
    for what, number in sorted(totals.items()):
        print(f"{number:8} {what}")
    return differences


def main() -> int:
    """Return 1 if a program computes something else linked than as one unit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    differences = compare(options.first, options.programs, options.workers)
    print(f"{options.programs} programs, {differences} differences")
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
