"""Exported functions and kernels, executed: they have the results of Python and NumPy, by both front ends."""

from __future__ import annotations

import math
import re
import zlib

import front_ends
import numpy as np
import pytest
import shared_helpers
from emulator import Machine

import numba_ptxlink as pl

ARCH = "sm_90"
LANES = 33


def exported(udfs, front_end):
    """Return a machine with functions or kernels."""
    return Machine(pl.export(udfs, arch=[ARCH], emit=["ptx"], front_end=front_end).read("ptx").decode())


@pytest.fixture(scope="module", params=front_ends.NAMES)
def front_end(request):
    """Return the name of a front end that is installed."""
    front_ends.get(request.param)
    return request.param


# Results of functions


# Signatures with T for each of the types, and an expression.
COMPUTED = [
    [part.strip() for part in line.split("|", 2)]
    for line in """
T(T, T, T)                | integers                      | a + b * c
T(T, T, T)                | integers                      | (a - b) ^ (c & 77) | (b << 3)
T(T, T, T)                | integers                      | a // c if c != 0 else b
T(T, T, T)                | integers                      | a % c if c != 0 else b
T(T, T, T)                | integers                      | (a >> (b & 7)) + ~c
T(T, T, T)                | integers                      | min(a, b) + max(b, c)
T(T, T, T)                | int8 int16 int32 int64        | abs(a) if a < b else -c
float64(T, T, T)          | int32 uint32                  | a / b if b != 0 else c * 0.5
boolean(T, T, T)          | integers reals                | a < b <= c or a == c
T(T, T, T)                | reals                         | a + b - c
T(T, T, T)                | reals                         | a * b
T(T, T, T)                | reals                         | a / b if b != 0 else c
T(T, T, T)                | reals                         | math.sqrt(abs(a))
T(T, T, T)                | reals                         | math.floor(a) + math.ceil(b) + 0.5
T(T, T, T)                | reals                         | math.copysign(a, b)
T(T, T, T)                | float64    | math.fabs(a) if math.isnan(b) else math.trunc(c) + 0.5
int64(T, T, T)            | reals                         | int(a) + int(b)
float32(T, T, T)          | float64 int32                 | a + b
T(T, T, T)                | complex64 complex128          | (a + b).conjugate() - c
T(T, T, T)                | float16                       | a + b
T(T, T, T)                | float16                       | a * b
boolean(T, T, T)          | boolean                       | (a and b) or not c
UniTuple(T, 3)(T, T, T)   | int8 int64 float32 float64    | (c, a, b)
""".strip()
    .replace("integers", "int8 uint8 int16 uint16 int32 uint32 int64")
    .replace("reals", "float32 float64")
    .splitlines()
]
ROWS = [(number, kind) for number, (_, kinds, _) in enumerate(COMPUTED) for kind in kinds.split()]


@pytest.fixture(scope="module")
def computed(front_end):
    """Return a machine with all expressions for all types."""
    types = front_ends.get(front_end).types
    udfs = []
    for number, kind in ROWS:
        signature, _, expression = COMPUTED[number]
        scope = {**vars(types), "T": getattr(types, kind), "math": math}
        typed = eval(signature, scope)  # noqa: S307 - of the table
        function = eval(f"lambda a, b, c: {expression}", {"math": math})  # noqa: S307 - likewise
        udfs.append(pl.udf(typed, name=f"f{number}_{kind}", front_end=front_end)(function))
    return exported(udfs, front_end)


def drawn(kind: str) -> np.ndarray:
    """Return values of a type, with extremes among them."""
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    if kind == "boolean":
        return rng.integers(0, 2, LANES).astype(bool)
    if "int" in kind:
        limits = np.iinfo(kind)
        values = rng.integers(limits.min, limits.max, LANES, dtype=kind, endpoint=True)
        small = rng.integers(max(-9, limits.min), 9, LANES).astype(kind)
        values = np.where(rng.random(LANES) < 0.5, values, small)
        values[:2] = limits.min, limits.max
        return values
    values = rng.normal(0, 1, LANES) * 10.0 ** rng.integers(-3, 4, LANES)
    values[:4] = 0.0, -0.0, 1.5, -2.5
    if "complex" in kind:
        return (values + 1j * rng.permutation(values)).astype(kind)
    return values.astype(kind)


def widened(values: np.ndarray) -> np.ndarray:
    """Return values as C passes them."""
    return values.astype(np.int32) if values.dtype.kind in "iub" and values.itemsize < 4 else values


@pytest.mark.parametrize(("number", "kind"), ROWS)
def test_an_expression_is_pythons(computed, front_end, number, kind):
    """Integers wrap around; numbers of IEEE 754 are rounded as NumPy rounds them, bit for bit."""
    signature, _, expression = COMPUTED[number]
    if front_end == "numba-cuda-mlir" and "min(" in expression and kind.startswith("u"):
        pytest.skip("numba-cuda-mlir compares unsigned numbers as signed ones in min and max")
    rng = np.random.default_rng(number)
    operands = [rng.permutation(drawn(kind)) for _ in range(3)]
    ((values, known),) = computed.call(f"f{number}_{kind}", *map(widened, operands))
    names = re.match(r"(?:UniTuple\((T), 3\)|(\w+))\(", signature)
    result = np.dtype((names[1] or names[2]).replace("T", kind).replace("boolean", "bool"))
    count = 3 if names[1] else 1
    assert (known[:, : count * result.itemsize] == 255).all()
    results = np.ascontiguousarray(values[:, : count * result.itemsize]).view(result)
    function = eval(f"lambda a, b, c: {expression}", {"math": Reals})  # noqa: S307 - of the table
    for lane in range(LANES):
        row = [values[lane] for values in operands]
        # Python's integers and floats, and NumPy's where Python has none.
        exact = kind == "float64" or "int" in kind or kind == "boolean"
        with np.errstate(all="ignore"):
            answer = function(*(value.item() if exact else value for value in row))
        expected = np.array(wrapped(answer, result))
        assert expected.tobytes() == results[lane].tobytes(), (row, expected, results[lane])


class Reals:
    """Functions of `math` for NumPy's numbers, whose results are numbers of the same type."""

    sqrt, floor, ceil, copysign = np.sqrt, np.floor, np.ceil, np.copysign
    fabs, isnan, trunc = np.fabs, np.isnan, np.trunc


def wrapped(answer, result):
    """Return a number of Python as one of a type."""
    if isinstance(answer, tuple):
        return [wrapped(member, result) for member in answer]
    if result.kind in "iu" and isinstance(answer, int):
        return np.array(answer % (1 << 8 * result.itemsize), f"u{result.itemsize}").view(result)
    return np.array(answer).astype(result)


# Kernels


@pytest.fixture(scope="module")
def kernels(front_end):
    """Return a machine with a kernel that exchanges values, and one that reduces them."""
    cuda, types = front_ends.cuda(front_end), front_ends.get(front_end).types

    def turned(out, values):
        tile = cuda.shared.array(1024, dtype=types.float32)
        i, n = cuda.threadIdx.x, cuda.blockDim.x
        tile[i] = values[cuda.grid(1)]
        cuda.syncthreads()
        if cuda.grid(1) < out.size:
            out[cuda.grid(1)] = tile[n - 1 - i] * 2

    def summed(out, values):
        i = cuda.grid(1)
        local = cuda.local.array(3, dtype=types.int64)
        for k in range(3):
            local[k] = types.int64(values[i]) + k
        if i % 3 != 1:
            cuda.atomic.add(out, local[i % 3] % out.size, 1)

    marked = pl.kernel("void(float32[::1], float32[::1])", front_end=front_end)(turned)
    other = pl.kernel("void(int32[::1], float32[::1])", front_end=front_end)(summed)
    return exported([marked, other], front_end)


def view(address: int, array: np.ndarray) -> bytes:
    """Return the bytes that C++ passes for a contiguous array."""
    return np.array([address, array.size, array.itemsize], np.int64).tobytes()


@pytest.mark.parametrize("lanes", [1, 31, 32, 100, 1024])
def test_kernels_of_any_size(kernels, lanes):
    """Lanes exchange values in shared memory, add to one word, and have local memory."""
    machine = kernels
    values = np.random.default_rng(lanes).integers(0, 99, 2 * lanes).astype(np.float32)
    out, counts = np.zeros(2 * lanes - 1, np.float32), np.zeros(7, np.int32)
    addresses = [machine.array(array) for array in (values, out, counts)]
    arguments = [view(*pair) for pair in zip(addresses, (values, out, counts), strict=True)]
    machine.launch("turned", 2, lanes, [arguments[1], arguments[0]])
    machine.launch("summed", 2, lanes, [arguments[2], arguments[0]])
    expected = np.concatenate([2 * values[:lanes][::-1], 2 * values[lanes:][::-1]])[:-1]
    assert expected.tolist() == machine.read(addresses[1], out.size, np.float32).tolist()
    chosen = [int(value + i % 3) % 7 for i, value in enumerate(values) if i % 3 != 1]
    assert np.bincount(chosen, minlength=7).tolist() == machine.read(addresses[2], 7, np.int32).tolist()


# Arrays of records

INNER = np.dtype([("p", "i4"), ("q", "f4")], align=True)
RECORD = np.dtype([("x", "f4"), ("n", "i4"), ("z", "f8"), ("s", INNER)], align=True)
# Expressions that read, or read after a write, by the index i; and whether only numba-cuda supports it.
ACCESSES = [
    [part.strip() for part in line.split("|")]
    for line in """
1 | a[i].n + a[i].x       |
1 | a.n[i] + a.z[i]       |
1 | a[1:][i].n            |
1 | a[1:].n[i]            |
1 | a.n[1:][i]            |
1 | a.n[1::2][i]          |
1 | a[i].s.p              |
1 | a[1::2][i].n          | alone
1 | a[1::2].n[i]          | alone
1 | a.s[i].p              | alone
1 | a.s.p[i]              | alone
1 | a[-1].n + i           | alone
2 | a.n[i, 1]             |
2 | a.n[1][i]             |
2 | a.n[:, 1][i]          |
2 | a[1:].n[i, 1]         |
2 | a[i, 1].n             | alone
2 | a[i][1].s.p           | alone
2 | a[:, 1][i].n          | alone
2 | a[:, 1].n[i]          | alone
1 | a[i].n = 77           |
1 | a.n[i] = 77           |
1 | a[1:].n[i] = 77       |
1 | a.n[1::2][i] = 77     |
1 | a[i + 1] = a[i]       |
1 | a[1:][i] = a[0]       |
1 | a[i].s.p = 77         |
1 | a[1::2][i].n = 77     | alone
1 | a[i + 1].s = a[i].s   | alone
1 | a[1::2][i] = a[0]     | alone
2 | a.n[i, 1] = 77        |
2 | a[i, 1].n = 77        | alone
2 | a[:, 1].n[i] = 77     | alone
""".strip().splitlines()
]


def access(number, front_end):
    """Return the marked function of a row of the table."""
    ndim, text, _ = ACCESSES[number]
    scope = {}
    exec(f"def f(a, i):\n    {text if ' = ' in text else f'return {text}'}", scope)  # noqa: S102 - of the table
    types, ty = front_ends.get(front_end).types, front_ends.get(front_end).from_dtype(RECORD)
    result = types.void if " = " in text else types.float64
    array = ty[::1] if ndim == "1" else ty[:, ::1]
    return pl.udf(result(array, types.int32), name=f"f{number}", front_end=front_end)(scope["f"])


@pytest.fixture(scope="module")
def accesses(front_end):
    """Return a machine with the accesses that a front end has."""
    alone = front_end != "numba-cuda"
    return exported(
        [access(number, front_end) for number, row in enumerate(ACCESSES) if not (alone and row[2])],
        front_end,
    )


@pytest.mark.parametrize("number", range(len(ACCESSES)), ids=[text for _, text, _ in ACCESSES])
def test_arrays_of_records_are_read_and_written_as_numpys(accesses, front_end, number):
    """The value, and all bytes of the array, are those of NumPy; or the access is refused with a cure."""
    (ndim, _, alone), marked = ACCESSES[number], access(number, front_end)
    if alone and front_end == "numba-cuda-mlir":
        with pytest.raises(
            pl.ExportError, match=r"; write a\.x\[i, j\] for a\[i, j\]\.x|; assign the fields one by one"
        ):
            exported([marked], front_end)
        return
    values = np.random.default_rng(3).integers(0, 99, (12, 5))
    records = np.array([(*row[:3], tuple(row[3:])) for row in values.tolist()], RECORD)
    records = (records if ndim == "1" else records.reshape(4, 3)).view(np.recarray)
    for index in range(3):
        address = accesses.array(records.view(np.uint8).reshape(-1))
        passed = np.array([address, *records.shape, *records.strides], np.int64).view(np.uint8)
        results = accesses.call(f"f{number}", passed.reshape(1, -1), np.array([index], np.int32))
        expected = records.copy()
        answer = marked.function(expected, index)
        if answer is not None:
            assert float(answer) == results[0][0][0, :8].view(np.float64)[0]
        assert expected.tobytes() == accesses.read(address, expected.nbytes, np.uint8).tobytes()


# Exports that share helpers

CALLER = """
extern "C" __device__ float first(float);
extern "C" __device__ float second(float);
extern "C" __global__ void caller(float* out, const float* in) {
    float x = in[threadIdx.x];
    out[threadIdx.x] = first(x) + 1000.0f * second(first(x));
}
"""


@pytest.mark.parametrize(
    ("helper", "expected"),
    [
        (shared_helpers.reversed_in_block, lambda x: x[::-1] + 1),
        (shared_helpers.looked_up, lambda x: x + 1),
    ],
)
def test_exports_with_the_same_helper(helper, expected):
    """Two functions each exchange values by their own shared array, or read equal tables."""

    def calls(x):
        return helper(x) + 1

    texts = [
        pl.export([pl.udf("float32(float32)", name=name)(calls)], arch=[ARCH], emit=["ptx"]).read("ptx")
        for name in ("first", "second")
    ]
    linked = pl.link(CALLER, *texts, arch=ARCH, lto=False)
    machine, x = Machine(linked.ptx), np.arange(62, dtype=np.float32)
    x = np.concatenate([x, x[:2]])
    out, source = machine.array(np.zeros(64, np.float32)), machine.array(x)
    machine.launch("caller", 1, 64, [out, source])
    once = expected(x)
    assert (once + 1000 * expected(once)).tolist() == machine.read(out, 64, np.float32).tolist()
