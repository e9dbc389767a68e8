"""A program with cuda.bindings: a kernel that NVRTC compiles to a cubin, and memory of the CUDA runtime."""

# ruff: noqa: T201 - a program

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from cuda.bindings import driver, nvrtc, runtime

CODE = b"""
extern "C" __global__ void fill(float* x, float value) { x[threadIdx.x] = value; }
"""


def value(result: tuple[Any, ...]) -> Any:
    """Return the values of a call, after its error."""
    error, *values = result
    assert not int(error), error
    return values[0] if len(values) == 1 else values


value(runtime.cudaFree(0))
properties = value(runtime.cudaGetDeviceProperties(0))
print(properties.major, properties.minor, properties.warpSize, properties.name.startswith(b"CPU"))
program = value(nvrtc.nvrtcCreateProgram(CODE, b"fill.cu", 0, [], []))
value(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_75"]))
cubin = b" " * value(nvrtc.nvrtcGetCUBINSize(program))
value(nvrtc.nvrtcGetCUBIN(program, cubin))
fill = value(driver.cuModuleGetFunction(value(driver.cuModuleLoadData(cubin)), b"fill"))
memory, stream = value(runtime.cudaMalloc(400)), value(runtime.cudaStreamCreate())
arguments = ((memory, 2.5), (ctypes.c_void_p, ctypes.c_float))
value(driver.cuLaunchKernel(fill, 1, 1, 1, 100, 1, 1, 0, int(stream), arguments, 0))
x = np.zeros(100, np.float32)
value(
    runtime.cudaMemcpyAsync(x.ctypes.data, memory, 400, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost, stream)
)
value(runtime.cudaStreamSynchronize(stream))
print(x.min(), x.max())
print(runtime.cudaMalloc(1 << 62)[0].name)
