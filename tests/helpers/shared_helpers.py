"""Device functions that several exports share, each with something that a linker could find defined twice."""

from __future__ import annotations

import numpy as np
from numba import cuda, float32

TABLE = np.arange(64, dtype=np.float32)
STATE = cuda.CUSource("""
__device__ unsigned state = 1;
__constant__ int factors[2] = {1, 2};
namespace steps { inline __device__ unsigned next(unsigned x) { return x * 3u + 1u; } }
struct Pair { float x; };
static __device__ Pair operator*(Pair a, Pair b) { return Pair{a.x * b.x}; }
__device__ __noinline__ float twice(float x) { return x * factors[1]; }
__device__ __noinline__ float twice(double x) { return x * factors[1]; }
extern "C" __device__ float advance(float x) {
    state = steps::next(state);
    return (Pair{twice(x)} * Pair{1.0f}).x + state;
}
extern "C" __global__ void seed(unsigned value) { state = value; }
""")
advance = cuda.declare_device("advance", "float32(float32)", abi="c", link=[STATE])


@cuda.jit(device=True)
def reversed_in_block(value):
    """Exchange a value with another thread through shared memory."""
    array = cuda.shared.array(64, float32)
    array[cuda.threadIdx.x] = value
    cuda.syncthreads()
    other = array[63 - cuda.threadIdx.x]
    # The next call writes.
    cuda.syncthreads()
    return other


@cuda.jit(device=True)
def looked_up(value):
    """Read a global array in another shape, which numba-cuda finds by CUDA C++."""
    return TABLE.reshape(2, 32)[0, int(value)]


@cuda.jit(device=True)
def advanced(value):
    """Call CUDA C++ that has a state."""
    return advance(value)


@cuda.jit(device=True)
def printed(value):
    """Print, which needs strings."""
    print("value", value)  # noqa: T201 - device code
    return value


@cuda.jit(device=True)
def checked(value):
    """Raise where Python would."""
    if value < 0:
        raise ValueError("negative")
    return value


@cuda.jit(device=True)
def squared_half(value):
    """Use half arithmetic, which numba-cuda implements in CUDA C++."""
    half = np.float16(value)
    return float32(half * half)


HELPERS = (reversed_in_block, looked_up, advanced, printed, checked, squared_half)
