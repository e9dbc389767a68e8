"""
PTX to cubin: assemble() beside nvJitLink and a ptxas process, on the same PTX, in one run.

The sections are sizes of the PTX in bytes. The time is that of one module where as many are compiled at a
time as there are threads. This package's cache and the driver's, which nvJitLink asks, are off.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

# Read when the libraries are loaded.
os.environ["CUDA_CACHE_DISABLE"] = "1"
os.environ["NUMBA_PTXLINK_CACHE"] = "0"

import _compilers
import _harness
from cuda.bindings import nvjitlink

from numba_ptxlink.assembler import assemble, compiler_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZES = (500, 8_000, 50_000, 500_000)


def tools(ptx: bytes, arch: str, scratch: Path) -> dict[str, Callable[[], object]]:
    """Return what each competitor does with *ptx*."""
    found: dict[str, Callable[[], object]] = {
        "assemble": lambda: assemble(ptx, arch),
        "nvjitlink": lambda: _compilers.link(ptx, arch),
    }
    if _compilers.find_ptxas():
        path = scratch / f"{len(ptx)}.ptx"
        path.write_bytes(ptx)
        found["ptxas"] = lambda: _compilers.run_ptxas(path, arch)
    return found


def measure(size: int, bench: _harness.Bench) -> None:
    """Measure PTX of about *size* characters, in one thread and in several at a time."""
    ptx = _compilers.generate_ptx(size).encode()
    quick, repeats = bench.options.quick, bench.options.repeats
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        compilers = tools(ptx, bench.options.arch, Path(scratch))
        if "ptxas" not in compilers:
            bench.leave_out("ptxas", "neither the wheel nvidia-cuda-nvcc nor PATH has it")
        for threads in bench.each(sorted({1, 2, cores, 2 * cores})):
            with ThreadPoolExecutor(threads) as pool:
                contenders = {
                    name: functools.partial(compile_at_once, pool, compile_one, threads)
                    for name, compile_one in compilers.items()
                }
                # The first turn loads libraries and starts threads.
                turns = repeats if size < 100_000 else max(repeats // 3, 1)
                samples = bench.in_turns(contenders, turns, warmup=not quick or size < 1000)
            compared = _harness.compare(samples["time"], ours="assemble")
            bench.row({"bytes": len(ptx), "threads": threads, **compared})


def compile_at_once(
    pool: ThreadPoolExecutor, compile_one: Callable[[], object], threads: int
) -> dict[str, list[float]]:
    """Return the seconds for one module where *threads* are compiled at a time."""
    begin = time.perf_counter()
    for future in [pool.submit(compile_one) for _ in range(threads)]:
        future.result()
    return {"time": [(time.perf_counter() - begin) / threads]}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    sections = {str(size): functools.partial(measure, size) for size in SIZES}
    parser = _harness.make_parser(__doc__, sections, repeats=(15, 3))
    parser.add_argument("--arch", default="sm_90")
    _harness.run(
        parser,
        sections,
        argv,
        nvptxcompiler="{}.{}".format(*compiler_version()),
        nvjitlink="{}.{}".format(*nvjitlink.version()),
        ptxas=_compilers.find_ptxas(),
    )


if __name__ == "__main__":
    main()
