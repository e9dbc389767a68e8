"""
CuPy's RawModule has a CUDA C++ kernel that calls a Python function, and a kernel in Python.

RawModule loads machine code and links nothing, so the C++ is linked here. Without CuPy and a GPU, both
kernels run on the CPU.
"""

import tempfile
from pathlib import Path

import numpy as np
from numba import cuda

import numba_ptxlink as pl

SOURCE = """
#include "udfs.h"

extern "C" __global__ void squash_all(const float* x, float* y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = squash(x[i]);
}
"""


@pl.udf("float32(float32)")
def squash(value):
    return value / (np.float32(1) + abs(value))


# RawKernel passes arrays as addresses, so the parameter of the kernel is a pointer.
@pl.kernel("void(CPointer(float32), float32, int32)")
def scale(values, factor, count):
    index = cuda.grid(1)
    if index < count:
        values[index] *= factor


def link(arch):
    """Return the machine code of the C++ kernel, which calls `squash`, and of `scale`."""
    exported = pl.export([squash, scale], name="udfs", arch=[arch], emit=["ltoir"])
    headers = {"udfs.h": exported.contents["udfs.h"].decode()}
    linked = pl.link(SOURCE, exported.read("ltoir"), arch=arch, headers=headers)
    print(f"{len(linked.cubin)} bytes of machine code for {arch}: {linked.reason}")
    return linked


def run_on_cpu(linked):
    """Run both kernels on the CPU, and compare with NumPy."""
    count = 100_001
    x = np.linspace(-4, 4, count, dtype="float32")
    y, grid = np.empty_like(x), (count + 255) // 256
    linked.kernel("squash_all", device="cpu")[grid, 256](x, y, np.int32(count))
    linked.kernel("scale", device="cpu")[grid, 256](y, np.float32(3), np.int32(count))
    np.testing.assert_allclose(y, 3 * (x / (1 + abs(x))), rtol=1e-6)
    print(f"Verified on the CPU: {count} elements match NumPy")


def main():
    try:
        import cupy

        device = cupy.cuda.Device()
        arch = f"sm_{device.compute_capability}"
    except Exception as reason:
        linked = link("sm_90")
        print(f"Not on a GPU: {reason}")
        run_on_cpu(linked)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "module.cubin"
        path.write_bytes(link(arch).cubin)
        module = cupy.RawModule(path=str(path))
        # CuPy reads the file at the first get_function, so the file must still exist then.
        squash_all, scale_all = [module.get_function(name) for name in ("squash_all", "scale")]
    count = 100_001
    x = cupy.linspace(-4, 4, count, dtype="float32")
    y = cupy.empty_like(x)
    grid = ((count + 255) // 256,)
    squash_all(grid, (256,), (x, y, np.int32(count)))
    scale_all(grid, (256,), (y, np.float32(3), np.int32(count)))
    host = x.get()
    np.testing.assert_allclose(y.get(), 3 * (host / (1 + abs(host))), rtol=1e-6)
    print(f"{count} elements match NumPy")


if __name__ == "__main__":
    main()
