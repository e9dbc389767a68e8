"""Functions that call themselves and each other, exported and in kernels."""

from __future__ import annotations

import fakedevice
import numpy as np
import pytest
from numba import cuda, njit
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink import udf
from numba_ptxlink._export import reached
from numba_ptxlink._formats.ptx import parse


@udf("int64(int64)")
def factorial(n):
    """Call itself."""
    if n <= 0:
        return 1
    return n * factorial(n - 1)


@udf("int32(int32)")
def widening(n):
    """Call itself with 64 bits: Python's literals are int64."""
    if n <= 0:
        return 1
    return n * widening(n - 1)


@udf("float32(float32)")
def single(x):
    """Call itself in one precision."""
    if x <= 0:
        return np.float32(1)
    return x * single(x - np.float32(1))


@udf("int64(int64)")
def even(n):
    """Call another function that calls this one."""
    if n == 0:
        return 1
    return odd(n - 1)


@udf("int64(int64)")
def odd(n):
    """Call the other one."""
    if n == 0:
        return 0
    return even(n - 1)


@udf("float64(float64)", name="aliased_double")
@udf("int64(int64)", name="aliased_long")
def aliased(n):
    """Call itself by another name, for two signatures."""
    if n <= 0:
        return n
    return alias(n - 1)


alias = aliased


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


@udf("int64(int64)")
def plays(n):
    """Call one of a circle."""
    return ping(n)


@udf("int64(int64)")
def starts_elsewhere(n):
    """Call the other one of a circle."""
    return pong(n)


def make():
    """Return a function that calls itself through a closure."""

    @udf("int64(int64)")
    def enclosed(n):
        if n <= 0:
            return 1
        return n * enclosed(n - 1)

    return enclosed


@cuda.jit(device=True)
def device(n):
    """Call itself as a device function."""
    if n <= 0:
        return 1
    return n * device(n - 1)


CASES = {
    "a device function": [udf("int64(int64)", name="marked")(device)],
    "itself": [factorial],
    "wider": [widening],
    "one precision": [single],
    "each other": [even, odd],
    "alias": [aliased],
    "njit": [plain, through_helper],
    "circle": [plays],
    "circle from the other side": [starts_elsewhere],
    "closure": [make()],
}


ALIKE = ("one precision", "circle from the other side")


@pytest.mark.parametrize(
    "case", [pytest.param(each, marks=pytest.mark.slow if each in ALIKE else ()) for each in CASES]
)
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


def test_recursion_keeps_the_prototype_and_the_parameters(tmp_path):
    """The header declares the function as it is marked, not as it is compiled."""
    exported = pl.export([widening], tmp_path, archs=["sm_90"], emit=["ptx"])
    assert "int32_t widening(int32_t n);" in exported.header.read_text()


def test_recursion_with_line_numbers(tmp_path):
    """Numba finds the source of what is compiled, and warns of nothing."""
    exported = pl.export([factorial], tmp_path, archs=["sm_90"], emit=["ptx"], lineinfo=True)
    assert ["factorial"] == [signature.name for signature in exported.signatures]


def test_endless_recursion_is_refused(tmp_path):
    """A function whose result depends on nothing but itself has no type."""

    @udf("int64(int64)")
    def endless(n):
        return endless(n - 1)

    with pytest.raises(pl.ExportError, match="runaway recursion"):
        pl.export([endless], tmp_path, archs=["sm_90"])


def test_kernels_share_a_circle(monkeypatch):
    """A kernel, and after it another that starts at the other function, has both functions."""
    fakedevice.install(monkeypatch.setattr, (9, 0))
    pings = cuda.jit(device=True)(ping.py_func)

    def first(x):
        x[0] = ping(x[0])

    def second(x):
        x[0] = pong(x[0])

    def third(x):
        x[0] = pings(x[0])

    for kernel in (first, second, third):
        _, cubin = fakedevice.compile_kernel(kernel, (types.int64[::1],), lto=True)
        assert cubin.code[:4] == b"\x7fELF"


def test_a_module_is_not_asked_for_attributes_that_it_computes(recwarn):
    """Looking for calls reads what a module has, and triggers no warning of it."""

    def uses(x):
        return np.bool8(x)

    assert reached.recursion(uses) is None
    assert [] == [str(warning.message) for warning in recwarn]


def test_a_function_of_a_module_without_a_name_calls_itself(monkeypatch):
    """Where sys.modules does not have the function's module, as in a notebook's `exec`, it finds itself."""
    fakedevice.install(monkeypatch.setattr)
    scope = {"cuda": cuda, "__name__": "not_in_sys_modules"}
    exec(  # noqa: S102 - what a notebook does
        "@cuda.jit(device=True)\n"
        "def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n"
        "def kernel(x): x[0] = fibonacci(x[0] & 7)\n",
        scope,
    )
    _, code = fakedevice.compile_kernel(scope["kernel"], (types.int64[::1],))
    assert code.code.startswith(b"\x7fELF")
