"""Functions that call themselves and each other, exported and in kernels."""

from __future__ import annotations

import pytest
from numba import cuda

import numba_ptxlink as pl
from numba_ptxlink import udf
from numba_ptxlink._formats.ptx import parse


@udf("int64(int64)")
def factorial(n):
    """Call itself."""
    if n <= 0:
        return 1
    return n * factorial(n - 1)


@cuda.jit(device=True)
def ping(n):
    """Call another device function that calls this one."""
    if n <= 0:
        return 1
    return pong(n - 1) * 2


@cuda.jit(device=True)
def pong(n):
    """Call the other one."""
    if n <= 0:
        return 3
    return ping(n - 1)


@cuda.jit(device=True)
def device(n):
    """Call itself as a device function."""
    if n <= 0:
        return 1
    return n * device(n - 1)


@udf("int64(int64)")
def calls_device(n):
    """Call a device function that calls itself."""
    return device(n)


def test_a_marked_function_that_calls_itself_is_refused(tmp_path):
    """Numba compiles no function within its own compilation: the message tells what to write."""
    with pytest.raises(pl.ExportError, match=r"re-entrant to the same function"):
        pl.export([factorial], tmp_path, archs=["sm_90"])


def test_recursion_is_exported(tmp_path):
    """A device function that calls itself is in the artifact, for every architecture."""
    exported = pl.export([calls_device], tmp_path, archs=["sm_80", "sm_100"], emit=["ptx"])
    for arch in ("sm_80", "sm_100"):
        functions = parse(exported.artifacts["ptx", arch].read_text()).functions
        defined = {function.name for function in functions if function.defined}
        assert "calls_device" in defined
        assert defined == {function.name for function in functions}


def test_a_circle_of_functions_is_refused(tmp_path):
    """In a circle, numba-cuda compiles no call of a function to itself."""
    called = udf("int64(int32)", name="calls")(lambda n: ping(n) + 1)
    with pytest.raises(pl.ExportError, match="write a loop"):
        pl.export([called], tmp_path, archs=["sm_90"])
