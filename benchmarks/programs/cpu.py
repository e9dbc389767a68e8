"""
Run kernels and functions without a GPU: by this package, NumPy, a loop of CPython, and numba's simulator.

Times of kernels are for one element, since CPython and the simulator compute fewer elements. `prepare`
exports the kernels; any other argument is one of `WAYS`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import timing

if TYPE_CHECKING:
    from collections.abc import Callable

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
# A file with {count} kernels: one, or as many as a large project has in one module.
MANY_KERNELS = """
import numba_ptxlink
signature = "void(CPointer(float32), CPointer(float32), int32)"
for number in range({count}):
    numba_ptxlink.kernel(signature, name=f"kernel_{{number}}")(product)
"""
# The number of kernels in each module, by its name.
MODULES = {"one": 1, "forty": 40}
# The work of each kernel in Python.
LOOPS = {
    "saxpy": "for i in range(n): y[i] = 2 * x[i] + y[i]",
    "block_sum": "for i in range(n): y[i // 256] += x[i]",
    "product": (
        "for i in range(n):\n for j in range(n):\n"
        "  y[i * n + j] = sum(x[i * n + k] * x[k * n + j] for k in range(n))"
    ),
}
# The size `n` of each kernel, by the tool that runs it.
SIZES = {
    "compiled": {"saxpy": 1_000_000, "block_sum": 102_400, "product": 256},
    "CPython": {"saxpy": 100_000, "block_sum": 102_400, "product": 64},
    "simulator": {"saxpy": 512, "block_sum": 256, "product": 16},
}
CALLS = 100


def grid_of(name: str, n: int) -> Any:
    """Return the blocks and the threads of the kernel *name* for the size *n*."""
    if name == "product":
        return (n // 16, n // 16), (16, 16)
    blocks = -(-n // 256)  # Rounded up.
    return blocks, 256


def arrays(name: str, n: int) -> list[np.ndarray]:
    """Return the input and the output array of the kernel *name* for the size *n*."""
    size = n * n if name == "product" else n
    return [np.ones(size, np.float32), np.zeros(size, np.float32)]


def run_compiled(*, checks: bool | tuple[str, ...]) -> dict[str, timing.Seconds]:
    """Run the code that this package compiles, with *checks* as for `load`."""
    import numba_ptxlink

    library = numba_ptxlink.load("udfs.json", device="cpu", checks=checks)
    library.damp(0.5, 2.0)
    figures = {"start to first call": timing.since_start()}
    wall, cpu = timing.time_call(lambda: [library.damp(0.5, 2.0) for _ in range(CALLS)])
    figures["a function's later calls"] = wall / CALLS, cpu / CALLS

    def launch(name: str, x: np.ndarray, y: np.ndarray, n: int) -> None:
        getattr(library, name)[grid_of(name, n)](x, y, n)

    return figures | time_kernels(launch, SIZES["compiled"])


def launch_first(stem: str) -> dict[str, timing.Seconds]:
    """Load the export *stem*.json and launch one of its kernels."""
    import numba_ptxlink

    pair, grid = arrays("product", 16), grid_of("product", 16)

    def load_and_launch() -> None:
        numba_ptxlink.load(f"{stem}.json", device="cpu").kernel_0[grid](*pair, 16)

    return {"the first launch": timing.time_call(load_and_launch)}


def run_numpy() -> dict[str, timing.Seconds]:
    """Compute the results of the kernels with NumPy."""
    ways: dict[str, Callable[[np.ndarray, np.ndarray, int], object]] = {
        "saxpy": lambda x, y, _: np.add(2 * x, y, out=y),
        "block_sum": lambda x, _, __: x.reshape(-1, 256).sum(1),
        "product": lambda x, _, n: x.reshape(n, n) @ x.reshape(n, n),
    }
    return time_kernels(lambda name, *rest: ways[name](*rest), SIZES["compiled"])


def run_python() -> dict[str, timing.Seconds]:
    """Compute the results of the kernels with Python loops over lists."""

    def loop(name: str, x: np.ndarray, y: np.ndarray, n: int) -> None:
        exec(LOOPS[name], {"x": x, "y": y, "n": n})  # noqa: S102 - this program's own text

    return time_kernels(loop, SIZES["CPython"], lists=True)


def run_numba(tool: str) -> dict[str, timing.Seconds]:
    """
    Run the kernels by Numba: its simulator, or numba-cuda on the CPU device, as the environment says.

    Args:
        tool: A key of `SIZES`.
    """
    names: dict[str, Any] = {}
    exec(KERNELS, names)  # noqa: S102 - this program's own text
    kernels = {name: names["cuda"].jit(names[name]) for name in LOOPS}

    def launch(name: str, x: np.ndarray, y: np.ndarray, n: int) -> None:
        kernels[name][grid_of(name, n)](x, y, n)

    return time_kernels(launch, SIZES[tool])


def time_kernels(
    launch: Callable[..., object], sizes: dict[str, int], *, lists: bool = False
) -> dict[str, timing.Seconds]:
    """
    Return the seconds for an element of each kernel; a first launch of each does not count.

    Args:
        launch: Called with the name of the kernel, its two arrays, and the size.
        sizes: The size of each kernel.
        lists: Whether the arrays are passed as lists.
    """
    figures = {}
    for name, n in sizes.items():
        for _ in range(2):
            pair = arrays(name, n)
            arguments = [array.tolist() for array in pair] if lists else pair
            wall, cpu = timing.time_call(
                lambda name=name, arguments=arguments, n=n: launch(name, *arguments, n)
            )
        # The product of two matrices adds n products for each of its n * n elements.
        count = n**3 if name == "product" else n
        figures[f"{name}, an element"] = wall / count, cpu / count
    return figures


def prepare() -> None:
    """Export the kernels and the function, and modules of one and of many kernels."""
    Path("udfs.py").write_text(KERNELS + EXPORT)
    for stem, count in MODULES.items():
        Path(f"{stem}.py").write_text(KERNELS + MANY_KERNELS.format(count=count))
    files = [f"{stem}.py" for stem in ("udfs", *MODULES)]
    command = ["-m", "numba_ptxlink", "export", *files, "-o", ".", "--emit", "ptx", "--quiet"]
    subprocess.run([sys.executable, *command], check=True)


WAYS: dict[str, Callable[[], dict[str, timing.Seconds]]] = {
    "checked": lambda: run_compiled(checks=True),
    "unchecked": lambda: run_compiled(checks=False),
    **{
        check: lambda check=check: run_compiled(checks=(check,))
        for check in ("initcheck", "racecheck", "synccheck")
    },
    **{stem: lambda stem=stem: launch_first(stem) for stem in MODULES},
    "NumPy": run_numpy,
    "CPython": run_python,
    "device": lambda: run_numba("compiled"),
    "simulator": lambda: run_numba("simulator"),
}

if __name__ == "__main__":
    prepare() if sys.argv[1] == "prepare" else timing.print_figures(WAYS[sys.argv[1]]())
