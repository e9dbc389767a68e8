"""Expressions and kernels that a compiler compiles to the same code with the plugin and without it."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

_ARITHMETIC = ("+", "-", "*", "/", "//", "%", "**")
_BITS = ("&", "|", "^", "<<", ">>")
_PAIRS = (
    "int32, int32",
    "int32, uint32",
    "uint64, int64",
    "int8, uint8",
    "int64, float32",
    "float32, float32",
    "float32, float64",
)
_INTEGERS = ("int32, int32", "uint8, uint8", "uint64, int32", "int16, int64")
_NUMBERS = ("int8", "uint8", "int32", "uint32", "uint64", "float32", "float64")
_FLOATS = ("float32", "float64")
_FUNCTIONS = ("sqrt", "exp", "sin", "log", "floor", "tanh", "fabs", "isnan")
_OTHERS = (
    ("b if a != a else a + b", "float32, float32"),
    ("b if a != a else a + b", "float64, float32"),
    ("a if a > b else b", "int32, float32"),
    ("0.1 if a > 0 else 1", "float32"),
    ("min(a, b)", "float32, float64"),
    ("max(a, b)", "int32, uint32"),
    ("max(a, b, 3)", "int64, int32"),
    ("a < b", "int32, uint32"),
    ("a <= b", "uint64, int64"),
    ("a == b", "float32, float64"),
    ("a != b", "int8, uint8"),
    ("a >= b", "float32, int64"),
    ("0 < a < b", "int32, int32"),
    ("a and b", "int32, int32"),
    ("a or b", "boolean, boolean"),
    ("int(a)", "float32"),
    ("int(a)", "float64"),
    ("float(a)", "int32"),
    ("bool(a)", "float32"),
    ("bool(a)", "int64"),
    ("round(a)", "float64"),
    ("round(a)", "float32"),
    ("abs(a)", "complex64"),
    ("a * b + a", "complex64, complex64"),
    ("a.real - a.imag", "complex128"),
    ("a + b", "complex64, float64"),
    ("complex(a, b)", "float32, float32"),
    ("(a, b)[0] + (a, b)[1]", "int32, float32"),
    ("a[0] * a[1]", "UniTuple(float32, 2)"),
    ("len(a) + a.shape[0] + a.ndim", "float32[::1]"),
    ("a[b]", "float32[::1], int32"),
    ("a[-1]", "float32[::1]"),
    ("a[b % 3, -b]", "float64[:, ::1], int64"),
    ("math.pow(a, b)", "float32, float32"),
    ("math.atan2(a, b)", "float64, float32"),
    ("math.fmod(a, b)", "float32, float32"),
    ("math.copysign(a, b)", "float64, float64"),
    ("math.ldexp(a, b)", "float64, int32"),
    ("math.gamma(a)", "float32"),
    ("math.erf(a) + math.pi", "float64"),
    ("np.float32(a) + np.int8(b)", "float64, int32"),
    ("np.uint8(a) + np.uint8(b)", "int32, int32"),
    ("-np.uint8(a)", "int32"),
    ("a ** 2", "float32"),
    ("a ** 3", "int32"),
    ("a ** -1", "int32"),
    ("a ** 0.5", "float32"),
    ("a % 10", "uint64"),
    ("a // 2", "int8"),
    ("a >> 1", "uint32"),
    ("1 << a", "uint8"),
    ("a * 0.5", "float32"),
    ("a + 1", "uint8"),
    ("a + 1", "boolean"),
)


def _expressions() -> list[tuple[str, str]]:
    found = [(f"a {op} b", pair) for op in _ARITHMETIC for pair in _PAIRS]
    found += [(f"a {op} b", pair) for op in _BITS for pair in _INTEGERS]
    found += [(f"{op}a", number) for op in ("-", "+", "not ") for number in _NUMBERS]
    found += [(f"~{name}", number) for name in "a" for number in ("int32", "uint8", "uint64")]
    found += [(f"math.{name}(a)", number) for name in _FUNCTIONS for number in ("int32", *_FLOATS)]
    return [*found, *_OTHERS]


EXPRESSIONS = _expressions()
"""Expressions of `a` and `b`, each with their types."""

RECORD = np.dtype([("key", np.int8), ("value", np.float32), ("place", np.int64, (3,))], align=True)
PACKED = np.dtype([("key", np.int8), ("rest", np.int16), ("value", np.float64)])
_TABLE = np.array([3.0, 1.0, 4.0, 1.0, 5.0], np.float32)


def kernels(cuda: Any, record: Any, packed: Any) -> dict[str, tuple[Any, Any]]:
    """
    Return kernels by name, each with its signature.

    Args:
        cuda: The compiler's module.
        record: Its type of `RECORD`.
        packed: Its type of `PACKED`.
    """
    found: dict[str, tuple[Any, Any]] = {}

    def kernel(signature: Any) -> Any:
        return lambda function: found.setdefault(function.__name__, (function, signature))

    _arithmetic(cuda, kernel)
    _control(cuda, kernel)
    _memory(cuda, kernel)
    _threads(cuda, kernel)
    _helpers(cuda, kernel)
    _records(cuda, kernel, record, packed)
    return found


def _arithmetic(cuda: Any, kernel: Any) -> None:
    @kernel("void(float32, float32[::1], float32[::1])")
    def saxpy(a, x, y):
        i = cuda.grid(1)
        if i < x.size:
            y[i] = a * x[i] + y[i]

    @kernel("void(float64[::1], float64[::1])")
    def transcendental(x, y):
        i = cuda.grid(1)
        y[i] = math.sin(x[i]) * math.exp(-(x[i] ** 2)) + math.log1p(abs(x[i]))

    @kernel("void(complex64[::1], complex64[::1])")
    def multiply_complex(x, y):
        i = cuda.grid(1)
        y[i] = x[i] * y[i].conjugate() / abs(x[i])

    @kernel("void(uint8[::1], uint8[::1], uint8[::1])")
    def wrap_around(x, y, z):
        i = cuda.grid(1)
        z[i] = x[i] * y[i] - (x[i] << 3)

    @kernel("void(int32[::1], int32[::1])")
    def divide(x, y):
        i = cuda.grid(1)
        y[i] = x[i] // y[i] + x[i] % y[i] + x[i] // 7

    @kernel("void(float32[::1])")
    def intrinsics(x):
        i = cuda.grid(1)
        x[i] = cuda.fma(x[i], x[i], 1.0) + cuda.cbrt(x[i])

    @kernel("void(uint32[::1])")
    def count_bits(x):
        i = cuda.grid(1)
        x[i] = cuda.popc(x[i]) + cuda.clz(x[i]) + cuda.brev(x[i]) + cuda.ffs(x[i])

    @kernel("void(int64[::1], float32[::1])")
    def mixed_signs(x, y):
        i = cuda.grid(1)
        k = np.uint32(i)
        y[i] = x[k] - k + (k > x[i]) * 0.5

    @kernel("void(boolean[::1], boolean[::1], int32[::1])")
    def booleans(a, b, out):
        i = cuda.grid(1)
        out[i] = (a[i] and not b[i]) + (a[i] ^ b[i])


def _control(cuda: Any, kernel: Any) -> None:
    @kernel("void(int32[::1])")
    def collatz(x):
        i = cuda.grid(1)
        steps, n = 0, x[i]
        while n != 1:
            if n % 2 == 0:
                n //= 2
            else:
                n = 3 * n + 1
            steps += 1
            if steps > 1000:
                break
        x[i] = steps

    @kernel("void(float32[:, ::1], float32[::1])")
    def row_sums(x, out):
        i = cuda.grid(1)
        total = 0.0
        for j in range(x.shape[1] - 1, -1, -2):
            if x[i, j] < 0:
                continue
            total += x[i, j]
        out[i] = total

    @kernel("void(float32[::1], float32[::1])")
    def zipped(x, out):
        total = 0.0
        for k, (a, b) in enumerate(zip(x, out)):  # noqa: B905 - the compilers know no `strict`
            total += a * b * k
        out[0] = total

    @kernel("void(float32[::1])")
    def unpacked(x):
        a, b = x[0], x[1]
        a, b = b, a
        x[0], x[1] = a, b

    @kernel("void(float32[::1])")
    def unrolled(x):
        total = 0.0
        for step in (1, 2, 5):
            total += x[step]
        x[0] = total

    @kernel("void(int32[::1], int32)")
    def raising(x, limit):
        i = cuda.grid(1)
        if i >= limit:
            raise ValueError("out of range")
        x[i] = i

    @kernel("void(int32[::1])")
    def asserting(x):
        assert x[0] > 0
        x[1] = x[0]

    @kernel("void(float32[::1], int32)")
    def optional(x, n):
        value = None
        if n > 3:
            value = x[n]
        if value is not None:
            x[0] = value


def _memory(cuda: Any, kernel: Any) -> None:
    @kernel("void(float32[::1], float32[::1])")
    def block_sum(x, out):
        shared = cuda.shared.array(128, "float32")
        t = cuda.threadIdx.x
        shared[t] = x[cuda.grid(1)]
        cuda.syncthreads()
        half = 64
        while half:
            if t < half:
                shared[t] += shared[t + half]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            out[cuda.blockIdx.x] = shared[0]

    @kernel("void(float32[::1])")
    def dynamic_shared(x):
        shared = cuda.shared.array(0, "float32")
        t = cuda.threadIdx.x
        shared[t] = x[t]
        cuda.syncthreads()
        x[t] = shared[cuda.blockDim.x - 1 - t]

    @kernel("void(int32[::1], int32)")
    def local_array(x, n):
        local = cuda.local.array(16, "int32")
        for k in range(16):
            local[k] = x[k] * k
        x[0] = local[n % 16]

    @kernel("void(float32[::1])")
    def constant_array(x):
        table = cuda.const.array_like(_TABLE)
        i = cuda.grid(1)
        x[i] = table[i % 5]

    @kernel("void(float32[::1])")
    def global_array(x):
        i = cuda.grid(1)
        x[i] = _TABLE[i % 5] + _TABLE[0]

    @kernel("void(float64[:, :], float64[:, :], float64[:, :])")
    def matmul(a, b, c):
        i, j = cuda.grid(2)
        if i < c.shape[0] and j < c.shape[1]:
            total = 0.0
            for k in range(a.shape[1]):
                total += a[i, k] * b[k, j]
            c[i, j] = total

    @kernel("void(float32[::1], float32[::1])")
    def sliced(x, y):
        part = x[2:-1]
        y[0] = part[0] + part[-1] + part.size

    @kernel("void(float32[:, ::1])")
    def views(x):
        row = x[cuda.threadIdx.x]
        column = x[:, 1]
        row[0] = column[2]

    @kernel("void(float32[::1], int64)")
    def from_the_end(x, n):
        x[-n] = x[n - 1]


def _threads(cuda: Any, kernel: Any) -> None:
    @kernel("void(int32[::1], int32[::1])")
    def histogram(x, bins):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            cuda.atomic.add(bins, x[i] % bins.size, 1)

    @kernel("void(float32[::1], float64[::1])")
    def atomics(x, out):
        i = cuda.grid(1)
        cuda.atomic.max(out, 0, x[i])
        cuda.atomic.min(out, 1, x[i])
        cuda.atomic.max(out, 2, 0.1 if x[i] > 0 else 1)

    @kernel("void(int32[::1])")
    def exchanged(x):
        x[1] = cuda.atomic.cas(x, 0, 1, 2) + cuda.atomic.exch(x, 2, 5)

    @kernel("void(int32[::1])")
    def shuffled(x):
        i = cuda.grid(1)
        value = x[i]
        for step in (16, 8, 4, 2, 1):
            value += cuda.shfl_down_sync(0xFFFFFFFF, value, step)
        x[i] = value

    @kernel("void(int32[::1])")
    def votes(x):
        i = cuda.grid(1)
        x[i] = cuda.ballot_sync(0xFFFFFFFF, x[i] > 0) + cuda.laneid + cuda.activemask()
        cuda.syncwarp(0xFFFFFFFF)

    @kernel("void(float32[:, :, ::1])")
    def three_axes(x):
        i, j, k = cuda.grid(3)
        if i < x.shape[0] and j < x.shape[1] and k < x.shape[2]:
            x[i, j, k] *= cuda.gridDim.z

    @kernel("void(int32[::1])")
    def fences(x):
        x[0] = 1
        cuda.threadfence()
        x[1] = cuda.syncthreads_count(x[0])
        cuda.nanosleep(32)


def _helpers(cuda: Any, kernel: Any) -> None:
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
    def fill(array, value):
        for i in range(array.size):
            array[i] = value

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

    @kernel("void(float64[::1])")
    def passes_arrays(x):
        local = cuda.local.array(4, "float64")
        fill(local, 2)
        fill(x, local[1])

    @kernel("void(float32[::1])")
    def closures(x):
        scale = 3

        def scaled(value):
            return value * scale

        i = cuda.grid(1)
        x[i] = scaled(x[i]) + operator.add(x[i], 1)

    @kernel("void(float32[::1], UniTuple(int32, 3))")
    def tuples(x, shape):
        total = 1
        for extent in shape:
            total *= extent
        x[0] = total

    @kernel("void(int64[::1])")
    def recursive(x):
        x[0] = count_down(x[1])


def _records(cuda: Any, kernel: Any, record: Any, packed: Any) -> None:
    @kernel((record[::1],))
    def record_fields(records):
        i = cuda.grid(1)
        records[i].value = records[i].key * 0.5
        records[i].place[1] = i

    @kernel((packed[::1], packed[::1]))
    def packed_fields(source, target):
        i = cuda.grid(1)
        target[i] = source[i]
        target[i].rest += source[i]["key"]

    @kernel((record,))
    def record_argument(one):
        one.value = one.place[2]
