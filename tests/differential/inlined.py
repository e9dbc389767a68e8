"""
Run random programs of two CUDA C++ units, linked as PTX in this process, beside the same program as one unit.

Needs a device:

    python tests/differential/inlined.py --programs 2000 --seconds 480 --workers 16
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
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
sys.path.insert(0, str(Path(__file__).parent))
import servers
from cxx_pairs import THREADS, Program

import numba_ptxlink as pl

if TYPE_CHECKING:
    from collections.abc import Callable

LINKED = ("auto", "all", "none")
AS_NONE = "as nvJitLink links it, not as one unit"
LONGEST = 120
"""Seconds for a program."""
_LOOPS = 3


def build(
    seed: int, arch: str, say: Callable[[Any], None] = lambda _: None
) -> tuple[int, dict[str, bytes | str], Counter[str]]:
    """
    Return the cubins of the program *seed*, or the error of one, and what the links said.

    Says before each link which that is.
    """
    program, said = Program(seed), Counter()
    results: dict[str, bytes | str] = {}
    for way in ("single", *LINKED):
        units = (program.single,) if way == "single" else (program.caller, program.callee)
        inline = "auto" if way == "single" else way
        say(f"link {way}")
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


def answer(seed: int, arch: str, say: Callable[[Any], None]) -> None:
    """
    Say what the links of the program *seed* said, and for each way "", "not compiled" or what is wrong.

    Before each link and run it says which that is: after a trap this process cannot go on.
    """
    _, results, said = build(seed, arch, say)
    say(said)
    written: dict[str, np.ndarray] = {}
    if isinstance(results["single"], str):
        say({})
        return
    for way, cubin in results.items():
        if isinstance(cubin, bytes):
            say(way)
            written[way] = run(cubin)
    found = dict.fromkeys(LINKED, "")
    for way in LINKED:
        if way not in written:
            found[way] = str(results[way]).splitlines()[0]
        elif not np.array_equal(written["single"], written[way]):
            found[way] = "other values"
        if found[way] and way != "none" and {way, "none"} <= written.keys():
            # NVRTC compiles the two units to something else than the one.
            found[way] = AS_NONE if np.array_equal(written[way], written["none"]) else found[way]
    say(found)


def compare(first: int, count: int, workers: int, seconds: float) -> int:
    """Build and run *count* programs; print the differences and return how many there are."""
    from cuda.core import Device

    arch = "sm_{}{}".format(*Device(0).compute_capability)
    links: Counter[str] = Counter()
    progress = servers.Progress("programs", count)
    ends = time.monotonic() + seconds
    differences = 0
    command = [sys.executable, __file__, "--serve", arch]
    for reply in servers.answers(command, range(first, first + count), workers, ends=ends):
        links.update(*[said for said in reply.said if isinstance(said, dict)][:1])
        found = reply.said[-1] if reply.said else "start"
        if reply.ended is not None:
            found = {str(found): f"{'hang' if reply.hung else 'end'}: {reply.error}"}
        words = [
            f"{way}: {AS_NONE if wrong == AS_NONE else 'wrong'}" for way, wrong in found.items() if wrong
        ]
        progress.note(*(words or ["equal" if found else "not compiled"]))
        for way, wrong in found.items():
            if wrong not in ("", AS_NONE):
                # Nothing of ours is in a link without inlining, which nvJitLink does.
                differences += way not in ("none", "link none")
                print(f"program {reply.request}, {way}: {wrong[:300]}", flush=True)
    for what, number in sorted(links.items()):
        print(f"{number:8} {what}")
    print(progress)
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
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after that time")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--cubins", nargs="+", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        servers.serve(lambda seed, say: answer(seed, options.serve, say), LONGEST)
        return 0
    for path in options.cubins or ():
        run(path.read_bytes())
        print(f"ran {path.name}", flush=True)
    if options.cubins:
        return 0
    differences = 0
    if options.programs:
        differences = compare(options.first, options.programs, options.workers, options.seconds)
        print(f"{differences} differences")
    failed = 0
    if options.sanitized:
        tool = shutil.which("compute-sanitizer")
        if tool is None:
            print("compute-sanitizer is not on PATH; it is in the bin folder of a CUDA toolkit")
        failed = sanitize(options.first, options.sanitized, tool) if tool else 1
    return int(differences > 0 or failed > 0)


if __name__ == "__main__":
    sys.exit(main())
