"""Kernels that call cuFFTDx and cuRAND's device functions through nvmath-python."""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import Any

import numpy as np
from numba import cuda, types
from numba.cuda.typing.typeof import typeof
from nvmath.device import FFT, random
from nvmath.device.common_cuda import ComputeCapability
from standin import CC, Kernel

SM = ComputeCapability(*CC)

# Typing a call of MathDx queries the device from the driver, whatever the architecture of the code.
for module in [module for name, module in sys.modules.items() if name.startswith("nvmath.device")]:
    if hasattr(module, "get_current_device_cc"):
        module.get_current_device_cc = lambda: SM


def transform(size: int, direction: str) -> Kernel:
    """Return a kernel that transforms rows, one by each block."""
    options = {"fft_type": "c2c", "execution": "Block", "sm": SM}
    fft = FFT(size=size, precision=np.float32, direction=direction, **options)
    stored, kind, count, step = fft.storage_size, fft.value_type, fft.elements_per_thread, fft.stride

    @cuda.jit
    def kernel(rows):
        registers = cuda.local.array(stored, kind)
        for i in range(count):
            registers[i] = rows[cuda.blockIdx.x, cuda.threadIdx.x + i * step]
        fft.execute(registers, cuda.shared.array(0, kind))
        for i in range(count):
            rows[cuda.blockIdx.x, cuda.threadIdx.x + i * step] = registers[i]

    return Kernel(kernel, (types.complex64[:, ::1],))


@cache
def generators() -> random.Compile:
    """Return cuRAND's device functions, compiled once for all kernels."""
    return random.Compile(cc=SM)


def pointer_to(states: type) -> Any:
    """Return Numba's type of an array of *states*, which only a device could hold."""
    return typeof(object.__new__(states))


def draw(states: type, sampler: Any) -> Kernel:
    """Return a kernel that draws from a distribution."""
    compiled = generators()

    @cuda.jit(link=compiled.files, extensions=compiled.extension)
    def kernel(states, count, out):
        i = cuda.grid(1)
        for at in range(count):
            out[at] = sampler(states[i])

    return Kernel(kernel, (pointer_to(states), types.int64, types.float64[::1]))


CASES = {
    "cuRAND, uniform of Philox": partial(draw, random.StatesPhilox4_32_10, random.uniform),
    "cuRAND, normal of XORWOW": partial(draw, random.StatesXORWOW, random.normal_double),
    "cuFFTDx, block of 128": partial(transform, 128, "forward"),
    "cuFFTDx, block of 256 backwards": partial(transform, 256, "inverse"),
}
