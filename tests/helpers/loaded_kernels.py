"""Kernels that tests load and launch, on a device and on the CPU."""

from __future__ import annotations

import numpy as np
from numba import cuda
from numba.cuda import types

import numba_ptxlink as pl

HALVES = types.Array(types.float16, 1, "C")


@pl.kernel("void(float32[::1], float32)")
def scale(out, factor):
    """Multiply each element."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] *= factor


@pl.kernel("void(CPointer(float32), int32, float32)")
def fill(out, size, value):
    """Write through a pointer."""
    i = cuda.grid(1)
    if i < size:
        out[i] = value * i


@pl.kernel("void(int32[::1], int32[::1])")
def exchange(source, target):
    """Read the values that another block wrote, after all blocks have met."""
    block = cuda.blockIdx.x
    source[block] = block
    cuda.cg.this_grid().sync()
    target[block] = source[cuda.gridDim.x - 1 - block]


@pl.kernel("void(float32[::1])")
def through_shared(out):
    """Pass values through more shared memory than a kernel may use by default."""
    shared = cuda.shared.array(0, types.float32)
    i = cuda.threadIdx.x
    shared[14999 - i] = i
    cuda.syncthreads()
    out[i] = shared[14999 - i]


@pl.kernel(types.void(HALVES, types.float32))
def scale_halves(out, factor):
    """Multiply each element."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = types.float16(factor) * out[i]


@pl.kernel(types.void(HALVES, HALVES, types.Array(types.float32, 1, "C")))
def mixed(first, second, out):
    """Compute in half precision, compare, and compute in bfloat16."""
    i = cuda.grid(1)
    if i < out.size:
        number = first[i] * second[i] - first[i]
        if number > second[i]:
            number = abs(second[i]) + first[i]
        brain = types.bfloat16(types.float32(first[i]))
        out[i] = types.float32(number) + types.float32(brain * brain + brain)


def expected(first, second):
    """Return the result of `mixed` for halves: small integers, which all of its types represent exactly."""
    number = first * second - first
    number = np.where(number > second, np.abs(second) + first, number)
    return (number + first * first + first).astype(np.float32)
