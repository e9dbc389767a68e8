"""Loaded kernels on a device: arrays and streams of other packages, structs, shared memory, threads."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from devices import missing_gpu
from loaded_kernels import exchange, fill, scale, through_shared
from numba import cuda

import numba_ptxlink as pl

SIZE = 1000
# A handle is one of a stream that lives.
LIVING: list[object] = []


@pytest.fixture(scope="module")
def exported(arch, tmp_path_factory):
    """Return the kernels, exported for the device."""
    kernels = [scale, fill, through_shared]
    return pl.export(kernels, tmp_path_factory.mktemp("build"), arch=[arch], emit=["kernels"], name="udfs")


@pytest.fixture(scope="module")
def udfs(exported):
    """Return the kernels, loaded."""
    return pl.load(exported.manifest)


def of_numba(values):
    """Return a device array of numba-cuda."""
    return cuda.to_device(values)


def of_cupy(values):
    """Return a device array of CuPy."""
    return pytest.importorskip("cupy", reason="CuPy is not installed").asarray(values)


def of_torch(values):
    """Return a tensor on the device."""
    return pytest.importorskip("torch", reason="PyTorch is not installed").from_numpy(values).cuda()


def of_dlpack(values):
    """Return an object that has only the DLPack interface of a tensor or of an array of CuPy."""
    try:
        array = of_torch(values)
    except pytest.skip.Exception:
        array = of_cupy(values)
    return SimpleNamespace(
        __dlpack__=array.__dlpack__, __dlpack_device__=array.__dlpack_device__, array=array
    )


def to_host(array):
    """Return the elements of any of these arrays."""
    array = getattr(array, "array", array)
    for name in ("copy_to_host", "get"):
        if hasattr(array, name):
            return getattr(array, name)()
    return array.cpu().numpy()


def stream_of(package, device):
    """Return a stream of *package*."""
    if package == "cupy":
        return pytest.importorskip("cupy", reason="CuPy is not installed").cuda.Stream(non_blocking=True)
    if package == "torch":
        return pytest.importorskip("torch", reason="PyTorch is not installed").cuda.Stream()
    if package == "numba":
        return cuda.stream()
    if package in {"cuda.core", "handle"}:
        LIVING.append(device.create_stream())
        return LIVING[-1] if package == "cuda.core" else int(LIVING[-1].handle)
    return None


@pytest.mark.parametrize(
    ("make", "stream"),
    [
        *((of_numba, stream) for stream in ("none", "cuda.core", "cupy", "torch", "numba", "handle")),
        *((make, "handle") for make in (of_cupy, of_torch, of_dlpack)),
    ],
)
def test_arrays_and_streams_of_other_packages(device, udfs, make, stream):
    """An array of each package is written on a stream of each package."""
    values = np.arange(SIZE, dtype=np.float32)
    array, queue = make(values), stream_of(stream, device)
    device.sync()
    udfs.scale[(SIZE + 127) // 128, 128, queue](array, 3)
    device.sync()
    assert np.array_equal(values * 3, to_host(array))


def test_more_shared_memory_than_usual(device, udfs):
    """A launch with 60,000 bytes of shared memory sets the driver's limit first."""
    out = cuda.to_device(np.zeros(64, np.float32))
    udfs.through_shared[1, 64, None, 60000](out)
    device.sync()
    assert np.array_equal(np.arange(64, dtype=np.float32), out.copy_to_host())


def test_the_attributes_of_a_launch(device, udfs):
    """Clusters and programmatic dependent launches compute the same; a wrong cluster is refused."""
    if device.compute_capability < (9, 0):
        pytest.skip("clusters and dependent launches need a device of 9.0 or later")
    out = cuda.to_device(np.ones(SIZE, np.float32))
    udfs.scale.launch(out, 2, grid=8, block=128, cluster=(2, 1))
    udfs.scale.launch(out, 2, grid=8, block=128, programmatic_dependent=True)
    udfs.scale.launch(out, 2, grid=8, block=128, cooperative=True)
    device.sync()
    assert np.array_equal(np.full(SIZE, 8, np.float32), out.copy_to_host())
    with pytest.raises(pl.LaunchError, match="cluster"):
        udfs.scale.launch(out, 2, grid=8, block=128, cluster=3)


def test_a_thread_without_a_context_launches(device, udfs):
    """A new thread launches on a stream and on the default one."""
    arrays = [cuda.to_device(np.ones(SIZE, np.float32)) for _ in range(8)]
    queue, errors = device.create_stream(), []

    def launch(number):
        try:
            udfs.scale[8, 128, queue if number % 2 else None](arrays[number], number)
        except pl.LaunchError as error:
            errors.append(error)

    threads = [threading.Thread(target=launch, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    device.sync()
    assert errors == []
    assert list(range(8)) == [int(array.copy_to_host()[-1]) for array in arrays]


def test_a_launch_waits_for_the_stream_that_an_array_names(device, udfs):
    """Work queued before, on the stream of the array's interface, is done before the launch."""
    values = np.zeros(1 << 20, np.float32)
    first, second = device.create_stream(), device.create_stream()
    array = cuda.to_device(values)
    device.sync()
    interface = {**array.__cuda_array_interface__, "stream": int(first.handle)}
    for _ in range(50):
        udfs.fill[4096, 256, first](array, values.size, 1.0)
    udfs.scale[4096, 256, second](SimpleNamespace(__cuda_array_interface__=interface), 2)
    device.sync()
    assert np.array_equal(np.arange(values.size, dtype=np.float32) * 2, array.copy_to_host())


def test_a_kernel_of_cuda_core(device, udfs):
    """The handle of a kernel is one of cuda.core."""
    from cuda.core import Kernel, LaunchConfig, launch

    out, queue = cuda.to_device(np.zeros(SIZE, np.float32)), device.create_stream()
    device.sync()
    address = out.__cuda_array_interface__["data"][0]
    config = LaunchConfig(grid=8, block=128)
    launch(queue, config, Kernel.from_handle(udfs.fill.handle), address, np.int32(SIZE), np.float32(0.5))
    queue.sync()
    assert np.array_equal(np.arange(SIZE, dtype=np.float32) / 2, out.copy_to_host())


PROGRAM = """
import sys
import numba_ptxlink
udfs = numba_ptxlink.load(sys.argv[1])
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
udfs.fill[1, 1](None, 0, 0.0)
address, last = ctypes.c_uint64(), ctypes.c_float()
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4096)) == 0
udfs.fill[8, 128](address.value, 1000, 0.5)
place = ctypes.c_uint64(address.value + 3996)
assert cuda.cuMemcpyDtoH_v2(ctypes.byref(last), place, ctypes.c_size_t(4)) == 0
assert last.value == 499.5
assert not {"numba", "cuda", *sys.argv[2:]} & set(sys.modules), sorted(sys.modules)
"""


def test_a_fresh_process_needs_no_other_package(exported):
    """A program launches with nothing imported but this package, and on the CPU its compiler."""
    absent = ["llvmlite", "numpy"] if not missing_gpu() else []
    subprocess.run([sys.executable, "-c", PROGRAM, str(exported.manifest), *absent], check=True)


def test_a_grid_meets(arch, tmp_path):
    """A kernel that synchronises its grid is launched cooperatively; too many blocks are refused."""
    pl.export([exchange], tmp_path, arch=[arch], emit=["kernels", "ptx"], name="made")
    kernel = pl.load(tmp_path / "made.json").exchange
    source, target = cuda.device_array(64, np.int32), cuda.device_array(64, np.int32)
    kernel[64, 1](source, target)
    assert list(range(64))[::-1] == target.copy_to_host().tolist()
    array = cuda.device_array(1 << 20, np.int32)
    with pytest.raises(pl.LaunchError, match="use fewer blocks"):
        kernel[1 << 20, 1](array, array)
