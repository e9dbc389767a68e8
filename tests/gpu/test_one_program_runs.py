"""One C++ program that calls the same Python functions compiled by both front ends, on a device."""

from __future__ import annotations

import numpy as np
import one_program
import pytest
from abi_device import arch, device


@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin"])
def test_both_front_ends_compute_the_same(tmp_path, kind):
    """The results are equal bit for bit, and those of Python but for the last bits of sines."""
    from cuda.core import LaunchConfig, launch
    from numba import cuda

    linked = one_program.link(tmp_path, kind, arch().sm)
    values = np.linspace(-3, 3, 129)
    given = cuda.to_device(values)
    outs = [cuda.to_device(np.full((len(values), 6), np.nan)) for _ in range(2)]
    stream = device().create_stream()
    addresses = [int(each.__cuda_array_interface__["data"][0]) for each in (given, *outs)]
    launch(
        stream,
        LaunchConfig(grid=3, block=64),
        linked.kernel("compare"),
        addresses[0],
        np.int32(len(values)),
        *addresses[1:],
    )
    stream.sync()
    by_cuda, by_mlir = (out.copy_to_host() for out in outs)
    assert by_cuda.tobytes() == by_mlir.tobytes()
    np.testing.assert_allclose(by_cuda, one_program.expected(values), rtol=1e-14, atol=1e-14)
