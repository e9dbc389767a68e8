"""
Run one kernel on a device, from the start of Python to the result: by `load()`, `cache=True`, or cuda.core.

`prepare` exports the kernel; any other argument is one of `WAYS`. For `load()` and cuda.core, the driver
allocates the memory.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import timing

SIZE = 1 << 16
LAST_ELEMENT = 0.5 * (SIZE - 1)
UDFS = """
from numba import cuda
from numba_ptxlink import kernel

@kernel("void(CPointer(float32), int32, float32)")
def fill(out, size, value):
    i = cuda.grid(1)
    if i < size:
        out[i] = value * i
"""


def prepare(arch: str) -> None:
    """Export the kernel for *arch*."""
    Path("udfs.py").write_text(UDFS)
    command = ["-m", "numba_ptxlink", "export", "udfs.py", "-o", ".", "--arch", arch, "--emit", "kernels"]
    subprocess.run([sys.executable, *command, "--quiet"], check=True)


class Memory:
    """Device memory for the result, allocated with the driver API."""

    def __init__(self) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, self.address = ctypes.c_void_p(), ctypes.c_uint64()
        self.check(self.driver.cuInit(0))
        self.check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self.check(self.driver.cuCtxSetCurrent(context))
        self.check(self.driver.cuMemAlloc_v2(ctypes.byref(self.address), ctypes.c_size_t(4 * SIZE)))

    @staticmethod
    def check(status: int) -> None:
        """End the process if a function of the driver failed."""
        if status:
            sys.exit(f"a function of the driver failed with {status}")

    def read_last(self) -> float:
        """Return the last element of the result."""
        element = ctypes.c_float()
        address = ctypes.c_uint64(self.address.value + 4 * (SIZE - 1))
        self.check(self.driver.cuMemcpyDtoH_v2(ctypes.byref(element), address, ctypes.c_size_t(4)))
        return element.value


def run_by_load() -> float:
    """Launch the exported kernel."""
    import numba_ptxlink

    memory = Memory()
    numba_ptxlink.load("udfs.json").fill[SIZE // 256, 256](memory.address.value, SIZE, 0.5)
    return memory.read_last()


def run_by_cuda_core() -> float:
    """Launch the same machine code by cuda.core."""
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    memory = Memory()
    device = Device(0)
    device.set_current()
    kernel = ObjectCode.from_fatbin(Path("udfs.kernels.fatbin").read_bytes()).get_kernel("fill")
    config = LaunchConfig(grid=SIZE // 256, block=256)
    arguments = memory.address.value, ctypes.c_int(SIZE), ctypes.c_float(0.5)
    launch(device.default_stream, config, kernel, *arguments)
    device.sync()
    return memory.read_last()


def run_by_numba() -> float:
    """Launch a kernel of numba-cuda's disk cache."""
    import _numba_ptxlink_hook

    _numba_ptxlink_hook.remove()
    import numpy as np
    from numba import cuda

    @cuda.jit(cache=True)
    def fill(out, value):  # noqa: ANN001, ANN202 - Numba finds the types
        i = cuda.grid(1)
        if i < out.size:
            out[i] = value * i

    out = cuda.device_array(SIZE, np.float32)
    fill[SIZE // 256, 256](out, np.float32(0.5))
    return float(out.copy_to_host()[-1])


WAYS = {"load()": run_by_load, "cuda.core": run_by_cuda_core, "numba-cuda, cache=True": run_by_numba}

if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2])
    elif (last_element := WAYS[sys.argv[1]]()) != LAST_ELEMENT:
        sys.exit(f"the last element is {last_element}, not {LAST_ELEMENT}")
    else:
        timing.print_figures({"start to first kernel": timing.since_start()})
