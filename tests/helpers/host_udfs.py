"""
Define functions of all families of types for the host; `source` returns them as a file for a front end.

The results depend on all arguments. `LIMITS` has the ranges of arguments that are indices or counts.
"""

from __future__ import annotations

import re

LIMITS = {
    ("bump", "i"): (0, 16),
    ("deep", "n"): (0, 12),
    ("element", "i"): (0, 4),
    ("element", "j"): (0, 4),
    ("fibonacci", "n"): (0, 60),
    ("largest", "i"): (0, 16),
    ("lookup", "i"): (0, 100),
    ("positive", "n"): (0, 1 << 30),
    ("scale", "count"): (0, 17),
}

_HEADS = {
    "numba-cuda": "from numba import cuda, types\n",
    "numba-cuda-mlir": ("from numba_cuda_mlir import cuda\nfrom numba_cuda_mlir.numba_cuda import types\n"),
}

_FUNCTIONS = """\
import math
from typing import NamedTuple

import numpy as np

from numba_ptxlink import udf

particle = np.dtype([("mass", "f4"), ("id", "i8")], align=True)
mixed = np.dtype([("x", "f8"), ("n", "i4"), ("k", "i2"), ("b", "i1")], align=True)
RATE = np.float32(-0.1)
TABLE = np.array([1.5, 2.5, 3.5, 4.5], np.float32)


class Point(NamedTuple):
    x: types.float32
    y: types.float32


class Triple(NamedTuple):
    x: types.float64
    n: types.int16
    flag: types.int8


class Large(NamedTuple):
    a: types.float64
    b: types.float64
    c: types.float64
    d: types.float64
    e: types.float64


@udf("boolean(int32, boolean)")
def both(n, flag):
    return flag and n > 3


@udf("int8(int8, int8)")
def small(a, b):
    return a + b


@udf("uint8(uint8, int8)")
def byte(a, b):
    return a * 3 - b


@udf("uint16(uint16, int16)")
def short_sum(a, b):
    return a * 3 + b


@udf("int16(int16, int16, uint16)")
def short_product(a, b, c):
    return a * b + c


@udf("int32(int8, int16, boolean, uint8, uint16, int8, boolean, int16, int32)")
def many(a, b, c, d, e, f, g, h, i):
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i


@udf("int32(int32, int32)")
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


@udf("int64(int64, uint64)")
def shifted(a, b):
    return (a << 3) ^ int(b >> 2)


@udf("int64(int64, int64)")
def quotient(a, b):
    return a // (b | 1) + a % (b | 1)


@udf("uint32(uint32)")
def counted(n):
    return cuda.popc(n) + cuda.clz(n) * 100 + cuda.brev(n)


@udf("float16(float16, float16)")
def half_sum(a, b):
    return a * b + a


@udf("float32(float32, float32)")
def damp(value, time):
    return value * math.exp(RATE * time)


@udf("float32(float32, float32, boolean)")
def either(x, y, flag):
    return x * y if flag else x


@udf("float64(float64, float64, float64)")
def polynomial(x, a, b):
    return a * x * x + b * x + 1.0


@udf("float64(float64, float64)")
def functions(x, y):
    return math.sin(x) * math.log(y) + math.pow(y, x) + math.erf(x) + math.atan2(x, y)


@udf("float32(float32, float32)")
def float_functions(x, y):
    return math.sin(x) * math.log(y) + math.cos(x) / math.sqrt(y) + math.tanh(x)


@udf("int32(float64, float32)")
def rounded(a, b):
    return int(math.floor(a)) + int(b)


@udf("complex64(complex64, complex64)")
def product(a, b):
    return a * b


@udf("complex128(complex128, complex128)")
def product_sum(a, b):
    return a * b + a


@udf((Point, Point, types.float32))
def along(p, q, t):
    return Point(p.x + (q.x - p.x) * t, p.y + (q.y - p.y) * t)


@udf((Triple, types.int8))
def triple(t, n):
    return Triple(t.x * n, types.int16(t.n + n), types.int8(t.flag - n))


@udf((Large, types.float64))
def large(p, s):
    return Large(p.a * s, p.b + s, p.c - s, p.d / s, p.e * p.a)


@udf("Tuple((int64, float32))(int64, float32)")
def pair(a, b):
    return a + 1, b * np.float32(2)


@udf("float64(mixed, int32, mixed)")
def records(p, i, q):
    return p.x + p.n * 2 + p.k * 3 + p.b * 4 + i + q.x * 5 + q.n * 6 + q.k * 7 + q.b * 8


@udf("float64(int64, int64, int64, int64, int64, mixed, int64, float64)")
def in_registers_and_memory(a, b, c, d, e, m, f, g):
    return a + 2 * b + 3 * c + 4 * d + 5 * e + m.x + m.n + m.k + m.b + 6 * f + g


@udf("float32(particle, CPointer(Point))")
def weigh(one, points):
    return one.mass * points[0].x + one.id


@udf("void(CPointer(float32), int32)")
def scale(values, count):
    for i in range(count):
        values[i] = values[i] * np.float32(2)


@udf("float32(float32[::1])")
def total(x):
    s = np.float32(0)
    for i in range(x.size):
        s += x[i]
    return s


@udf("float64(float64[:, :], int64, int64)")
def element(x, i, j):
    return x[i, j]


@udf("Optional(int32)(int32)")
def maybe(n):
    if n > 10:
        return n * 2
    return None


@udf("float32(int32)")
def lookup(i):
    return TABLE[i & 3]


@udf("int64(int32)")
def fibonacci(n):
    numbers = cuda.local.array(64, types.int64)
    numbers[0] = 0
    numbers[1] = 1
    for i in range(2, n + 1):
        numbers[i] = numbers[i - 1] + numbers[i - 2]
    return numbers[n]


@udf("int64(int64)", on_error="trap")
def positive(n):
    if n < 0:
        raise ValueError("negative")
    return n // 3 + n % 7


@udf("int64(int64)", on_error="zero")
def checked(n):
    if n < 0:
        raise ValueError("negative")
    return n + 1


@udf("int32(int32[::1], int32, int32)")
def bump(counters, i, n):
    return cuda.atomic.add(counters, i, n) + cuda.atomic.max(counters, 0, n)


@udf("float32(float32[::1], int32, float32)")
def largest(values, i, x):
    return cuda.atomic.max(values, i, x) + cuda.atomic.add(values, 0, x)


@cuda.jit(device=True)
def factorial(n):
    if n < 2:
        return 1
    return n * factorial(n - 1)


@udf("int64(int64)")
def deep(n):
    return factorial(n)


@udf("float32(float32)", namespace="physics")
def drag(v):
    return v * v * np.float32(0.5)


@udf("float64(float64)", namespace="physics")
def drag(v):
    return v * v * 0.5
"""

_VECTORS = """

@udf((cuda.float32x4, cuda.float32x2))
def dot(a, b):
    return a.x * b.x + a.y * b.y + a.z + a.w


@udf((cuda.float64x2, types.float64))
def stretched(a, s):
    return cuda.float64x2(a.x * s, a.y * s)


@udf((cuda.int32x3, cuda.int8x2))
def moved(a, b):
    return cuda.int32x3(a.x * b.x, a.y * b.y, a.z + b.x)
"""


# numba-cuda-mlir makes no values of a NamedTuple's class, and reads none through a pointer.
_WITHOUT_CLASSES = {
    **{f"return {name}(": "return (" for name in ("Point", "Triple", "Large")},
    "CPointer(Point)": "CPointer(float32)",
    "points[0].x": "points[0]",
}


def source(front_end: str, *names: str) -> str:
    """
    Return functions as a Python file; the vectors are types of numba-cuda.

    Args:
        front_end: The front end that compiles it.
        names: The functions; all by default.
    """
    text = _FUNCTIONS + _VECTORS if front_end == "numba-cuda" else _FUNCTIONS
    if front_end != "numba-cuda":
        for old, new in _WITHOUT_CLASSES.items():
            text = text.replace(old, new)
    parts = text.split("\n\n\n")
    if names:
        is_chosen = re.compile(rf"def (?:{'|'.join(names)})\(").search
        parts = [part for part in parts if not part.startswith("@udf") or is_chosen(part)]
    return _HEADS[front_end] + "\n\n\n".join(parts)
