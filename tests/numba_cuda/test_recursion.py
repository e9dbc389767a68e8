"""Functions that call themselves and each other, exported and in kernels."""

from __future__ import annotations

import pytest
from numba import cuda, njit

import numba_ptxlink as pl
from numba_ptxlink import udf
from numba_ptxlink._formats.ptx import parse


@udf("int64(int64)")
def factorial(n):
    """Call itself."""
    if n <= 0:
        return 1
    return n * factorial(n - 1)


@udf("int64(int64)")
def plain(n):
    """Be called by others."""
    return n + 1


@njit
def between(n):
    """Call a marked function from a helper."""
    return plain(n) * 2


@udf("int64(int64)")
def through_helper(n):
    """Call a helper that calls a marked function."""
    return between(n) + plain(n)


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


@cuda.jit(device=True)
def widening(n):
    """Call itself with 64 bits: Python's literals are int64."""
    if n <= 0:
        return 1
    return n * widening(n - 1)


@udf("int64(int64)")
def calls_device(n):
    """Call a device function that calls itself."""
    return device(n)


CASES = {
    "a device function": [calls_device],
    "njit": [plain, through_helper],
}


@pytest.mark.parametrize("case", CASES)
def test_recursion_is_exported(tmp_path, case):
    """All that is called is in the artifact, for every architecture and each time."""
    for number in range(2):
        exported = pl.export(CASES[case], tmp_path / str(number), archs=["sm_80", "sm_100"], name="mine")
        for arch in ("sm_80", "sm_100"):
            functions = parse(exported.artifacts["ptx", arch].read_text()).functions
            defined = {function.name for function in functions if function.defined}
            assert set() == {function.name for function in functions} - defined
            assert {signature.name for signature in exported.signatures} <= defined
            # The second time the bytes are the same.
            for kind in () if number else ("ltoir", "cubin"):
                pl.link(exported.artifacts[kind, arch], arch=arch, lto=kind == "ltoir")
    names = {path.name for path in (tmp_path / "0").iterdir()}
    assert [] == [
        name for name in names if (tmp_path / "0" / name).read_bytes() != (tmp_path / "1" / name).read_bytes()
    ]


def test_a_marked_function_that_calls_itself_is_refused(tmp_path):
    """Numba compiles no function within its own compilation: the message tells what to write."""
    with pytest.raises(pl.ExportError, match=r"re-entrant to the same function"):
        pl.export([factorial], tmp_path, archs=["sm_90"])


@pytest.mark.parametrize("function", [ping, widening])
def test_what_numba_cuda_has_no_recursion_for_is_refused(tmp_path, function):
    """With other argument types, or in a circle, numba-cuda compiles no call of a function to itself."""
    called = udf("int64(int32)", name="calls")(lambda n: function(n) + 1)
    with pytest.raises(pl.ExportError, match="write a loop"):
        pl.export([called], tmp_path, archs=["sm_90"])
