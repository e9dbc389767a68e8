"""
The time from the start of Python to the end of its first kernel: `load()`, numba-cuda, and cuda.core.

Each turn starts one interpreter for each contender, which launches a kernel, compares what it wrote, and says
that it is done; the time ends there. "numba cached" is `@cuda.jit(cache=True)` whose cache is filled, "numba"
compiles, both by numba-cuda's own linker; "cuda.core" loads the same machine code. Without a device only the
work in Python is measured: imports, the manifest, and the arguments up to the driver.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path
from typing import TYPE_CHECKING

import _harness

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZE = 1 << 16
UDFS = """
from numba import cuda
from numba_ptxlink import kernel

@kernel("void(CPointer(float32), int32, float32)")
def fill(out, size, value):
    i = cuda.grid(1)
    if i < size:
        out[i] = value * i
"""
NUMBA = """
import numpy as np
from numba import cuda

@cuda.jit(cache={cache})
def fill(out, value):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = value * i

out = cuda.device_array({size}, np.float32)
fill[{size} // 256, 256](out, np.float32(0.5))
assert out.copy_to_host()[-1] == 0.5 * ({size} - 1)
print("done", flush=True)
"""
# Neither needs a package for the memory.
MEMORY = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, address, last = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_float()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * {size})) == 0
"""
COMPARE = """
place = ctypes.c_uint64(address.value + 4 * ({size} - 1))
assert cuda.cuMemcpyDtoH_v2(ctypes.byref(last), place, ctypes.c_size_t(4)) == 0
assert last.value == 0.5 * ({size} - 1)
print("done", flush=True)
"""
LOAD = """
import numba_ptxlink
udfs = numba_ptxlink.load("udfs.json")
udfs.fill[{size} // 256, 256](address.value, {size}, 0.5)
"""
CORE = """
from pathlib import Path
from cuda.core import Device, LaunchConfig, ObjectCode, launch
import ctypes
device = Device(0)
device.set_current()
kernel = ObjectCode.from_fatbin(Path("udfs.kernels.fatbin").read_bytes()).get_kernel("fill")
config = LaunchConfig(grid={size} // 256, block=256)
arguments = address.value, ctypes.c_int({size}), ctypes.c_float(0.5)
launch(device.default_stream, config, kernel, *arguments)
"""
PYTHON = {
    "import numba.cuda": 'import numba.cuda; print("done", flush=True)',
    "load and pack": f"""
import numba_ptxlink
from numba_ptxlink._launch.arrays import Launch
numba_ptxlink.load("udfs.json").fill._pack((1 << 40, {SIZE}, 0.5), Launch(0))
print("done", flush=True)
""",
    "import cuda.core": 'import cuda.core; print("done", flush=True)',
    "nothing": 'print("done", flush=True)',
}


def export(folder: Path, arch: str) -> None:
    """Export the kernel into *folder*."""
    import numba_ptxlink as pl

    (folder / "udfs.py").write_text(UDFS)
    pl.export(folder / "udfs.py", folder, arch=arch, emit=["kernels"])


def until_done(folder: Path, *command: str) -> dict[str, list[float]]:
    """Return the seconds from the start of Python until it says that it is done."""
    environ = {**os.environ, "NUMBA_PTXLINK": "0"}
    begun = timeit.default_timer()
    process = subprocess.Popen([sys.executable, *command], cwd=folder, env=environ, stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        line = process.stdout.readline()
        seconds = timeit.default_timer() - begun
    if line != b"done\n" or process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return {"time": [seconds]}


def shown(name: str, folder: Path, *command: str) -> dict[str, list[float]]:
    """Return what `until_done` does, and print it: a start on a device can take seconds."""
    sample = until_done(folder, *command)
    print(f"  {name}: {1e3 * sample['time'][0]:.0f} ms", flush=True)
    return sample


def python(bench: _harness.Bench) -> None:
    """Measure what happens before the driver is asked for anything."""
    with tempfile.TemporaryDirectory() as scratch:
        export(Path(scratch), "sm_90")
        contenders = {
            name: functools.partial(until_done, Path(scratch), "-c", program)
            for name, program in PYTHON.items()
        }
        samples = bench.in_turns(contenders, bench.options.repeats, warmup=1)
    bench.row(_harness.compare(samples["time"]))


def kernel(bench: _harness.Bench) -> None:
    """Measure the time to the first kernel."""
    if _harness.missing_device():
        raise _harness.LeftOutError(_harness.missing_device())
    from cuda.core import Device

    capability = Device(0).compute_capability
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        export(folder, f"sm_{capability.major}{capability.minor}")
        programs = {
            "numba cached": NUMBA.format(cache=True, size=SIZE),
            "load": (MEMORY + LOAD + COMPARE).format(size=SIZE),
            "cuda.core": (MEMORY + CORE + COMPARE).format(size=SIZE),
            "numba": NUMBA.format(cache=False, size=SIZE),
        }
        contenders = {}
        for number, (name, program) in enumerate(programs.items()):
            # A cache wants a file that does not change.
            file = folder / f"program{number}.py"
            file.write_text(program)
            contenders[name] = functools.partial(shown, name, folder, file.name)
        # It takes longest, and what it compares with is its own cache.
        compiling = {"numba": contenders.pop("numba")}
        samples = bench.in_turns(contenders, bench.options.repeats, warmup=1)
        bench.row({"kernel": "fill", **_harness.compare(samples["time"])})
        samples = bench.in_turns(compiling, min(3, bench.options.repeats))
    bench.row({"compiled": "fill", **_harness.compare(samples["time"])})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 where `load()` takes more than 0.4 times numba-cuda's cached kernel."""
    sections = {"python": python, "kernel": kernel}
    parser = _harness.make_parser(__doc__, sections, repeats=(10, 3))
    bench = _harness.run(parser, sections, argv)
    ratios = [row["load/numba cached"]["median"] for row in bench.report["rows"] if "kernel" in row]
    return int(not bench.options.quick and max(ratios, default=0) > 0.4)


if __name__ == "__main__":
    sys.exit(main())
