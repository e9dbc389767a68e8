"""
Call functions from C++ kernels on a device: Python functions, linked in several ways, or functions in C++.

`prepare` builds the kernels in one way. `run` loads the kernels and launches each several times; the time is
measured on the device.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import timing

BLOCKS, THREADS, TURNS, LAUNCHES = 1056, 256, 2000, 7
WARM_UP_SECONDS = 0.2
# For each figure: the symbol, the function in C++, and three parts of the kernel: its first statements, one
# turn of its loop, and its result.
CASES = {
    "struct by value": (
        "step",
        """Body step(Body b, float dt) {
            float vx = b.vx - dt * b.x, vy = b.vy - dt * b.y;
            return Body{b.x + dt * vx, b.y + dt * vy, vx, vy};
        }""",
        "Body b{seed, 1.0f, 0.5f, -seed};",
        "b = step(b, 0.001f);",
        "b.x + b.y + b.vx + b.vy",
    ),
    "complex": (
        "iterate",
        """cuFloatComplex iterate(cuFloatComplex z, cuFloatComplex c) {
            return make_cuFloatComplex(z.x * z.x - z.y * z.y + c.x, z.x * z.y + z.y * z.x + c.y);
        }""",
        "cuFloatComplex z = make_cuFloatComplex(0, 0), c = make_cuFloatComplex(seed * 0.01f, 0.1f);",
        "z = iterate(z, c);",
        "z.x + z.y",
    ),
    "array": (
        "pick",
        """float pick(numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> table, int64_t turn) {
            int64_t i = turn & 1023;
            return table.data[i] * 0.25f + table.data[i + 1] * 0.75f;
        }""",
        "float sum = 0; numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> view(table, 1025);",
        "sum += pick(view, turn + (int)seed);",
        "sum",
    ),
    "one FMA": (
        "one_fma",
        "float one_fma(float x, float y) { return x * y + 0.5f; }",
        "float x = seed;",
        "x = one_fma(x, 0.999f);",
        "x",
    ),
    "32 FMAs": (
        "many_fmas",
        """float many_fmas(float x, float y) {
            #pragma unroll
            for (int i = 0; i < 32; ++i) x = x * y + 0.5f;
            return x;
        }""",
        "float x = seed;",
        "x = many_fmas(x, 0.999f);",
        "x",
    ),
    "early return": (
        "early",
        """float early(float x, int64_t turn) {
            if (turn & 1) return x * 0.5f;
            float total = x;
            for (int64_t number = 0; number < (turn & 3); ++number) total += x * (float)number;
            return total;
        }""",
        "float x = seed;",
        "x = early(x, turn + (int)seed);",
        "x",
    ),
    "nested call": (
        "nested",
        """float nested(float x, float y) {
            return (x + y) / (1.0f + fabsf(x + y)) + (x - y) / (1.0f + fabsf(x - y));
        }""",
        "float x = seed;",
        "x = nested(x, 0.25f);",
        "x",
    ),
    "struct of 200 bytes": (
        "weigh",
        "double weigh(Large large, double weight) { return large.v0 * weight + large.v7 + large.v24; }",
        "double sum = 0; Large large{}; large.v0 = seed; large.v7 = 1.0; large.v24 = 0.5;",
        "sum += weigh(large, 0.5); large.v7 = sum * 1e-9;",
        "(float)sum",
    ),
    "a counter as double": (
        "ramp",
        "double ramp(double x, int64_t turn) { return x * turn + 1.0; }",
        "double sum = 0;",
        "sum += ramp(seed, turn);",
        "(float)sum",
    ),
    "array of records": (
        "sample",
        """float sample(numba_ptxlink::array_view<record, 1, numba_ptxlink::layout_c> records, int64_t turn) {
            int64_t i = turn & 63;
            return records.data[i].mass + records.data[i + 1].charge;
        }""",
        """float sum = 0;
            numba_ptxlink::array_view<record, 1, numba_ptxlink::layout_c> view((record*)table, 65);""",
        "sum += sample(view, turn + (int)seed);",
        "sum",
    ),
}
KERNEL = """
extern "C" __global__ void call_{symbol}(float* out, float* table, int turns) {{
    float seed = threadIdx.x % 7;
    {begin}
    #pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {{ {turn} }}
    out[blockIdx.x * blockDim.x + threadIdx.x] = {end};
}}
"""


def prepare(way: str, arch: str) -> None:
    """Build the kernels for *arch* in the working directory, in one of the ways of `rows.call`."""
    import numba_ptxlink as pl

    module = Path(__file__).with_name("called.py")
    exported = pl.export(module, ".", arch=arch, emit=["ptx", "ltoir"], name="udf")
    kernels = "".join(
        KERNEL.format(symbol=symbol, begin=begin, turn=turn, end=end)
        for symbol, _, begin, turn, end in CASES.values()
    )
    # The header declares the functions, and the C++ source may define them.
    functions_in_cxx = "".join(
        f'extern "C" __device__ __forceinline__ {function}\n' for _, function, *_ in CASES.values()
    )
    single, caller = (f'#include "udf.h"\n{definitions}{kernels}' for definitions in (functions_in_cxx, ""))
    options: dict[str, Any] = {"arch": arch, "include_dirs": ["."], "cxx_standard": "c++17"}
    ptx, ltoir = (exported.artifacts[kind, arch] for kind in ("ptx", "ltoir"))
    cubin = Path("code.cubin")
    if way == "nvcc":
        Path("single.cu").write_text(single)
        command = [shutil.which("nvcc") or "nvcc", "-cubin", f"-arch={arch}", "-std=c++17", "-I."]
        subprocess.run([*command, "single.cu", "-o", str(cubin)], check=True)
    elif way == "one source":
        cubin.write_bytes(pl.link(single, lto=False, **options).cubin)
    elif way == "LTO":
        cubin.write_bytes(pl.link(caller, ltoir, lto=True, **options).cubin)
    else:
        inline = {"PTX": "none", "PTX inlined": "all"}[way]
        cubin.write_bytes(pl.link(caller, ptx, lto=False, inline=inline, **options).cubin)


def run() -> None:
    """Time the kernels that were built."""
    import numpy as np
    from cuda.bindings import driver
    from cuda.core import Device

    def check(result: tuple[Any, ...]) -> Any:
        """Return the value in the result of a driver function; end the process if the status is an error."""
        status, *values = result
        if int(status):
            sys.exit(status.name)
        return values[0] if values else None

    Device(0).set_current()
    table = np.linspace(0, 1, 1025, dtype=np.float32)
    out_size = 4 * BLOCKS * THREADS
    out, device_table = (int(check(driver.cuMemAlloc(size))) for size in (out_size, table.nbytes))
    check(driver.cuMemcpyHtoD(device_table, table.ctypes.data, table.nbytes))
    values = [np.array([out], np.uint64), np.array([device_table], np.uint64), np.array([TURNS], np.int32)]
    arguments = np.array([value.ctypes.data for value in values], np.uint64)
    begin, end = (check(driver.cuEventCreate(0)) for _ in range(2))
    module = check(driver.cuModuleLoadData(Path("code.cubin").read_bytes()))

    def launch(kernel: Any) -> float:
        """Launch *kernel*; return its time in seconds."""
        check(driver.cuEventRecord(begin, 0))
        check(driver.cuLaunchKernel(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, 0, arguments.ctypes.data, 0))
        check(driver.cuEventRecord(end, 0))
        check(driver.cuEventSynchronize(end))
        return check(driver.cuEventElapsedTime(begin, end)) / 1e3

    kernels = {
        name: check(driver.cuModuleGetFunction(module, f"call_{symbol}".encode()))
        for name, (symbol, *_) in CASES.items()
    }
    # Launch kernels first, since the device's clock rises only when the device has work.
    start_time = time.perf_counter()
    while time.perf_counter() < start_time + WARM_UP_SECONDS:
        launch(kernels["32 FMAs"])
    medians = {
        name: statistics.median(launch(kernel) for _ in range(LAUNCHES)) for name, kernel in kernels.items()
    }
    # The processor time is no figure, since the processor only waits.
    timing.print_figures({name: (seconds, 0.0) for name, seconds in medians.items()})


if __name__ == "__main__":
    prepare(*sys.argv[2:]) if sys.argv[1] == "prepare" else run()
