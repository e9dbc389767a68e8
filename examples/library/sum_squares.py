"""
A Numba kernel calls a CUDA C++ library, which nvcc has built: `make run`, or `python sum_squares.py LIBRARY`.

The library contains LTO-IR, so the function that the kernel calls is inlined. Without a GPU, the kernel is
linked for sm_90 and runs on the CPU.
"""

import argparse

import numpy as np
from numba import cuda, float32

import numba_ptxlink as pl

# The number of threads for which reductions.cu is compiled.
BLOCK = 256
block_sum = cuda.declare_device("block_sum", "float32(float32)", abi="c")


def sum_squares(values, total):
    """Add the squares of all values to *total*, with one atomic addition for a block of 256 threads."""
    thread_sum = float32(0)
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        thread_sum += values[i] * values[i]
    # All threads of the block make the call, and the first one gets the sum.
    sum_of_block = block_sum(thread_sum)
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(total, 0, sum_of_block)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("library", help="the library that nvcc -lib has built from reductions.cu")
    options = parser.parse_args()
    values = np.random.default_rng(0).standard_normal(1_000_001).astype(np.float32)
    if not cuda.is_available():
        kernel = pl.kernel("void(float32[::1], float32[::1])")(sum_squares)
        linked = pl.link(kernel, options.library, arch="sm_90", lto=True)
        print(f"{len(linked.cubin)} bytes of machine code for sm_90: {linked.reason}")
        total = np.zeros(1, np.float32)
        linked.kernel("sum_squares", device="cpu")[64, BLOCK](values, total)
    else:
        device_total = cuda.to_device(np.zeros(1, np.float32))
        cuda.jit(link=[options.library])(sum_squares)[64, BLOCK](cuda.to_device(values), device_total)
        total = device_total.copy_to_host()
    np.testing.assert_allclose(total, np.square(values.astype(np.float64)).sum(), rtol=1e-5)
    prefix = "" if cuda.is_available() else "Verified on the CPU: "
    print(f"{prefix}The sum of {len(values)} squares is {total[0]:.0f}, as NumPy's")


if __name__ == "__main__":
    main()
