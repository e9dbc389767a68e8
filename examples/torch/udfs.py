"""The kernels of a PyTorch extension, in Python: a function and its gradient."""

from numba import cuda
from numpy import float32

from numba_ptxlink import kernel, udf

# Python's own 1 is a 64-bit integer, whose sum with a float32 is a float64.
ONE = float32(1)


@udf("float32(float32)")
def slope(x):
    """Return the derivative of x / (1 + abs(x))."""
    scale = ONE / (ONE + abs(x))
    return scale * scale


@kernel("void(float32[::1], float32[::1])")
def forward(x, y):
    """Write x / (1 + abs(x)) to y."""
    i = cuda.grid(1)
    if i < x.size:
        y[i] = x[i] / (ONE + abs(x[i]))


@kernel("void(float32[::1], float32[::1], float32[::1])")
def backward(x, dy, dx):
    """Write the gradient with respect to x to *dx*, from the gradient with respect to y in *dy*."""
    i = cuda.grid(1)
    if i < x.size:
        dx[i] = dy[i] * slope(x[i])
