"""
Operators in Python for cuda.compute, which links their LTO-IR into its algorithms, on records.

Needs cuda-cccl 1.2 to run on a GPU.

An operator gets the addresses of its arguments and of its result. The import of cuda.compute needs a driver.
Without one, the operators are linked into a kernel that calls them the same way, on the CPU.
"""

import numpy as np
from numba import cuda

import numba_ptxlink as pl

COUNT = 100_001
CALLER = """
#include "operators.h"

extern "C" __global__ void apply(pair* x, pair* y, pair* z)
{
    turn(x, y);
    longer(x, y, z);
}
"""
pair = np.dtype([("x", "f4"), ("y", "f4")], align=True)


@pl.udf("void(CPointer(pair), CPointer(pair))")
def turn(value, result):
    """Write a vector, turned by a right angle, to *result*."""
    result[0].x = -value[0].y
    result[0].y = value[0].x


@pl.udf("void(CPointer(pair), CPointer(pair), CPointer(pair))")
def longer(first, second, result):
    """Write the longer of two vectors to *result*."""
    a, b = first[0], second[0]
    result[0] = second[0] if b.x * b.x + b.y * b.y > a.x * a.x + a.y * a.y else first[0]


def link_caller(arch):
    """Link the operators into a kernel in CUDA C++; return the kernel for the CPU."""
    exported = pl.export([turn, longer], name="operators", arch=[arch], emit=["ltoir"])
    headers = {"operators.h": exported.contents["operators.h"].decode()}
    linked = pl.link(CALLER, exported.read("ltoir"), arch=arch, headers=headers)
    print(f"{len(linked.cubin)} bytes of machine code for {arch}: {linked.reason}")
    return linked.kernel("apply", device="cpu")


def make_operator(function, arch):
    """Return *function* as an operator of cuda.compute."""
    from cuda.compute.op import RawOp

    exported = pl.export(function, arch=[arch], emit=["ltoir"])
    return RawOp(ltoir=exported.read("ltoir"), name=exported.signatures[0].name)


def main():
    if not cuda.is_available():
        apply = link_caller("sm_90")
        x, y, z = np.array([(3, 4)], pair), np.zeros(1, pair), np.zeros(1, pair)
        apply[1, 1](x, y, z)
        np.testing.assert_array_equal([y[0].tolist(), z[0].tolist()], [(-4, 3), (3, 4)])
        print("Verified on the CPU: a turned vector and the longer one")
        return
    from cuda import compute

    arch = pl.Arch.of(cuda.get_current_device().compute_capability).sm
    vectors = np.random.default_rng(0).standard_normal((COUNT, 2), np.float32)
    x = cuda.to_device(vectors.view(pair)[:, 0])
    y, z = cuda.device_array(COUNT, pair), cuda.device_array(1, pair)
    compute.unary_transform(d_in=x, d_out=y, op=make_operator(turn, arch), num_items=COUNT)
    start = np.zeros(1, pair)
    compute.reduce_into(d_in=y, d_out=z, num_items=COUNT, op=make_operator(longer, arch), h_init=start)
    expected = np.stack([-vectors[:, 1], vectors[:, 0]], axis=1)
    np.testing.assert_array_equal(y.copy_to_host().view("f4").reshape(-1, 2), expected)
    longest = expected[np.argmax((expected**2).sum(axis=1))]
    np.testing.assert_array_equal(z.copy_to_host().view("f4"), longest)
    print(f"{COUNT} turned vectors and the longest, {longest}, match NumPy")


if __name__ == "__main__":
    main()
