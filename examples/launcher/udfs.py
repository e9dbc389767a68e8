"""Kernels that a C++ program launches."""

from numba import cuda

from numba_ptxlink import kernel, udf


@udf("float32(float32, float32, float32)")
def axpy(a, x, y):
    """Return a * x + y."""
    return a * x + y


@kernel("void(float32, float32[::1], float32[::1])")
def saxpy(a, x, y):
    """Add a * x to y."""
    i = cuda.grid(1)
    if i < y.size:
        y[i] = axpy(a, x[i], y[i])
