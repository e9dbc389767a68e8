"""Kernels that were exported for the driver's release, or an older one, are loaded and right."""

from __future__ import annotations

import numpy as np
import pytest
from loaded_kernels import expected, mixed, scale_halves
from numba import cuda

import numba_ptxlink as pl
from numba_ptxlink._tools import driver, find, programs

# The CPU reads PTX of each release.
pytestmark = pytest.mark.gpu
SIZE = 64


def launch(exported):
    """Launch the kernels of *exported*, and compare."""
    loaded = pl.load(exported)
    out = cuda.to_device(np.arange(SIZE, dtype=np.float16))
    loaded.scale_halves[1, SIZE](out, 2.0)
    cuda.synchronize()
    np.testing.assert_array_equal(2 * np.arange(SIZE, dtype=np.float16), out.copy_to_host())
    first = np.arange(SIZE, dtype=np.float16) % 8 - 3
    second = np.arange(SIZE, dtype=np.float16) // 8 - 4
    sums = cuda.to_device(np.zeros(SIZE, np.float32))
    loaded.mixed[1, SIZE](cuda.to_device(first), cuda.to_device(second), sums)
    cuda.synchronize()
    np.testing.assert_array_equal(expected(first, second), sums.copy_to_host())


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("release", ["the driver's", (12, 8), (12, 4), (12, 0)])
def test_the_driver_takes_what_is_for_its_release(release, compiles, monkeypatch):
    """The driver loads machine code of a compiler of its release, or compiles the PTX if there is none."""
    release = driver.version() if isinstance(release, str) else release
    if compiles:
        monkeypatch.setattr(find, "programs", lambda *_, **__: iter(()))
    elif release[0] == 12 and programs.newest_ptxas(release) is None:
        pytest.skip("no ptxas of CUDA 12 is installed")
    exported = pl.export(
        [scale_halves, mixed], arch="native", emit=["kernels", "ptx"], cuda=release, name="older"
    )
    assert compiles or '"kernels": "' in exported.contents["older.json"].decode()
    launch(exported)
