"""Kernels that call MathDx (cuFFTDx, cuBLASDx) and cuRAND's device functions through nvmath-python."""

from __future__ import annotations

import sys
from functools import cache, partial
from typing import Any

import numpy as np
from numba import cuda, types
from numba.cuda.typing.typeof import typeof
from nvmath.device import FFT, Matmul, random
from nvmath.device.common_cuda import ComputeCapability
from standin import CC, Kernel

SM = ComputeCapability(*CC)

# Typing a call of MathDx asks the driver what device there is, whatever code was asked for.
for module in [each for name, each in sys.modules.items() if name.startswith("nvmath.device")]:
    if hasattr(module, "get_current_device_cc"):
        module.get_current_device_cc = lambda: SM


def transform(precision: Any, size: int, execution: str, direction: str) -> Kernel:
    """Return a kernel that transforms rows, one by each block or thread."""
    fft = FFT(size=size, precision=precision, fft_type="c2c", execution=execution, direction=direction, sm=SM)
    stored, kind, each = fft.storage_size, fft.value_type, fft.elements_per_thread
    step = fft.stride if execution == "Block" else 1

    if execution == "Block":

        @cuda.jit
        def kernel(rows):
            own = cuda.local.array(stored, kind)
            for i in range(each):
                own[i] = rows[cuda.blockIdx.x, cuda.threadIdx.x + i * step]
            fft.execute(own, cuda.shared.array(0, kind))
            for i in range(each):
                rows[cuda.blockIdx.x, cuda.threadIdx.x + i * step] = own[i]

    else:

        @cuda.jit
        def kernel(rows):
            own = cuda.local.array(stored, kind)
            for i in range(each):
                own[i] = rows[cuda.threadIdx.x, i]
            fft.execute(own)
            for i in range(each):
                rows[cuda.threadIdx.x, i] = own[i]

    element = types.complex64 if precision is np.float32 else types.complex128
    return Kernel(kernel, (element[:, ::1],))


def multiply(precision: Any, size: tuple[int, int, int]) -> Kernel:
    """Return a kernel that multiplies matrices in shared memory."""
    product = Matmul(
        size=size,
        precision=precision,
        data_type="real",
        arrangement=("row_major", "col_major", "col_major"),
        block_size=128,
        sm=SM,
    )
    shape_a, shape_b, shape_c = product.a_dim, product.b_dim[::-1], product.c_dim[::-1]
    type_a, type_b, type_c = product.a_value_type, product.b_value_type, product.c_value_type

    @cuda.jit
    def kernel(a, b, c):
        left = cuda.shared.array(shape_a, type_a)
        right = cuda.shared.array(shape_b, type_b)
        out = cuda.shared.array(shape_c, type_c)
        for i in range(cuda.threadIdx.x, a.shape[0] * a.shape[1], cuda.blockDim.x):
            left[i // a.shape[1], i % a.shape[1]] = a[i // a.shape[1], i % a.shape[1]]
        for i in range(cuda.threadIdx.x, b.shape[0] * b.shape[1], cuda.blockDim.x):
            right[i // b.shape[1], i % b.shape[1]] = b[i // b.shape[1], i % b.shape[1]]
        cuda.syncthreads()
        product.execute(1.0, left, right, 0.0, out)
        cuda.syncthreads()
        for i in range(cuda.threadIdx.x, c.shape[0] * c.shape[1], cuda.blockDim.x):
            c[i // c.shape[1], i % c.shape[1]] = out[i // c.shape[1], i % c.shape[1]]

    element = {np.float32: types.float32, np.float64: types.float64}[precision]
    return Kernel(kernel, (element[:, ::1],) * 3)


@cache
def generators() -> random.Compile:
    """Return cuRAND's device functions, compiled once for all kernels."""
    return random.Compile(cc=SM)


def pointer_to(states: type) -> Any:
    """Return Numba's type of an array of *states*, which only a device could hold."""
    return typeof(object.__new__(states))


def start(states: type) -> Kernel:
    """Return a kernel that begins a sequence in each thread."""
    compiled = generators()

    @cuda.jit(link=compiled.files, extensions=compiled.extension)
    def kernel(states):
        i = cuda.grid(1)
        random.init(1234, i, 0, states[i])

    return Kernel(kernel, (pointer_to(states),))


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
    "cuRAND, start Philox": partial(start, random.StatesPhilox4_32_10),
    "cuRAND, start XORWOW": partial(start, random.StatesXORWOW),
    "cuRAND, uniform of Philox": partial(draw, random.StatesPhilox4_32_10, random.uniform),
    "cuRAND, normal of XORWOW": partial(draw, random.StatesXORWOW, random.normal_double),
    "cuRAND, normal of MRG32k3a": partial(draw, random.StatesMRG32k3a, random.normal),
    "cuFFTDx, thread of 8": partial(transform, np.float64, 8, "Thread", "forward"),
    "cuFFTDx, block of 128": partial(transform, np.float32, 128, "Block", "forward"),
    "cuFFTDx, block of 256 backwards": partial(transform, np.float64, 256, "Block", "inverse"),
    "cuBLASDx, 32 by 16 by 64": partial(multiply, np.float32, (32, 16, 64)),
    "cuBLASDx, 16 by 16 by 16 doubles": partial(multiply, np.float64, (16, 16, 16)),
}
