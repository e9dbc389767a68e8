"""Kernels on a device that were linked out of several inputs, merged, debugged and found by C++ name."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from linkcases import CALLEE, CALLER, KERNEL, function

import numba_ptxlink as pl


@pytest.fixture
def device():
    """Return the current device."""
    from cuda.core import Device

    found = Device(0)
    found.set_current()
    return found


def arch_of(device) -> str:
    """Return the device's architecture."""
    major, minor = device.compute_capability
    return f"sm_{major}{minor}"


def run(device, linked: pl.Linked, name: str = "k") -> int:
    """Launch the kernel *name*, which writes one integer, and return that."""
    from cuda.core import LaunchConfig, launch

    stream = device.create_stream()
    buffer = device.allocate(4, stream=stream)
    launch(stream, LaunchConfig(grid=1, block=1), linked.kernel(name), int(buffer.handle))
    stream.sync()
    host = np.zeros(1, dtype=np.int32)
    from cuda.bindings import runtime

    runtime.cudaMemcpy(host.ctypes.data, int(buffer.handle), 4, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost)
    return int(host[0])


@pytest.mark.parametrize("lto", [False, True])
def test_cuda_source_runs(device, lto):
    """CUDA C++ sources linked with and without LTO compute the same."""
    assert 7 == run(device, pl.link(CALLER, CALLEE.format(value=7), arch=arch_of(device), lto=lto))


@pytest.mark.parametrize("lto", [False, True])
def test_an_exported_kernel_synchronises_the_grid(device, lto):
    """An exported kernel of a cooperative group gets the device runtime, and its grid meets."""
    from cuda.bindings import runtime
    from cuda.core import LaunchConfig, launch
    from numba import cuda

    @pl.kernel("void(CPointer(int32), CPointer(int32))", name="exchange")
    def exchange(source, target):
        block = cuda.blockIdx.x
        source[block] = block
        cuda.cg.this_grid().sync()
        target[block] = source[cuda.gridDim.x - 1 - block]

    blocks = 64
    stream = device.create_stream()
    buffer = device.allocate(2 * 4 * blocks, stream=stream)
    start = int(buffer.handle)
    linked = pl.link(exchange, arch=arch_of(device), lto=lto)
    config = LaunchConfig(grid=blocks, block=1, is_cooperative=True)
    launch(stream, config, linked.kernel("exchange"), start, start + 4 * blocks)
    stream.sync()
    host = np.zeros(blocks, dtype=np.int32)
    kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
    runtime.cudaMemcpy(host.ctypes.data, start + 4 * blocks, 4 * blocks, kind)
    assert list(range(blocks))[::-1] == host.tolist()


@pytest.mark.parametrize("backend", ["nvptxcompiler", "nvjitlink"])
def test_every_backend_runs(device, backend):
    """One PTX runs as compiled by each backend."""
    whole = KERNEL.replace(
        ".extern .func (.param .b32 r) f(.param .b32 a);", function(5).partition("64\n")[2]
    )
    assert 5 == run(device, pl.link(whole, arch=arch_of(device), backend=backend))


def test_a_kernel_is_found_by_its_cpp_name(device):
    """A template instance is launched by its name expression."""
    source = "namespace ns { template <int N> __global__ void write(int* p) { *p = N; } }\n"
    linked = pl.link(source, arch=arch_of(device), name_expressions=("ns::write<9>",))
    assert 9 == run(device, linked, "ns::write<9>")


@pytest.mark.parametrize("linked", [False, True])
def test_exceptions_of_a_debugged_kernel_are_raised(linked, tmp_path):
    """With debug=True an exception in a kernel reaches Python, alone and with linked CUDA C++."""
    path = tmp_path / "program.py"
    path.write_text(
        textwrap.dedent(
            f"""
            import numpy as np
            import numba_ptxlink as pl
            from numba import cuda
            pl.enable()
            source = 'extern "C" __device__ int helper(int a) {{ return a * 2; }}\\n'
            link = cuda.CUSource(source) if {linked} else None
            helper = cuda.declare_device("helper", "int32(int32)", abi="c", link=link)
            if {linked}:
                @cuda.jit(debug=True, opt=False)
                def kernel(x):
                    if helper(x[0]) > 10:
                        raise ValueError("too much")
            else:
                @cuda.jit(debug=True, opt=False)
                def kernel(x):
                    if x[0] > 5:
                        raise ValueError("too much")
            kernel[1, 1](np.array([1], dtype=np.int32))
            try:
                kernel[1, 1](np.array([9], dtype=np.int32))
                cuda.synchronize()
            except ValueError as error:
                print("caught:", "too much" in str(error))
            """
        )
    )
    made = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert "caught: True" == made.stdout.strip(), made.stderr[-2000:]
