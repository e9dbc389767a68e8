"""Exports that are compiled in several groups, and large records: called from C++ and Numba on a device."""

from __future__ import annotations

import numpy as np
import pytest

import numba_ptxlink as pl

pytestmark = pytest.mark.filterwarnings("ignore::numba.cuda.core.errors.NumbaPerformanceWarning")

COUNT = 40
SOURCE = """\
from numba import cuda
from numba_ptxlink import udf


@cuda.jit(device=True)
def helper(x, n):
    r = x
    for step in range(n % 5 + 1):
        r = (r * 3 + n) % 1009
    return r
"""
FUNCTION = """

@udf("int64(int64)")
def f{0}(x):
    return helper(x, {0}) * {0} + x
"""
RECORDS = """\
import numpy as np
from numba_ptxlink import udf

Big = np.dtype([(f"m{{number}}", np.{1}) for number in range({0})], align=True)


@udf("Big(Big, int64)")
def changed(big, x):
    big.m1 = x
    return big


@udf("Big(Big[::1], int64)")
def chosen(many, x):
    return many[x]
"""
KINDS = ("ptx", "ltoir", "cubin", "fatbin")


def expected(x: int, n: int) -> int:
    """Return what function *n* makes of *x*."""
    r = x
    for _ in range(n % 5 + 1):
        r = (r * 3 + n) % 1009
    return r * n + x


@pytest.fixture
def arch():
    """Return the device's architecture."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    return pl.Arch.of(tuple(device.compute_capability))


@pytest.fixture
def made(tmp_path, arch):
    """Return an export of functions that are compiled in several groups."""
    (tmp_path / "many.py").write_text(SOURCE + "".join(map(FUNCTION.format, range(COUNT))))
    return pl.export(tmp_path / "many.py", tmp_path, archs=[arch], emit=list(KINDS))


def artifact(made, kind, arch):
    """Return the file of *kind*."""
    return made.artifacts[kind, "" if kind == "fatbin" else arch.sm]


def run(linked, name, block, *arrays):
    """Launch one block of the kernel *name* over *arrays*."""
    from cuda.core import Device, LaunchConfig, launch

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    pointers = [array.__cuda_array_interface__["data"][0] for array in arrays]
    launch(stream, LaunchConfig(grid=1, block=block), linked.kernel(name), *pointers)
    stream.sync()


@pytest.mark.parametrize("kind", KINDS)
def test_cxx_calls_every_function(tmp_path, arch, made, kind):
    """Each of the functions of several groups computes what Python computes."""
    from numba import cuda

    calls = "".join(f"out[{n} * 64 + i] = f{n}(x);" for n in range(COUNT))
    source = (
        '#include "many.h"\nextern "C" __global__ void all(long long* out) '
        f"{{ int i = threadIdx.x; long long x = i; {calls} }}"
    )
    linked = pl.link(
        source, artifact(made, kind, arch), arch=arch, lto=kind == "ltoir", include_dirs=[tmp_path]
    )
    out = cuda.to_device(np.zeros((COUNT, 64), np.int64))
    run(linked, "all", 64, out)
    want = [[expected(x, n) for x in range(64)] for n in range(COUNT)]
    assert want == out.copy_to_host().tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["int8", "float64"])
@pytest.mark.parametrize("taken", ["record", "array", "unaligned array"])
def test_a_large_record_comes_back(tmp_path, arch, kind, dtype, taken):
    """A large record that is returned arrives whole, also out of an array that is not aligned."""
    from numba import cuda

    if kind in {"cubin", "fatbin"} and pl.toolchain().nvjitlink <= (13, 0):
        pytest.skip("nvJitLink 13.0 passes some structs of more than 128 bytes wrongly, and warns")
    # More than a thread has registers for.
    count = 1100 // np.dtype(dtype).itemsize
    (tmp_path / "large.py").write_text(RECORDS.format(count, dtype))
    made = pl.export(tmp_path / "large.py", tmp_path, archs=[arch], emit=[kind])
    shift = int(taken == "unaligned array")
    call = "changed(((Big*)in)[1], 5)" if taken == "record" else f"chosen({{(Big*)(in + {shift}), 2}}, 1)"
    source = (
        '#include "large.h"\nextern "C" __global__ void get(char* out, char* in) '
        f"{{ Big got = {call}; for (int i = 0; i < (int)sizeof(Big); i++) out[i] = ((char*)&got)[i]; }}"
    )
    linked = pl.link(
        source, artifact(made, kind, arch), arch=arch, lto=kind == "ltoir", include_dirs=[tmp_path]
    )
    values = (np.arange(2 * count) % 128).astype(dtype)
    there = np.zeros(values.nbytes + 8, np.uint8)
    there[shift : shift + values.nbytes] = values.view(np.uint8)
    out = cuda.to_device(np.zeros(count * values.itemsize, np.uint8))
    run(linked, "get", 1, out, cuda.to_device(there))
    want = values[count:].copy()
    if taken == "record":
        want[1] = 5
    assert want.tolist() == out.copy_to_host().view(dtype).tolist()
