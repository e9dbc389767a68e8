"""
PTX to cubin: assemble() beside nvJitLink and a ptxas process, on the same PTX, in one run.

The sections are sizes of the PTX in bytes. The time is that of one module where as many are compiled at a
time as there are threads. This package's cache and the driver's, which nvJitLink asks, are off.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

# Read when the libraries are loaded.
os.environ["CUDA_CACHE_DISABLE"] = "1"
os.environ["NUMBA_PTXLINK_CACHE"] = "0"

import _harness
from cuda.bindings import nvjitlink

from numba_ptxlink.assembler import assemble, compiler_version

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (500, 8_000, 50_000, 500_000)


def generate_ptx(size: int) -> str:
    """Return one kernel of about *size* characters: loads, fused multiply-adds, stores."""
    head = (
        ".version 8.0\n.target sm_75\n.address_size 64\n\n.visible .entry kernel(.param .u64 out)\n{\n"
        ".reg .b64 %rd<2>;\n.reg .f32 %f<17>;\nld.param.u64 %rd1, [out];\n"
    )
    lanes = 4 if size < 1000 else 16
    loads = "".join(f"ld.global.f32 %f{i}, [%rd1+{4 * i}];\n" for i in range(lanes))
    stores = "".join(f"st.global.f32 [%rd1+{4 * i}], %f{i};\n" for i in range(lanes))
    body: list[str] = []
    length = len(head) + len(loads) + len(stores) + 8
    while length < size:
        i = len(body)
        body.append(f"fma.rn.f32 %f{i % lanes}, %f{(i + 3) % lanes}, %f{(i + 5) % lanes}, %f{i % lanes};\n")
        length += len(body[-1])
    return f"{head}{loads}{''.join(body)}{stores}ret;\n}}\n"


def link(ptx: bytes, arch: str) -> bytes:
    """Compile with nvJitLink."""
    handle = nvjitlink.create(2, [f"-arch={arch}", "-O3"])
    try:
        nvjitlink.add_data(handle, nvjitlink.InputType.PTX, ptx, len(ptx), "kernel.ptx")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin)


def find_ptxas() -> str | None:
    """Return the path of ptxas from the wheel nvidia-cuda-nvcc, else from PATH."""
    try:
        files = metadata.files("nvidia-cuda-nvcc") or []
    except metadata.PackageNotFoundError:
        files = []
    return next((str(file.locate()) for file in files if file.name == "ptxas"), shutil.which("ptxas"))


def tools(ptx: bytes, arch: str, scratch: Path) -> dict[str, Callable[[], object]]:
    """Return what each competitor does with *ptx*."""
    found: dict[str, Callable[[], object]] = {
        "assemble": lambda: assemble(ptx, arch),
        "nvjitlink": lambda: link(ptx, arch),
    }
    ptxas = find_ptxas()
    if ptxas:
        path = scratch / f"{len(ptx)}.ptx"
        path.write_bytes(ptx)

        def run_ptxas() -> bytes:
            with tempfile.NamedTemporaryFile(dir=scratch, suffix=".cubin") as output:
                command = [ptxas, f"-arch={arch}", "-O3", str(path), "-o", output.name]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                return Path(output.name).read_bytes()

        found["ptxas"] = run_ptxas
    return found


def measure(size: int, bench: _harness.Bench) -> None:
    """Measure PTX of about *size* characters, in one thread and in several at a time."""
    ptx = generate_ptx(size).encode()
    quick, repeats = bench.options.quick, bench.options.repeats
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as scratch:
        compilers = tools(ptx, bench.options.arch, Path(scratch))
        if "ptxas" not in compilers:
            bench.leave_out("ptxas", "neither the wheel nvidia-cuda-nvcc nor PATH has it")
        for threads in sorted({1, 2, cores, 2 * cores}):
            with ThreadPoolExecutor(threads) as pool:
                contenders = {
                    name: functools.partial(compile_at_once, pool, compile_one, threads)
                    for name, compile_one in compilers.items()
                }
                # The first turn loads libraries and starts threads.
                turns = repeats if size < 100_000 else max(repeats // 3, 1)
                samples = bench.in_turns(contenders, turns, warmup=not quick or size < 1000)
            bench.row({"bytes": len(ptx), "threads": threads, **_harness.compare(samples["time"])})


def compile_at_once(
    pool: ThreadPoolExecutor, compile_one: Callable[[], object], threads: int
) -> dict[str, list[float]]:
    """Return the seconds for one module where *threads* are compiled at a time."""
    begin = time.perf_counter()
    for future in [pool.submit(compile_one) for _ in range(threads)]:
        future.result()
    return {"time": [(time.perf_counter() - begin) / threads]}


def main() -> None:
    """Run the comparison."""
    sections = {str(size): functools.partial(measure, size) for size in SIZES}
    parser = _harness.make_parser(__doc__, sections, repeats=(15, 3))
    parser.add_argument("--arch", default="sm_90")
    _harness.run(
        parser,
        sections,
        nvptxcompiler="{}.{}".format(*compiler_version()),
        nvjitlink="{}.{}".format(*nvjitlink.version()),
        ptxas=find_ptxas(),
    )


if __name__ == "__main__":
    main()
