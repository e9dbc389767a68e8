"""What errors do on a device: unchecked and checked, with zero and with a trap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import errors_module as errors
import numpy as np
import pytest

import numba_ptxlink as pl
from numba_ptxlink.linker import INCLUDE_DIR

KINDS = pytest.mark.parametrize("kind", ["ptx", "ltoir"])
SOURCE = """
#include "udfs.h"
extern "C" __global__ void caller(int* out, int* values, int n)
{{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = {call};
}}
"""


def run(folder, kind, function, signature, call, values, **options):  # noqa: PLR0917
    """Return what *call* gives for each of *values*, which a C++ kernel computes with the function `f`."""
    from cuda.core import Device, LaunchConfig, launch
    from numba import cuda

    device = Device(0)
    device.set_current()
    arch = pl.Arch.of(tuple(device.compute_capability))
    udf = pl.udf(signature, name="f", **options)(function)
    exported = pl.export([udf], folder, archs=[arch], emit=[kind], name="udfs")
    linked = pl.link(
        SOURCE.format(call=call),
        exported.artifacts[kind, arch.sm],
        arch=arch,
        lto=kind == "ltoir",
        include_dirs=[folder, INCLUDE_DIR],
    )
    out, arguments = cuda.to_device(np.full(len(values), 77, np.int32)), cuda.to_device(values)
    addresses = [array.__cuda_array_interface__["data"][0] for array in (out, arguments)]
    stream = device.create_stream()
    launch(
        stream,
        LaunchConfig(grid=1, block=len(values)),
        linked.kernel("caller"),
        *addresses,
        np.int32(len(values)),
    )
    stream.sync()
    return out.copy_to_host().tolist()


@KINDS
@pytest.mark.parametrize("function", [errors.quotient, errors.calls_device, errors.calls_udf])
def test_a_division_by_zero(tmp_path, kind, function):
    """Unchecked, an integer divided by zero is 0; checked, the function returns zero."""
    values = np.arange(-4, 5, dtype=np.int32)
    for checked in (False, True):
        out = run(tmp_path, kind, function, "int32(int32, int32)", "f(9, values[i])", values, checked=checked)
        expected = [1 + 9 // y if y else int(not checked) for y in values.tolist()]
        assert expected == out


@KINDS
def test_an_index_out_of_range(tmp_path, kind):
    """Unchecked, an index beyond the view reads the memory there; checked, the function returns zero."""
    values = np.arange(-6, 10, dtype=np.int32)
    inside = {index: values[6 + index % 4] for index in range(-4, 4)}
    for checked in (False, True):
        out = run(
            tmp_path,
            kind,
            errors.item,
            "int32(int32[::1], int32)",
            "f({values + 6, 4}, values[i])",
            values,
            checked=checked,
        )
        # -5 wraps to one before the view, and 4 and more are behind it.
        expected = [
            inside.get(index, 0 if checked else values[6 + (index if index >= 0 else index + 4)])
            for index in values.tolist()
        ]
        assert expected == out


@pytest.mark.parametrize("checked", [False, True])
def test_a_trap_stops_the_kernel(tmp_path, checked):
    """With on_error="trap" an error ends the launch with an error of the driver; what is none does not."""
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import pathlib
import numpy as np
import errors_module
import test_errors_execution as test
print(test.run(pathlib.Path({str(tmp_path)!r}), "ltoir", errors_module.quotient, "int32(int32, int32)",
               "f(9, values[i])", np.array([3, 0], np.int32), on_error="trap", checked={checked}))
"""
    # A trap ends the context, so that the process is of no more use.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if checked:
        assert done.returncode
        assert "CUDA_ERROR" in done.stderr
    else:
        assert (0, "[4, 1]") == (done.returncode, done.stdout.strip()), done.stderr
