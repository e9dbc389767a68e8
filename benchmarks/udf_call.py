"""
What a call from C++ to an exported Python function costs, against the same function in the same C++ source.

NVRTC compiles that one source and, where there is one, nvcc does, too.

size: the bytes of each cubin.
time: each kernel calls its function in a loop; the time is the kernel's, by events. Needs a device.

A table of the times over those of one source comes last. The exit status is 1 where LTO costs more than 2 %
over one source, or inlined PTX more than 3 % over LTO, but not with --quick, which has too few launches to
tell.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

# Read when the package is imported: what is linked here is what this version links.
os.environ["NUMBA_PTXLINK_CACHE"] = "0"

import _harness
import numba
import numpy as np
from numba import cuda
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink._tools import find

if TYPE_CHECKING:
    from collections.abc import Sequence

BLOCKS, THREADS, TURNS = 1056, 256, 2000
SINGLE, NVCC, LTO, PTX, INLINED = "one source", "nvcc", "LTO", "PTX", "PTX inlined"
# The most that a ratio of times may be.
LIMITS = {f"{LTO}/{SINGLE}": 1.02, f"{INLINED}/{LTO}": 1.03}

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


@pl.udf("float32(float32, float32)", name="one_fma")
def one_fma(x: Any, y: Any) -> Any:
    """Multiply and add once."""
    return x * y + np.float32(0.5)


@pl.udf("float32(float32, float32)", name="many_fmas")
def many_fmas(x: Any, y: Any) -> Any:
    """Multiply and add 32 times."""
    for _ in range(32):
        x = x * y + np.float32(0.5)
    return x


@pl.udf("float32(float32, int64)", name="early")
def early(x: Any, turn: Any) -> Any:
    """Return at once in half of the cases."""
    if turn & 1:
        return x * np.float32(0.5)
    total = x
    for number in range(turn & 3):
        total += x * np.float32(number)
    return total


@cuda.jit(device=True)
def damped(x: Any) -> Any:
    """Stay below one."""
    return x / (np.float32(1) + abs(x))


@pl.udf("float32(float32, float32)", name="nested")
def nested(x: Any, y: Any) -> Any:
    """Call another device function twice."""
    return damped(x + y) + damped(x - y)


Large = namedtuple("Large", [f"v{number}" for number in range(25)])  # noqa: PYI024 - as above
LARGE = types.NamedUniTuple(types.float64, 25, Large)


@pl.udf("float64(LARGE, float64)", name="weigh")
def weigh(large: Any, weight: Any) -> Any:
    """Read some of 200 bytes that are passed by value."""
    return large.v0 * weight + large.v7 + large.v24


@pl.udf("float64(float64, int64)", name="ramp")
def ramp(x: Any, turn: Any) -> Any:
    """Convert a loop's counter."""
    return x * turn + 1.0


record = np.dtype([("mass", "f4"), ("charge", "f4"), ("id", "i8")], align=True)
RECORDS = types.Array(numba.from_dtype(record), 1, "C")


@pl.udf("float32(RECORDS, int64)", name="sample")
def sample(records: Any, turn: Any) -> Any:
    """Read two fields of a record in an array."""
    i = turn & 63
    return records[i].mass + records[i + 1].charge


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
        """float pick(numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> table, int64_t turn) {
            int64_t i = turn & 1023;
            return table.data[i] * 0.25f + table.data[i + 1] * 0.75f;
        }""",
        "float sum = 0; numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> view(table, 1025);",
        "sum += pick(view, turn + (int)seed);",
        "sum",
    ),
}
CASES |= {
    "one FMA": (
        one_fma,
        "float one_fma(float x, float y) { return x * y + 0.5f; }",
        "float x = seed;",
        "x = one_fma(x, 0.999f);",
        "x",
    ),
    "32 FMAs": (
        many_fmas,
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
        early,
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
        nested,
        """float nested(float x, float y) {
            return (x + y) / (1.0f + fabsf(x + y)) + (x - y) / (1.0f + fabsf(x - y));
        }""",
        "float x = seed;",
        "x = nested(x, 0.25f);",
        "x",
    ),
    "struct of 200 bytes": (
        weigh,
        "double weigh(Large large, double weight) { return large.v0 * weight + large.v7 + large.v24; }",
        "double sum = 0; Large large{}; large.v0 = seed; large.v7 = 1.0; large.v24 = 0.5;",
        "sum += weigh(large, 0.5); large.v7 = sum * 1e-9;",
        "(float)sum",
    ),
    "a counter as double": (
        ramp,
        "double ramp(double x, int64_t turn) { return x * turn + 1.0; }",
        "double sum = 0;",
        "sum += ramp(seed, turn);",
        "(float)sum",
    ),
    "array of records": (
        sample,
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
extern "C" __global__ void caller(float* out, float* table, int turns) {{
    float seed = threadIdx.x % 7;
    {begin}
    #pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {{ {turn} }}
    out[blockIdx.x * blockDim.x + threadIdx.x] = {end};
}}
"""


@functools.cache
def build(name: str, arch: pl.Arch) -> dict[str, bytes]:
    """
    Return the cubins by name.

    They are of one C++ source, by NVRTC and where there is one by nvcc, and of C++ linked with Python as
    LTO-IR, as PTX, and as inlined PTX.
    """
    function, in_cxx, begin, turn, end = CASES[name]
    kernel = KERNEL.format(begin=begin, turn=turn, end=end)
    with TemporaryDirectory() as folder:
        exported = pl.export([function], folder, arch=arch, emit=["ptx", "ltoir"], name="udf")
        # The header declares the function, so the C++ one is that function, defined in place.
        single = f'#include "udf.h"\nextern "C" __device__ __forceinline__ {in_cxx}\n{kernel}'
        options: dict[str, Any] = {"arch": arch, "include_dirs": [folder], "cxx_standard": "c++17"}
        caller = f'#include "udf.h"\n{kernel}'
        ptx = exported.artifacts["ptx", arch.sm]
        return {
            SINGLE: pl.link(single, lto=False, **options).cubin,
            **compile_by_nvcc(single, arch, Path(folder)),
            LTO: pl.link(caller, exported.artifacts["ltoir", arch.sm], lto=True, **options).cubin,
            PTX: pl.link(caller, ptx, lto=False, inline="none", **options).cubin,
            INLINED: pl.link(caller, ptx, lto=False, inline="all", **options).cubin,
        }


@functools.cache
def find_nvcc() -> str | None:
    """Return the path of the first nvcc of PATH, wheels and CUDA_HOME that compiles something."""
    for nvcc in find.programs("nvcc"):
        with TemporaryDirectory() as folder:
            file = Path(folder, "empty.cu")
            file.touch()
            command = [nvcc, "-cubin", str(file), "-o", f"{file}bin"]
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                return nvcc
    return None


def compile_by_nvcc(source: str, arch: pl.Arch, folder: Path) -> dict[str, bytes]:
    """Return the cubin that nvcc makes of *source*, by its name, and nothing where there is no nvcc."""
    nvcc = find_nvcc()
    if nvcc is None:
        return {}
    file = folder / "single.cu"
    file.write_text(source)
    command = [nvcc, "-cubin", f"-arch={arch.sm}", "-std=c++17", f"-I{folder}", str(file)]
    subprocess.run([*command, "-o", str(file.with_suffix(".cubin"))], check=True)
    return {NVCC: file.with_suffix(".cubin").read_bytes()}


def find_arch(bench: _harness.Bench) -> pl.Arch:
    """Return the arch that was asked for, else the device's, else some arch."""
    if bench.options.arch or _harness.missing_device():
        return pl.Arch.of(bench.options.arch or "sm_90")
    from cuda.core import Device

    return pl.Arch.of(tuple(Device(0).compute_capability))


def size(bench: _harness.Bench) -> None:
    """Measure the bytes of the cubins."""
    arch = find_arch(bench)
    if find_nvcc() is None:
        bench.leave_out(NVCC, "PATH, wheels and CUDA_HOME have none that compiles")
    for name in bench.each(CASES):
        if bench.out_of_time():
            raise _harness.LeftOutError(f"nothing begins after {bench.options.seconds:.0f} s")
        sizes = {f"{kind} bytes": len(cubin) for kind, cubin in build(name, arch).items()}
        bench.row({"call": name, "arch": str(arch.sm), **sizes})


def measure(bench: _harness.Bench) -> None:
    """Measure the kernels of each case in turns, and how far their results are apart."""
    if _harness.missing_device():
        raise _harness.LeftOutError(_harness.missing_device())
    from cuda.core import Device

    Device(0).set_current()
    arch = pl.Arch.of(tuple(Device(0).compute_capability))
    for name in bench.each(CASES):
        results: dict[str, np.ndarray] = {}
        contenders = load(build(name, arch), results)
        samples = bench.in_turns(contenders, bench.options.repeats, warmup=5)
        differences = {
            f"{kind}, largest difference": float(np.abs(result - results[SINGLE]).max())
            for kind, result in results.items()
            if kind != SINGLE
        }
        times = samples["time"]
        pairs = (
            (base, kind) for base, kind in ((LTO, INLINED), (NVCC, LTO), (NVCC, INLINED)) if base in times
        )
        further = {
            key: cell
            for pair in pairs
            for key, cell in _harness.compare({kind: times[kind] for kind in pair}).items()
            if "/" in key
        }
        bench.row({"call": name, **_harness.compare(times), **further, **differences})


def load(cubins: dict[str, bytes], results: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return for each cubin what launches its kernel once, and keeps in *results* what that computed."""
    from cuda.bindings import driver
    from numba import cuda

    def check(answer: tuple[Any, ...]) -> Any:
        if int(answer[0]):
            raise RuntimeError(answer[0].name)
        return answer[1] if len(answer) > 1 else None

    table = cuda.to_device(np.linspace(0, 1, 1025, dtype=np.float32))
    out = cuda.to_device(np.zeros(BLOCKS * THREADS, np.float32))
    values = [np.array([array.__cuda_array_interface__["data"][0]], np.uint64) for array in (out, table)]
    values.append(np.array([TURNS], np.int32))
    addresses = np.array([value.ctypes.data for value in values], np.uint64)
    begin, end = (check(driver.cuEventCreate(0)) for _ in range(2))

    # The arguments are the addresses of *values* and *table*, which have to live as long as this.
    def launch(name: str, kernel: Any, _: Any) -> dict[str, list[float]]:
        check(driver.cuEventRecord(begin, 0))
        check(driver.cuLaunchKernel(kernel, BLOCKS, 1, 1, THREADS, 1, 1, 0, 0, addresses.ctypes.data, 0))
        check(driver.cuEventRecord(end, 0))
        check(driver.cuEventSynchronize(end))
        results[name] = out.copy_to_host()
        return {"time": [check(driver.cuEventElapsedTime(begin, end)) / 1e3]}

    contenders = {}
    for name, cubin in cubins.items():
        module = check(driver.cuModuleLoadData(cubin))
        kernel = check(driver.cuModuleGetFunction(module, b"caller"))
        contenders[name] = functools.partial(launch, name, kernel, (values, table))
    return contenders


def summarize(rows: list[dict[str, Any]]) -> bool:
    """Print the ratios of times in one table; return whether one is above its limit."""
    columns = (f"{LTO}/{SINGLE}", f"{PTX}/{SINGLE}", f"{INLINED}/{SINGLE}", f"{INLINED}/{LTO}")
    rows = [row for row in rows if columns[0] in row]
    if not rows:
        return False
    above = [(row["call"], key) for row in rows for key, most in LIMITS.items() if row[key]["median"] > most]
    print(f"\n{'median ratios':22}", *(f"{key:>24}" for key in columns))
    for row in rows:
        marks = ("*" if (row["call"], key) in above else " " for key in columns)
        cells = (f"{row[key]['median']:.3f}{mark}" for key, mark in zip(columns, marks, strict=True))
        print(f"{row['call']:22}", *(f"{cell:>24}" for cell in cells))
    limits = ", ".join(f"{key} above {most}" for key, most in LIMITS.items())
    print(f"{len(rows)} of {len(CASES)} cases, {len(above)} marked * for {limits}")
    return bool(above)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 where a ratio is above its limit."""
    sections = {"size": size, "time": measure}
    parser = _harness.make_parser(__doc__, sections, repeats=(51, 15))
    parser.add_argument("--arch", help="the arch of the sizes (default: the device's, without one sm_90)")
    bench = _harness.run(parser, sections, argv)
    above = summarize(bench.report["rows"])
    return int(above and not bench.options.quick)


if __name__ == "__main__":
    sys.exit(main())
