"""The kernel that a JAX program launches, in Python."""

from numba import cuda
from numpy import float32

from numba_ptxlink import kernel

# Python's own 1 is a 64-bit integer, whose sum with a float32 is a float64.
ONE = float32(1)


@kernel("void(float32[::1], float32[::1], float32)")
def squash(x, y, scale):
    """Write scale * x / (1 + abs(x)) to y."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = scale * x[i] / (ONE + abs(x[i]))
