"""Kernels that were exported for the driver's release are loaded and right, compiled by the driver too."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink._tools import driver, ptxas

SIZE = 64


@pl.kernel(types.void(types.Array(types.float16, 1, "C"), types.float32))
def scale(out, factor):
    """Multiply each element."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = types.float16(factor) * out[i]


@pytest.mark.parametrize("machine_code", [True, False])
def test_the_driver_loads_what_was_made_for_it(machine_code, monkeypatch):
    """It loads machine code, and compiles PTX where no compiler of a release that old is installed."""
    release = driver.version() if machine_code else (12, 8)
    monkeypatch.setattr(ptxas, "find_tools", lambda *_, **__: iter(()))
    exported = pl.export([scale], archs="native", emit=["kernels"], cuda=release, name="older")
    out = cuda.to_device(np.arange(SIZE, dtype=np.float16))
    pl.load(exported).scale[1, SIZE](out, 2.0)
    cuda.synchronize()
    np.testing.assert_array_equal(2 * np.arange(SIZE, dtype=np.float16), out.copy_to_host())
