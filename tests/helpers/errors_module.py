"""Functions that divide, index and raise, outside of the tests, in which pytest rewrites `assert`."""

from __future__ import annotations

from numba import cuda

import numba_ptxlink as pl


def quotient(x, y):
    """Divide, rounding down."""
    return 1 + x // y


def remainder(x, y):
    """Take the remainder."""
    return 1 + x % y


def ratio(x, y):
    """Divide."""
    return x / y


def inverse(x, _y):
    """Invert by a power."""
    return x**-1


def item(array, index):
    """Read an element."""
    return array[index]


def last_but(array, index):
    """Write an element and read the last one."""
    array[index] = 9
    return array[-1]


@cuda.jit(device=True)
def device_quotient(x, y):
    """Divide, for other functions."""
    return x // y


@pl.udf("int32(int32, int32)", on_error="trap", checked=True)
def udf_quotient(x, y):
    """Divide, for C++ too."""
    return x // y


def calls_device(x, y):
    """Call a device function."""
    return 1 + device_quotient(x, y)


def calls_udf(x, y):
    """Call an exported function, whose own options do not count here."""
    return 1 + udf_quotient(x, y)


def calls_closure(x, y):
    """Call an inner function, which Numba inlines."""

    def inner(a):
        return a // y

    return 1 + inner(x)


def asserted(x, y):
    """Refuse zero by `assert`."""
    assert y
    return x


@cuda.jit(device=True)
def positive(x):
    """Refuse negative numbers."""
    if x < 0:
        raise ValueError
    return x


@cuda.jit(device=True)
def never(x):
    """Refuse everything but zero."""
    if x:
        raise KeyError
    return x


def summed(array, x):
    """Raise in several places, in a loop that cannot, and in code that is never reached."""
    total = 0
    for i in range(x):
        total += array[i] // 2
    if not total:
        raise ValueError  # not by assert, which numba-cuda does not compile from Python 3.14 on
    if x is None:
        return never(x)
    return total // positive(x)
