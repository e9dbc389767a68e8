"""One C++ program that calls the same Python functions compiled by both front ends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import front_ends
import numpy as np

import numba_ptxlink as pl

if TYPE_CHECKING:
    from pathlib import Path

TABLE = np.linspace(-2, 3, 16)
SOURCE = """
#include "numba_cuda.h"
#include "numba_cuda_mlir.h"

#define COMPUTE(prefix, out)                                                   \\
    do {                                                                       \\
        out[6 * i] = prefix##_wrap((int8_t)(x * 37), i * 1000003LL);           \\
        out[6 * i + 1] = prefix##_wave(x);                                     \\
        auto pair = prefix##_turn({(int16_t)i, x});                            \\
        out[6 * i + 2] = pair.f0;                                              \\
        out[6 * i + 3] = pair.f1;                                              \\
        out[6 * i + 4] = prefix##_checked(i - n / 2);                          \\
        out[6 * i + 5] = prefix##_total({in, n}, i);                           \\
    } while (0)

extern "C" __global__ void compare(const double* in, int n, double* by_cuda, double* by_mlir) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double x = in[i];
    COMPUTE(numba_cuda, by_cuda);
    COMPUTE(numba_cuda_mlir, by_mlir);
}
"""


def wrap(a, b):
    """Mix narrow and wide integers."""
    return a * 7 + (b ^ (b >> 3)) % 1009


def wave(x):
    """Call the library of mathematical functions, and choose."""
    value = math.sin(x) * math.exp(-x * x) + TABLE[3]
    return value if value > 0 else math.sqrt(-value)


def turn(pair):
    """Return a struct made of another's members."""
    return np.int16(-pair[0]), pair[1] * pair[0] + 0.5


def checked(x):
    """Raise for some values, which gives zero."""
    if x < 0:
        raise ValueError
    return x * 3


def total(values, n):
    """Loop over a view."""
    found = 0.0
    for i in range(n):
        found += values[i] * i
    return found


def udfs(name: str) -> list[pl.Udf]:
    """Return the marked functions, for the front end *name*."""
    types, prefix = front_ends.get(name).types, name.replace("-", "_")
    pair = types.Tuple((types.int16, types.float64))
    view = types.Array(types.float64, 1, "C", readonly=True)
    marked = {
        wrap: types.int64(types.int8, types.int64),
        wave: types.float64(types.float64),
        turn: pair(pair),
        checked: types.int32(types.int32),
        total: types.float64(view, types.int32),
    }
    return [
        pl.udf(signature, name=f"{prefix}_{function.__name__}", front_end=name)(function)
        for function, signature in marked.items()
    ]


def link(folder: Path, kind: str, arch: str) -> pl.Linked:
    """Export the functions by each front end as *kind*, and link both with the program for *arch*."""
    artifacts = [
        pl.export(udfs(name), folder, archs=[arch], emit=[kind], name=name.replace("-", "_")).artifacts[
            kind, arch
        ]
        for name in front_ends.NAMES
    ]
    (folder / "program.cu").write_text(SOURCE)
    return pl.link(folder / "program.cu", *artifacts, arch=arch, lto=kind == "ltoir", include_dirs=[folder])


def expected(values: np.ndarray) -> np.ndarray:
    """Return what Python computes for *values*, one row for each."""
    rows = []
    for i, x in enumerate(values.tolist()):
        narrow = int(np.int64(int(x * 37)).astype(np.int8))
        first, second = turn((np.int16(i), x))
        number = i - len(values) // 2
        rows.append([wrap(narrow, i * 1000003), wave(x), first, second, max(number * 3, 0), total(values, i)])
    return np.array(rows, np.float64)
