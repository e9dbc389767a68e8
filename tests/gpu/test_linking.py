"""Kernels on a device that were linked out of several inputs, merged, debugged and found by C++ name."""

from __future__ import annotations

import numpy as np
import pytest
from linkcases import CALLEE, CALLER, KERNEL, function

import numba_ptxlink as pl


def run(device, linked: pl.Linked, name: str = "k") -> int:
    """Launch the kernel *name*, which writes one integer, and return that."""
    from cuda.core import LaunchConfig, launch
    from numba import cuda

    stream, out = device.create_stream(), cuda.to_device(np.zeros(1, np.int32))
    device.sync()
    address = out.__cuda_array_interface__["data"][0]
    launch(stream, LaunchConfig(grid=1, block=1), linked.kernel(name), address)
    stream.sync()
    return int(out.copy_to_host()[0])


@pytest.mark.parametrize("lto", [False, True])
def test_cuda_source_runs(device, arch, lto):
    """CUDA C++ sources linked with and without LTO compute the same."""
    assert 7 == run(device, pl.link(CALLER, CALLEE.format(value=7), arch=arch, lto=lto))


@pytest.mark.parametrize("backend", ["nvptxcompiler", "nvjitlink"])
def test_every_backend_runs(device, arch, backend):
    """The same PTX runs as compiled by each backend."""
    whole = KERNEL.replace(
        ".extern .func (.param .b32 r) f(.param .b32 a);", function(5).partition("64\n")[2]
    )
    assert 5 == run(device, pl.link(whole, arch=arch, backend=backend))


def test_a_kernel_is_found_by_its_cpp_name(device, arch):
    """A template instance is launched by its name expression."""
    source = "namespace ns { template <int N> __global__ void write(int* p) { *p = N; } }\n"
    linked = pl.link(source, arch=arch, name_expressions=("ns::write<9>",))
    assert 9 == run(device, linked, "ns::write<9>")
