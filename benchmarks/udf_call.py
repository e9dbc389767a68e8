"""
What a call from C++ to an exported Python function costs, against the same function in the same C++ source.

Needs a device. Each kernel calls its function in a loop; the time is the kernel's, by events, the median of
many launches.

    python benchmarks/udf_call.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import namedtuple
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.cuda import types

import numba_ptxlink as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS, THREADS, TURNS = 1056, 256, 2000

Body = namedtuple("Body", "x y vx vy")  # noqa: PYI024 - Numba's type of it is given below
BODY = types.NamedUniTuple(types.float32, 4, Body)


@pl.udf(BODY(BODY, types.float32), name="step")
def step(body: Any, dt: Any) -> Any:
    """Move a body that a spring pulls to the origin: a struct by value, both ways."""
    vx = body.vx - dt * body.x
    vy = body.vy - dt * body.y
    return Body(body.x + dt * vx, body.y + dt * vy, vx, vy)


@pl.udf("complex64(complex64, complex64)", name="iterate")
def iterate(z: Any, c: Any) -> Any:
    """One turn of z*z + c."""
    return z * z + c


@pl.udf("float32(float32[::1], int64)", name="pick")
def pick(table: Any, turn: Any) -> Any:
    """Interpolate between two neighbours in a table."""
    i = turn & 1023
    return table[i] * np.float32(0.25) + table[i + 1] * np.float32(0.75)


# Name, the function in C++, what one thread starts with, what a turn does, and what a thread ends with.
CASES = {
    "struct by value": (
        step,
        """Body step(Body b, float dt) {
            float vx = b.vx - dt * b.x, vy = b.vy - dt * b.y;
            return Body{b.x + dt * vx, b.y + dt * vy, vx, vy};
        }""",
        "Body b{seed, 1.0f, 0.5f, -seed};",
        "b = step(b, 0.001f);",
        "b.x + b.y + b.vx + b.vy",
    ),
    "complex": (
        iterate,
        """cuFloatComplex iterate(cuFloatComplex z, cuFloatComplex c) {
            return make_cuFloatComplex(z.x * z.x - z.y * z.y + c.x, z.x * z.y + z.y * z.x + c.y);
        }""",
        "cuFloatComplex z = make_cuFloatComplex(0, 0), c = make_cuFloatComplex(seed * 0.01f, 0.1f);",
        "z = iterate(z, c);",
        "z.x + z.y",
    ),
    "array": (
        pick,
        """float pick(numba_ptxlink::array_view<float, 1> table, int64_t turn) {
            int64_t i = turn & 1023;
            return table.data[i] * 0.25f + table.data[i + 1] * 0.75f;
        }""",
        "float sum = 0; numba_ptxlink::array_view<float, 1> view(table, 1025);",
        "sum += pick(view, turn + (int)seed);",
        "sum",
    ),
}
KERNEL = """
extern "C" __global__ void caller(float* out, float* table, int turns) {{
    float seed = threadIdx.x % 7;
    {begin}
    #pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {{ {turn} }}
    out[blockIdx.x * blockDim.x + threadIdx.x] = {end};
}}
"""


def variants(folder: Path, case: Sequence[Any], arch: pl.Arch) -> dict[str, bytes]:
    """Return the cubins to compare: one C++ source, and C++ linked with Python as LTO-IR and as PTX."""
    function, in_cxx, begin, turn, end = case
    made = pl.export([function], folder, archs=[arch], emit=["ptx", "ltoir"], name="udf")
    kernel = KERNEL.format(begin=begin, turn=turn, end=end)
    # The header declares the function, so the C++ one is that function, defined in place.
    single = f'#include "udf.h"\nextern "C" __device__ __forceinline__ {in_cxx}\n{kernel}'
    options: dict[str, Any] = {"arch": arch, "include_dirs": [folder], "nvrtc_flags": ["-std=c++17"]}
    caller = f'#include "udf.h"\n{kernel}'
    return {
        "one source": pl.link(single, lto=False, **options).cubin,
        "LTO": pl.link(caller, made.artifacts["ltoir", arch.sm], lto=True, **options).cubin,
        "PTX": pl.link(caller, made.artifacts["ptx", arch.sm], lto=False, **options).cubin,
    }


def measure(cubins: dict[str, bytes], launches: int) -> dict[str, tuple[float, np.ndarray]]:
    """Return for each cubin the median time of a launch in milliseconds, and what it computed."""
    from cuda.bindings import driver
    from numba import cuda

    def check(answer: tuple[Any, ...]) -> Any:
        if int(answer[0]):
            raise RuntimeError(answer[0].name)
        return answer[1] if len(answer) > 1 else None

    table = cuda.to_device(np.linspace(0, 1, 1025, dtype=np.float32))
    out = cuda.to_device(np.zeros(BLOCKS * THREADS, np.float32))
    values = [np.array([each.__cuda_array_interface__["data"][0]], np.uint64) for each in (out, table)]
    values.append(np.array([TURNS], np.int32))
    addresses = np.array([value.ctypes.data for value in values], np.uint64)
    modules = {name: check(driver.cuModuleLoadData(code)) for name, code in cubins.items()}
    kernels = {name: check(driver.cuModuleGetFunction(each, b"caller")) for name, each in modules.items()}
    begin, end = (check(driver.cuEventCreate(0)) for _ in range(2))
    times: dict[str, list[float]] = {name: [] for name in cubins}
    results = {}
    # Turn by turn, so that a change of the clock meets all alike; the first turns warm up.
    for turn in range(launches + 5):
        for name, kernel in kernels.items():
            check(driver.cuEventRecord(begin, 0))
            check(driver.cuLaunchKernel(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, 0, addresses.ctypes.data, 0))
            check(driver.cuEventRecord(end, 0))
            check(driver.cuEventSynchronize(end))
            if turn >= 5:
                times[name].append(check(driver.cuEventElapsedTime(begin, end)))
            results[name] = out.copy_to_host()
    return {name: (statistics.median(times[name]), results[name]) for name in cubins}


def main() -> int:
    """Print the table; return 1 where LTO costs more than 2 % over one source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    parser.add_argument("--launches", type=int, default=51, help="how many launches of each to time")
    parser.add_argument("--build-only", metavar="ARCH", help="link for an arch and run nothing")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    worst = 0.0
    for name, case in CASES.items():
        with TemporaryDirectory() as folder:
            if options.build_only:
                sizes = {
                    kind: len(code)
                    for kind, code in variants(Path(folder), case, pl.Arch.of(options.build_only)).items()
                }
                print(f"{name:16} {sizes}")
                continue
            from cuda.core import Device

            Device(0).set_current()
            arch = pl.Arch.of(tuple(Device(0).compute_capability))
            found = measure(variants(Path(folder), case, arch), options.launches)
        base, reference = found["one source"]
        figures[name] = {
            kind: {
                "ms": time,
                "ratio": time / base,
                "largest_difference": float(np.abs(result - reference).max()),
            }
            for kind, (time, result) in found.items()
        }
        worst = max(worst, figures[name]["LTO"]["ratio"])
        cells = "  ".join(
            f"{kind} {each['ms']:.4f} ms ({each['ratio']:.3f})" for kind, each in figures[name].items()
        )
        print(f"{name:16} {cells}")
    if options.json and figures:
        described = {"blocks": BLOCKS, "threads": THREADS, "turns": TURNS, "figures": figures}
        options.json.write_text(json.dumps(described, indent=2) + "\n")
    return int(worst > 1.02)


if __name__ == "__main__":
    sys.exit(main())
