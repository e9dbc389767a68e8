"""Functions and kernels that the C++ program calls and launches, in Python."""

from decay import rate
from numba import cuda

from numba_ptxlink import kernel, udf


@udf("float32(float32, int32)")
def damp(value, step):
    """Return *value*, damped more at later steps."""
    return value / (1 + rate(step))


@kernel("void(float32[::1], float32)")
def scale(array, factor):
    """Multiply each element."""
    index = cuda.grid(1)
    if index < array.size:
        array[index] *= factor
