"""Exported functions called from CUDA C++ on a device, linked as PTX and as LTO-IR."""

from __future__ import annotations

import math

import numpy as np
import pytest

import numba_ptxlink as pl

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SCALARS = (*INTEGERS, "float32", "float64")
NAMES = {"float32": "float", "float64": "double", **{name: f"{name}_t" for name in INTEGERS}}


@pytest.fixture
def arch():
    """Return the device's architecture."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    return pl.Arch.of(tuple(device.compute_capability))


def values(dtype: str) -> np.ndarray:
    """Return values of *dtype* with its extremes among them."""
    if dtype.startswith("f"):
        drawn = np.random.default_rng(1).normal(size=60)
        return np.array([0.0, -0.0, 1.0, -1.5, *drawn], dtype=dtype)
    limits = np.iinfo(dtype)
    drawn = np.random.default_rng(1).integers(limits.min, limits.max, 60, dtype=dtype, endpoint=True)
    return np.array([limits.min, limits.max, limits.min // 2, 0, 1, *drawn], dtype=dtype)


def call(tmp_path, arch, kind, udfs, body, out, *arrays):  # noqa: PLR0917
    """Run a C++ kernel with *body* over *arrays*, linked with *udfs* as *kind*; return *out* filled."""
    from cuda.core import Device, LaunchConfig, launch
    from numba import cuda

    made = pl.export(udfs, tmp_path, archs=[arch], emit=[kind], name="udfs")
    parameters = ", ".join(f"const {C_NAMES[array.dtype.name]}* a{i}" for i, array in enumerate(arrays))
    source = f"""
        #include "udfs.h"
        extern "C" __global__ void caller({C_NAMES[out.dtype.name]}* out, int n, {parameters}) {{
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) {{ {body} }}
        }}
    """
    linked = pl.link(
        source, made.artifacts[kind, arch.sm], arch=arch, lto=kind == "ltoir", include_dirs=[tmp_path]
    )
    device = Device(0)
    device.set_current()
    target, sources = cuda.to_device(out), [cuda.to_device(array) for array in arrays]
    pointers = [each.__cuda_array_interface__["data"][0] for each in (target, *sources)]
    stream = device.create_stream()
    launch(
        stream,
        LaunchConfig(grid=(out.size + 63) // 64, block=64),
        linked.kernel("caller"),
        pointers[0],
        np.int32(out.size),
        *pointers[1:],
    )
    stream.sync()
    return target.copy_to_host()


C_NAMES = {**NAMES, "bool": "bool"}


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
@pytest.mark.parametrize("dtype", SCALARS)
def test_a_scalar_survives_both_ways(tmp_path, arch, kind, dtype):
    """A value of each type reaches Python and comes back bit for bit, extremes and signs included."""

    @pl.udf(f"{dtype}({dtype}, {dtype})")
    def second(_first, other):
        return other

    given = values(dtype)
    out = call(
        tmp_path, arch, kind, [second], "out[i] = second(a0[0], a0[i]);", np.full_like(given, 77), given
    )
    assert given.tobytes() == out.tobytes()


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "uint16"])
def test_a_narrow_result_is_widened_by_its_sign(tmp_path, arch, kind, dtype):
    """C++ that widens a narrow result sees the sign that Python gave it."""

    @pl.udf(f"{dtype}({dtype})")
    def successor(x):
        return x + 1

    given = values(dtype)
    out = call(
        tmp_path,
        arch,
        kind,
        [successor],
        "out[i] = successor(a0[i]);",
        np.full(given.shape, 77, dtype=np.int64),
        given,
    )
    assert (given + np.dtype(dtype).type(1)).astype(np.int64).tolist() == out.tolist()


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_booleans_survive_both_ways(tmp_path, arch, kind):
    """A boolean argument and a boolean result are what C++ takes them for."""

    @pl.udf("boolean(boolean, int32)")
    def flip(flag, number):
        return not flag if number > 0 else flag

    flags, numbers = np.array([False, True, False, True]), np.array([1, 1, -1, -1], dtype=np.int32)
    out = call(
        tmp_path,
        arch,
        kind,
        [flip],
        "out[i] = flip(a0[i], a1[i]) ? 1 : -1;",
        np.zeros(4, dtype=np.int32),
        flags,
        numbers,
    )
    assert [1, -1, -1, 1] == out.tolist()


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_a_void_function_writes_through_its_pointer(tmp_path, arch, kind):
    """A void function changes what its pointer argument points to."""

    @pl.udf("void(CPointer(float64), int32, float64)")
    def store(target, index, value):
        target[index] = math.sqrt(value)

    given = np.arange(100, dtype=np.float64)
    out = call(tmp_path, arch, kind, [store], "store(out, i, a0[i]);", np.full(100, -1.0), given)
    assert np.sqrt(given).tolist() == out.tolist()


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_functions_of_one_module_call_helpers_and_libdevice(tmp_path, arch, kind):
    """Functions of one artifact, with jitted helpers, closures and libdevice, compute what Python does."""
    from numba import cuda, njit

    scale = 2.5

    @cuda.jit(device=True)
    def square(x):
        return x * x

    @njit
    def wave(x):
        return math.sin(x) * scale

    @pl.udf("float64(float64)")
    def energy(x):
        return square(wave(x)) + math.exp(-x)

    @pl.udf("float64(float64, int32)")
    def twice(x, n):
        return energy(x) * n

    given = np.linspace(-3, 3, 200)
    out = call(
        tmp_path,
        arch,
        kind,
        [energy, twice],
        "out[i] = energy(a0[i]) + twice(a0[i], 2);",
        np.zeros(200),
        given,
    )
    expected = 3 * ((np.sin(given) * scale) ** 2 + np.exp(-given))
    np.testing.assert_allclose(out, expected, rtol=1e-13)
