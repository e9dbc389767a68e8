"""
Define expressions and kernels that a compiler compiles to the same code with the plugin and without it.

`python corpus.py FRONT_END` compiles them, and prints the code of each without names.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
import warnings
from typing import Any

import fakedevice
import front_ends
import numpy as np

# Each expression on the left with each of the types on the right.
_TABLE = """
a + b;a - b;a * b;a / b;a // b;a % b;a ** b | int32, uint32;uint64, int64;int8, uint8;int64, float32
a + b;a / b;a // b;a % b;a ** b             | float32, float64;float32, float32
a & b;a | b;a ^ b;a << b;a >> b             | int32, int32;uint8, uint8;uint64, int32;int16, int64
-a;+a;not a                                 | int8;uint8;int32;uint32;uint64;float32;float64
~a;a ** 2;a % 10;a // 2;1 << a;a + 1        | int32;uint8;uint64
math.sqrt(a);math.exp(a);math.sin(a);math.floor(a);math.isnan(a) | int32;float32;float64
round(a);a ** 0.5                           | float32;float64
a < b;a <= b;a == b;max(a, b);a and b       | int32, uint32;uint64, int64;float32, float64
b if a != a else a + b;min(a, b)            | float32, float32;float64, float32
0.1 if a > 0 else 1;int(a);bool(a);a ** -1;a * 0.5 | float32;float64;int32
a or b                                      | boolean, boolean
a * b + a                                   | complex64, complex64;complex128, float64
a.real - a.imag;abs(a)                      | complex64;complex128
complex(a, b);math.pow(a, b);math.atan2(a, b);math.copysign(a, b);math.fmod(a, b) | float32, float32
math.ldexp(a, b)                            | float64, int32
(a, b)[0] + (a, b)[1]                       | int32, float32
a[0] * a[1]                                 | UniTuple(float32, 2)
len(a) + a.shape[0] + a.ndim;a[-1]          | float32[::1]
a[b]                                        | float32[::1], int32
a[b % 3, -b]                                | float64[:, ::1], int64
np.float32(a) + np.int8(b);np.uint8(a) + np.uint8(b) | float64, int32;int32, int32
-np.uint8(a)                                | int32
"""
EXPRESSIONS = [
    (expression.strip(), types.strip())
    for line in _TABLE.strip().splitlines()
    for expression, types in itertools.product(*(part.split(";") for part in line.rsplit(" | ", 1)))
]
"""Expressions of `a` and `b`, each with their types."""

_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"debug": True, "opt": False},
    {"lineinfo": True},
    {"fastmath": True},
    {"launch_bounds": (128, 2)},
)


def kernels(cuda: Any) -> dict[str, tuple[Any, Any]]:
    """Return kernels of the compiler's module *cuda* by name, each with its signature."""
    results: dict[str, tuple[Any, Any]] = {}

    def kernel(signature: Any) -> Any:
        return lambda function: results.setdefault(function.__name__, (function, signature))

    _define(cuda, kernel)
    return results


def _define(cuda: Any, kernel: Any) -> None:
    @cuda.jit(device=True)
    def square(a):
        return a * a

    @cuda.jit(device=True)
    def both(a, b):
        return square(a) + 1, a < b

    @cuda.jit(device=True, inline="always")
    def clamp(a, low=0, high=1):
        return min(max(a, low), high)

    @cuda.jit(device=True)
    def count_down(n):
        return 0 if n < 1 else 1 + count_down(n - 1)

    @kernel("void(float32[::1], int32[::1])")
    def calls(x, y):
        i = cuda.grid(1)
        value, less = both(x[i], y[i])
        y[i] = value if less else square(y[i])

    @kernel("void(float32[::1])")
    def inlined(x):
        i = cuda.grid(1)
        x[i] = clamp(x[i]) + clamp(x[i], high=3) - clamp(2.5, 1, 2)

    @kernel("void(int64[::1])")
    def recursive(x):
        x[0] = count_down(x[1])


_BLOCK = re.compile(r"^(?=\.(?:visible|extern|weak|common|func|entry|global|const|shared)\b)", re.MULTILINE)
# Comments, and digits in the strings of debug information, where names hold addresses.
_IGNORED = re.compile(r"//.*|\b(?:4[89]|5[0-7])(?=[,\n])")
_SYMBOL = re.compile(r"\b(?:_Z|_cuda|__|f\b|numba|static_shared|constant_array)\w*")


def without_names(ptx: str) -> list[str]:
    """Return the functions and variables of *ptx*, sorted, with symbols replaced by their numbers in each."""
    blocks = (block.strip() for block in _BLOCK.split(_IGNORED.sub("", ptx)))
    # Numba's environments are variables that no code on a GPU uses.
    return sorted(_numbered(block) for block in blocks if block and "NumbaEnv" not in block)


def _numbered(block: str) -> str:
    numbered: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        return numbered.setdefault(re.sub(r"_param_\d+$", "", match[0]), f"S{len(numbered)}")

    return _SYMBOL.sub(number, block)


def compile_to_text(cuda: Any, function: Any, signature: Any, **options: Any) -> Any:
    """Compile *function*; return its code without names and its type, or the name of the error."""
    try:
        code, result = cuda.compile(function, signature, cc=(9, 0), output="ptx", **options)
    except Exception as error:  # noqa: BLE001 - an outcome like any other
        return type(error).__name__
    return [*without_names(code if isinstance(code, str) else code.decode()), str(result)]


def outcomes(name: str) -> dict[str, Any]:
    """Compile each entry of the corpus with the front end *name*; return the results."""
    cuda = front_ends.cuda(name)
    results = {}
    for text, types in EXPRESSIONS:
        scope: dict[str, Any] = {"math": math, "np": np}
        parameters = "a, b" if re.search(r"\bb\b", text) else "a"
        exec(f"def f({parameters}): return {text}", scope)  # noqa: S102 - the corpus is our own
        for abi in ("numba", "c"):
            results[f"{text} ({types}) {abi}"] = compile_to_text(cuda, scope["f"], f"({types},)", abi=abi)
    common_options = {"abi": "numba", "device": False}
    for label, (function, signature) in kernels(cuda).items():
        for options in _OPTIONS:
            results[f"{label} {options}"] = compile_to_text(
                cuda, function, signature, **common_options, **options
            )
    return results


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _, name = sys.argv
    # Without a device, stock numba-cuda compiles no kernels, and stock numba-cuda-mlir no helpers.
    if name == "numba-cuda":
        fakedevice.install(cc=(9, 0))
    else:
        from numba_cuda_mlir import tools

        tools._cached_cc = (9, 0)
    sys.stdout.write(json.dumps(outcomes(name)) + "\n")
