"""
Run random programs of two CUDA C++ units, linked as PTX in this process, beside the same program as one unit.

Needs a device:

    python tests/differential/inlined.py --programs 2000 --workers 14
    python tests/differential/inlined.py --programs 0 --sanitized 50
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
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


def _ran(seed: int, way: str, cubin: bytes) -> np.ndarray:
    """Return what the kernel of the program *seed* writes, or end: after a trap, no other can run here."""
    try:
        return run(cubin)
    except Exception as error:  # noqa: BLE001 - errors of the driver and of the runtime share no other class
        sys.exit(f"program {seed}, {way}: {type(error).__name__}: {error}")


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
            expected = _ran(seed, "single", results["single"])
            for way in LINKED:
                cubin = results[way]
                if isinstance(cubin, str):
                    wrong = cubin.splitlines()[0]
                else:
                    wrong = "" if np.array_equal(expected, _ran(seed, way, cubin)) else "other values"
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


def sanitize(first: int, count: int, tool: str) -> int:
    """Run *count* programs, inlined, under compute-sanitizer's memcheck; return how many errors it finds."""
    from cuda.core import Device

    arch = "sm_{}{}".format(*Device(0).compute_capability)
    with tempfile.TemporaryDirectory() as folder:
        refused = 0
        for seed in range(first, first + count):
            for way, cubin in build(seed, arch)[1].items():
                if way in ("auto", "all") and isinstance(cubin, bytes):
                    Path(folder, f"{seed}_{way}.cubin").write_bytes(cubin)
                refused += way in ("auto", "all") and isinstance(cubin, str)
        cubins = sorted(map(str, Path(folder).iterdir()))
        program = [sys.executable, __file__, "--cubins", *cubins]
        command = [tool, "--tool", "memcheck", "--leak-check", "no", *program]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    ran = done.stdout.count("ran ")
    summary = re.search(r"ERROR SUMMARY: (\d+) error", done.stdout + done.stderr)
    errors = int(summary[1]) if summary else -1
    if errors or ran < len(cubins):
        print(done.stdout[-4000:], done.stderr[-4000:])
    print(
        f"compute-sanitizer: {ran} of {len(cubins)} cubins of {count} programs ran, {errors} errors; "
        f"{refused} were not linked"
    )
    return int(errors != 0 or ran < len(cubins) or not cubins)


def main() -> int:
    """Return 1 if a program computes something else linked than as one unit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sanitized", type=int, default=0, help="how many to run under compute-sanitizer")
    parser.add_argument("--cubins", nargs="+", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for path in options.cubins or ():
        run(path.read_bytes())
        print(f"ran {path.name}", flush=True)
    if options.cubins:
        return 0
    differences = compare(options.first, options.programs, options.workers) if options.programs else 0
    print(f"{options.programs} programs, {differences} differences")
    failed = 0
    if options.sanitized:
        tool = shutil.which("compute-sanitizer")
        if tool is None:
            print("compute-sanitizer is not on PATH; it is in the bin folder of a CUDA toolkit")
        failed = sanitize(options.first, options.sanitized, tool) if tool else 1
    return int(differences > 0 or failed > 0)


if __name__ == "__main__":
    sys.exit(main())
