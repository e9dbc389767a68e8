"""Two exports with the same helpers in one kernel, run on a device."""

from __future__ import annotations

import numpy as np
import pytest
import shared_helpers

import numba_ptxlink as pl

SOURCE = """
extern "C" __device__ float first(float);
extern "C" __device__ float second(float);
extern "C" __global__ void caller(float* out, const float* in) {
    float x = in[threadIdx.x];
    out[threadIdx.x] = first(x) + 1000.0f * second(first(x));
}
"""


def run(tmp_path, device, arch, kind, helper):
    """Return what a block of 64 threads computes with two exports that call *helper*."""
    from cuda.core import LaunchConfig, launch
    from numba import cuda

    def calls(x):
        return helper(x) + 1

    files = [
        pl.export(
            [pl.udf("float32(float32)", name=name)(calls)], tmp_path, archs=[arch], emit=[kind], name=name
        ).artifacts[kind, arch.sm]
        for name in ("first", "second")
    ]
    linked = pl.link(SOURCE, *files, arch=arch, lto=kind == "ltoir")
    out, source = cuda.to_device(np.zeros(64, np.float32)), cuda.to_device(np.arange(64, dtype=np.float32))
    pointers = [array.__cuda_array_interface__["data"][0] for array in (out, source)]
    stream = device.create_stream()
    launch(stream, LaunchConfig(grid=1, block=64), linked.kernel("caller"), *pointers)
    stream.sync()
    return out.copy_to_host()


@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin"])
def test_each_export_has_its_own_shared_array(tmp_path, device, arch, kind):
    """Both functions exchange values between threads, and neither disturbs the other."""
    x = np.arange(64, dtype=np.float32)
    once = x[::-1] + 1
    expected = once + 1000 * (once[::-1] + 1)
    assert expected.tolist() == run(tmp_path, device, arch, kind, shared_helpers.reversed_in_block).tolist()
