"""A program with cuda.core: kernels from cubins and from a linker; it prints their results."""

# ruff: noqa: T201 - a program

from __future__ import annotations

import ctypes

import numpy as np
from cuda.core import Device, LaunchConfig, Linker, LinkerOptions, Program, ProgramOptions, launch, system

import numba_ptxlink as pl

CODE = """
extern "C" __global__ void fill(float* x, float value) { x[threadIdx.x] = value; }
"""
EMPTY = b".version 7.5\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n"
device = Device()
device.set_current()
stream = device.create_stream()
print("devices", system.get_num_devices())
options = ProgramOptions(arch=f"sm_{device.arch}", lineinfo=True)
memory = device.allocate(400, stream=stream)
x = np.zeros(100, np.float32)


def read() -> float:
    """Return the last number in device memory."""
    cuda = ctypes.CDLL("libcuda.so.1")
    cuda.cuMemcpyDtoH_v2(
        ctypes.c_void_p(x.ctypes.data), ctypes.c_uint64(int(memory.handle)), ctypes.c_size_t(400)
    )
    return float(x[99])


# The context is released when the process ends, and the module with it: Python is gone then.
module = ctypes.c_void_p()
ctypes.CDLL("libcuda.so.1").cuModuleLoadData(ctypes.byref(module), EMPTY)
fill = Program(CODE, "c++", options).compile("cubin").get_kernel("fill")
launch(stream, LaunchConfig(grid=1, block=100), fill, memory, ctypes.c_float(2))
stream.sync()
print("cubin", read())
ptx = Program(CODE, "c++", options).compile("ptx").code
fill = Program(ptx.decode(), "ptx", {"name": "p"}).compile("cubin").get_kernel("fill")
launch(stream, LaunchConfig(grid=1, block=100), fill, memory, ctypes.c_float(4))
print("of PTX", read())
# No more than the limit of a block, 48 KiB, although one block could have all memory of a multiprocessor.
limit = fill.attributes.max_dynamic_shared_size_bytes
print("shared", fill.occupancy.available_dynamic_shared_memory_per_block(1, 256), limit)
print("empty", device.allocate(0, stream=stream).size)
relocatable = ProgramOptions(arch=f"sm_{device.arch}", relocatable_device_code=True)
code = Program(CODE, "c++", relocatable).compile("ptx")
linked = Linker(code, options=LinkerOptions(arch=f"sm_{device.arch}")).link("cubin")
launch(stream, LaunchConfig(grid=1, block=100), linked.get_kernel("fill"), memory, ctypes.c_float(3))
print("linked", read())
lto = ProgramOptions(link_time_optimization=True, relocatable_device_code=True)
caller = 'extern __device__ float f(); extern "C" __global__ void k(float* x) { *x = f(); }'
codes = (
    Program(caller, "c++", relocatable).compile("ptx"),
    Program("__device__ float f() { return 1; }", "c++", lto).compile("ltoir"),
)
try:
    Linker(*codes, options=LinkerOptions(link_time_optimization=True)).link("cubin")
except pl.LinkError as error:
    print("link", str(error).partition("; ")[2])
try:
    launch(stream, LaunchConfig(grid=1, block=128), fill, memory, ctypes.c_float(2))
except pl.DeviceFaultError as error:
    print("fault", error.kernel, error.line, error.thread)
launch(stream, LaunchConfig(grid=1, block=100), fill, memory, ctypes.c_float(5))
print("later", read())
