"""Kernels that link cuDF's shim, a fat binary of PTX with its string and group functions."""

from __future__ import annotations

import importlib.metadata
from functools import partial
from typing import Any

from numba import cuda, types
from standin import Kernel

BYTE = types.CPointer(types.uint8)


def shim() -> str:
    """Return the path of the fat binary, whose package cannot be imported without a device."""
    distribution = importlib.metadata.distribution("cudf-cu13")
    return str(distribution.locate_file("cudf/core/udf/shim.fatbin"))


def reduce(name: str, element: Any, result: Any) -> Kernel:
    """Return a kernel that calls a function of a group."""
    function = cuda.declare_device(name, result(types.CPointer(element), types.int64))

    @cuda.jit(link=[shim()])
    def kernel(group, size, out):
        out[0] = function(group, size)

    return Kernel(kernel, (types.CPointer(element), types.int64, result[::1]))


def compare(name: str, result: Any) -> Kernel:
    """Return a kernel that calls a function of two strings."""
    function = cuda.declare_device(name, result(BYTE, BYTE))

    @cuda.jit(link=[shim()])
    def kernel(one, other, out):
        out[0] = function(one, other)

    return Kernel(kernel, (BYTE, BYTE, result[::1]))


CASES = {
    "sum of a group": partial(reduce, "BlockSum_float64", types.float64, types.float64),
    "deviation of a group": partial(reduce, "BlockStd_float32", types.float32, types.float64),
    "place of a string in another": partial(compare, "find", types.int32),
}
