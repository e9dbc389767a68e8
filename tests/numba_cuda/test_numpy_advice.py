"""What is to be written in the place of a function of NumPy that numba-cuda lacks has its value."""

from __future__ import annotations

import ctypes
import ctypes.util
import itertools
import math
import re

import numpy as np
import pytest
from numba import cuda
from numba.cuda.descriptor import cuda_target

import numba_ptxlink as pl
from numba_ptxlink._numba_cuda import compile as compiling

NUMBERS = (7, 4, -7, -4, 0.25, -0.5, 2.5, -3.75, 0.0, -0.0, 1e300, math.inf, -math.inf, math.nan)
UFUNCS = {each.__name__: each for each in vars(np).values() if isinstance(each, np.ufunc)}
FREELY = "it with operators, or functions of `math`"


@cuda.jit(device=True)
def modulo(x):
    """Call a ufunc by one of its two names."""
    return np.mod(x, x)


@cuda.jit(device=True)
def close(x):
    """Call what Numba has in Python, with ufuncs."""
    return np.isclose(x, x)


def advice(name):
    """Return what the error of the ufunc *name* has users write."""
    return str(compiling._lacked(KeyError(UFUNCS[name]))).partition("; write ")[2]


def evaluated(words, args):
    """Return the value of what the *words* of an advice tell to write of numbers."""
    (word, *others) = re.findall("`(.*?)`", words)
    if others:
        return tuple(evaluated(f"`{each}`", args) for each in (word, *others))
    module, _, function = word.rpartition(".")
    if module == "math":
        return getattr(math, function)(*args)
    if module:
        # A function of libdevice is that of C by its name.
        c = getattr(ctypes.CDLL(ctypes.util.find_library("m")), function)
        c.restype, c.argtypes = ctypes.c_double, [ctypes.c_double] * len(args)
        return c(*args)
    if word.isalpha():
        return abs(*args) if word == "abs" else pytest.fail(f"there is no value for {word}")
    return eval(f"a {word} b" if len(args) == 2 else f"{word}a", {}, dict(zip("ab", args, strict=False)))  # noqa: S307


@pytest.mark.slow
def test_what_is_advised_has_the_value():
    """Each ufunc and what is advised agree for numbers of both signs, infinities and NaN."""
    # What numba-cuda knows is registered by its first compilation.
    cuda_target.typing_context.refresh()
    compared = {name: 0 for name in UFUNCS if advice(name) != FREELY}
    for name in compared:
        ufunc, words = UFUNCS[name], advice(name)
        for numbers in itertools.product(map(float, NUMBERS), repeat=ufunc.nin):
            args = numbers
            if name == "ldexp":
                args = (numbers[0], int(numbers[1]) if abs(numbers[1]) < 100 else 3)
            with np.errstate(all="ignore"):
                expected = ufunc(*args)
            try:
                actual = evaluated(words, args)
            except (ValueError, OverflowError, ZeroDivisionError):
                # Python's own functions refuse what has no finite value; device code gives it.
                assert not np.all(np.isfinite(expected)), (name, args)
                continue
            # A power of a negative number, which is NaN in device code.
            if not isinstance(actual, complex):
                compared[name] += 1
                np.testing.assert_allclose(
                    np.asarray(actual, float), expected, rtol=1e-14, err_msg=f"{name}{args}"
                )
    assert {"remainder", "sqrt", "cbrt", "rint", "floor", "isinf", "nextafter", "absolute"} <= compared.keys()
    assert min(compared.values()) >= 4, compared


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (modulo, r"no `numpy\.mod` or `numpy\.remainder` of such numbers; write `%`$"),
        (close, r"no `numpy\.isclose` of such numbers, as it calls `numpy\.isinf`; write it with"),
        (np.nan_to_num, r"no `numpy\.nan_to_num` of such numbers, as it calls `numpy\.isinf`; write it with"),
        (np.isinf, r"no `numpy\.isinf` of such numbers; write `math\.isinf`$"),
    ],
    ids=["mod", "isclose", "nan_to_num", "isinf"],
)
def test_the_error_names_what_is_written(written, said):
    """The function in the code is named, by all its names, and not only one that Numba calls in its place."""
    with pytest.raises(pl.ExportError, match=said):
        pl.export(pl.udf("float64(float64)", name="f")(lambda x: written(x) + 1), emit=["ptx"])
