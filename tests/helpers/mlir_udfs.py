"""Functions for numba-cuda-mlir with all features whose code could differ between two processes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba_cuda_mlir import cuda
from numba_cuda_mlir.numba_cuda import types

import numba_ptxlink as pl

TABLE = np.arange(10, dtype=np.float32)
SCALE = 3
supplied = cuda.declare_device("supplied", "float32(float32, int32)", abi="c")


class Pair(NamedTuple):
    """Two numbers."""

    x: np.float32
    n: np.int8


@cuda.jit(device=True)
def factorial(n):
    """Call itself."""
    if n < 2:
        return 1
    return n * factorial(n - 1)


def scaled(factor):
    """Return a function that has *factor* in its closure."""
    return cuda.jit(device=True)(lambda x: x * factor * SCALE)


thrice = scaled(3)


@pl.udf("int64(int64)")
def power(n):
    """Call a helper that calls itself, and refuse negative numbers."""
    if n < 0:
        raise ValueError
    return factorial(n) + thrice(n)


@pl.udf("float32(int32, float32)")
def weighted(i, x):
    """Read a constant; call another function that is exported."""
    return TABLE[i] * x + power(np.int64(i))


@pl.udf("complex64(float16, complex64)")
def called(h, z):
    """Call a function that C++ supplies."""
    return z * supplied(z.real, 2) + h


@pl.kernel("void(float32[::1], float32)", launch_bounds=(128, 2))
def reversed_blocks(out, x):
    """Use shared memory of both kinds, and the same constant."""
    static = cuda.shared.array(128, dtype=types.float32)
    dynamic = cuda.shared.array(0, dtype=types.float32)
    i = cuda.threadIdx.x
    static[i] = TABLE[i % 10] * x
    dynamic[i] = static[i]
    cuda.syncthreads()
    out[i] = static[127 - i] + dynamic[i]
