"""
Compiled kernels on the CPU, beside NumPy, a loop of CPython, and numba's simulator.

kernels: the same kernels, exported once; each launch reads and writes NumPy's arrays in place, with every
access checked and without. CPython and the simulator get fewer elements, since they would take minutes; all
times are for one element. calls: a call of a small function, and a module that is loaded and compiled.
"""

from __future__ import annotations

import functools
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _harness
import numpy as np

import numba_ptxlink as pl
from numba_ptxlink._cpu.run import Program, Region

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ARCH = "sm_80"
KERNELS = """
from numba import cuda, float32

def saxpy(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = 2 * x[i] + y[i]

def block_sum(x, y, n):
    shared = cuda.shared.array(256, float32)
    i, t = cuda.grid(1), cuda.threadIdx.x
    shared[t] = x[i] if i < n else 0
    cuda.syncthreads()
    step = 128
    while step:
        if t < step:
            shared[t] += shared[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        y[cuda.blockIdx.x] = shared[0]

def product(x, y, n):
    a, b = cuda.shared.array((16, 16), float32), cuda.shared.array((16, 16), float32)
    column, row, total = cuda.threadIdx.x, cuda.threadIdx.y, float32(0)
    down, right = cuda.blockIdx.y * 16 + row, cuda.blockIdx.x * 16 + column
    for start in range(0, n, 16):
        a[row, column] = x[down * n + start + column]
        b[row, column] = x[(start + row) * n + right]
        cuda.syncthreads()
        for k in range(16):
            total += a[row, k] * b[k, column]
        cuda.syncthreads()
    y[down * n + right] = total
"""
EXPORT = """
import numba_ptxlink
for function in (saxpy, block_sum, product):
    function = numba_ptxlink.kernel("void(CPointer(float32), CPointer(float32), int32)")(function)

@numba_ptxlink.udf("float32(float32, float32)")
def damp(x, k):
    return x / (1 + k * x * x)
"""
SIMULATOR = """
import sys, time
import numpy as np
n, grid, block, name = int(sys.argv[1]), eval(sys.argv[2]), eval(sys.argv[3]), sys.argv[4]
function = cuda.jit(globals()[name])
size = n * n if name == "product" else n
x, y = np.ones(size, np.float32), np.zeros(size, np.float32)
begin = time.perf_counter()
function[grid, block](x, y, n)
print(time.perf_counter() - begin)
"""
# For each kernel: the size, that for CPython, that for the simulator; the grid and the block; NumPy; a loop.
CASES: dict[str, Any] = {
    "saxpy": (
        (1_000_000, 100_000, 2_560),
        lambda n: (-(-n // 256), 256),
        lambda x, y: np.add(2 * x, y, out=y),
        "for i in range(n): y[i] = 2 * x[i] + y[i]",
    ),
    "block_sum": (
        (102_400, 102_400, 512),
        lambda n: (n // 256, 256),
        lambda x, _: x.reshape(-1, 256).sum(1),
        "for i in range(n): y[i // 256] += x[i]",
    ),
    "product": (
        (256, 64, 32),
        lambda n: ((n // 16, n // 16), (16, 16)),
        lambda x, _: x.reshape(256, 256) @ x.reshape(256, 256),
        (
            "for i in range(n):\n for j in range(n):\n"
            "  y[i * n + j] = sum(x[i * n + k] * x[k * n + j] for k in range(n))"
        ),
    ),
}


@functools.cache
def exported() -> str:
    """Return the kernels as PTX."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "udfs.py")
        source.write_text(KERNELS + EXPORT)
        return pl.export(source, folder, arch=ARCH, emit=["ptx"]).artifacts["ptx", ARCH].read_text()


def per_element(call: Callable[[], object], count: int) -> dict[str, list[float]]:
    """Call *call*; return its seconds for an element."""
    return {"time": [each / count for each in _harness.timed(call)["time"]]}


def simulated(name: str, size: int, count: int) -> dict[str, list[float]]:
    """Return the seconds for an element in numba's simulator, in a process of its own."""
    grid, block = CASES[name][1](size)
    done = subprocess.run(
        [sys.executable, "-c", KERNELS + SIMULATOR, str(size), repr(grid), repr(block), name],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return {"time": [float(done.stdout) / count]}


def kernels(bench: _harness.Bench) -> None:
    """Measure each kernel."""
    programs = {f"{word}checked": Program.of(exported(), checks=not word) for word in ("", "un")}
    for name, (sizes, shape, by_numpy, loop) in bench.each(CASES.items()):
        counts = [size**3 if name == "product" else size for size in sizes]
        elements = sizes[0] ** 2 if name == "product" else sizes[0]
        x, y = np.ones(elements, np.float32), np.zeros(elements, np.float32)
        regions = [Region(each.ctypes.data, each.nbytes, True, "array") for each in (x, y)]
        params = [*(struct.pack("Q", each.address) for each in regions), struct.pack("i", sizes[0])]
        grid, block = (each if isinstance(each, tuple) else (each,) for each in shape(sizes[0]))
        contenders: dict[str, Callable[[], Any]] = {
            word: functools.partial(
                per_element,
                functools.partial(
                    program.launch, name, grid=grid, block=block, params=params, regions=regions
                ),
                counts[0],
            )
            for word, program in programs.items()
        }
        contenders["NumPy"] = functools.partial(per_element, functools.partial(by_numpy, x, y), counts[0])
        few: dict[str, Any] = {"x": [1.0] * elements, "y": [0.0] * elements, "n": sizes[1]}
        code = compile(loop, "loop", "exec")
        contenders["CPython"] = functools.partial(per_element, functools.partial(exec, code, few), counts[1])
        contenders["simulator"] = functools.partial(simulated, name, sizes[2], counts[2])
        times = bench.in_turns(contenders, bench.options.repeats, warmup=1)["time"]
        bench.row({"kernel": name, "elements": counts[0], **_harness.compare(times, unit="ns", scale=1e9)})


def calls(bench: _harness.Bench) -> None:
    """Measure a call, a module out of the cache, and one that is compiled."""
    program = Program.of(exported())
    arguments = [struct.pack("f", each) for each in (0.5, 2.0)]
    contenders = {
        "call": lambda: program.call("damp", arguments),
        "load": lambda: Program.of(exported()),
        # Another text has another key.
        "compile": lambda: Program.of(f"{exported()}\n// {os.urandom(8).hex()}"),
    }
    timed = {name: functools.partial(_harness.timed, call) for name, call in contenders.items()}
    times = bench.in_turns(timed, bench.options.repeats, warmup=1)["time"]
    bench.row({"module": "three kernels, one function", **_harness.compare(times)})


def main(argv: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    sections = {"kernels": kernels, "calls": calls}
    parser = _harness.make_parser(__doc__, sections, repeats=(9, 3))
    _harness.run(parser, sections, argv)


if __name__ == "__main__":
    main()
