"""
Time PTX to cubin: assemble() beside nvJitLink and a ptxas process, on the same PTX, in one run.

nvJitLink may answer from the driver's compute cache where there is a driver, so the cache is off here.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["CUDA_CACHE_DISABLE"] = "1"

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


def measure(contenders: dict[str, Callable[[], object]], threads: int, repeats: int) -> dict[str, float]:
    """
    Return each contender's median milliseconds per module, *threads* modules at a time.

    The contenders take turns, so that a busy machine slows all of them.
    """
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(repeats + 1):
            for name, compile_one in contenders.items():
                start = time.perf_counter()
                for future in [pool.submit(compile_one) for _ in range(threads)]:
                    future.result()
                samples[name].append(1000 * (time.perf_counter() - start) / threads)
    # The first round loads libraries and starts threads.
    return {name: statistics.median(times[1:]) for name, times in samples.items()}


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


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()

    cores = len(os.sched_getaffinity(0))
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        for size in SIZES:
            ptx = generate_ptx(size).encode()
            contenders = tools(ptx, options.arch, Path(directory))
            repeats = max(3, options.repeats // 3) if size > 100_000 else options.repeats
            for threads in sorted({1, 2, cores, 2 * cores}):
                medians = measure(contenders, threads, repeats)
                rows.append({"bytes": len(ptx), "threads": threads, **medians})
    about = {
        "arch": options.arch,
        "cores": cores,
        "machine": platform.machine(),
        "nvptxcompiler": "{}.{}".format(*compiler_version()),
        "nvjitlink": "{}.{}".format(*nvjitlink.version()),
        "ptxas": find_ptxas(),
        "python": platform.python_version(),
    }
    if options.json:
        json.dump({"about": about, "unit": "ms per module, median", "rows": rows}, sys.stdout, indent=2)
        print()
        return
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print("\nms per module, median; in parentheses the multiple of assemble()\n")
    print(f"{'bytes':>8} {'threads':>7} {'assemble':>10} {'nvJitLink':>18} {'ptxas process':>18}")
    for row in rows:
        cells = [
            f"{row[name]:.2f} ({row[name] / row['assemble']:.2f}x)" if name in row else "not found"
            for name in ("nvjitlink", "ptxas")
        ]
        print(f"{row['bytes']:>8} {row['threads']:>7} {row['assemble']:>10.2f} {cells[0]:>18} {cells[1]:>18}")


if __name__ == "__main__":
    main()
