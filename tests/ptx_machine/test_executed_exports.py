"""Exported functions and kernels, executed: they return what Python and NumPy do, by either front end."""

from __future__ import annotations

import math
import re
import zlib
from typing import NamedTuple

import abi_rows
import front_ends
import numpy as np
import pytest
from emulator import Machine

import numba_ptxlink as pl

ARCH = "sm_90"
LANES = 33
# Structs that nvcc passes wrongly in PTX, which an export of PTX refuses.
PACKED = ("packed", "packed_half", "record_of_records", "large")
ECHOED = [name for name in abi_rows.ROWS if name not in PACKED]
# Where the flag of an optional value is.
FLAGS = {"optional": 4, "optional_tuple": 16}
SIZES = {"boolean": 1, "voidptr": 8, "intenum": 8}


def exported(tmp_path_factory, udfs, front_end):
    """Return the PTX of functions."""
    folder = tmp_path_factory.mktemp("export")
    made = pl.export(udfs, folder, archs=[ARCH], emit=["ptx"], name="udfs", front_end=front_end)
    return made.artifacts["ptx", ARCH].read_text()


@pytest.fixture(scope="module", params=front_ends.NAMES)
def front_end(request):
    """Return the name of a front end that is installed."""
    front_ends.get(request.param)
    return request.param


# Values of each type, there and back


@pytest.fixture(scope="module")
def echoes(tmp_path_factory, front_end):
    """Return a machine with a function for each type, which returns its argument."""
    udfs = [
        echo.udf(f"echo_{name}", front_end)
        for name, echo in ((name, abi_rows.Echo((abi_rows.ROWS[name],))) for name in ECHOED)
        if echo.compiles(front_end)
    ]
    return exported(tmp_path_factory, udfs, front_end)


def size(spec) -> int:
    """Return how many bytes of a type hold something."""
    if isinstance(spec, str):
        if spec in SIZES:
            return SIZES[spec]
        bits, count = re.search(r"(\d+)(?:x(\d))?$", spec).groups()
        return int(bits) // 8 * int(count or 1)
    kind, *parts = spec
    if kind in ("tuple", "named", "record"):
        return sum(size(part if kind == "tuple" else part[1]) for part in parts[-1])
    if kind == "nested":
        return size(parts[0]) * math.prod(parts[1])
    return {
        "pointer": lambda: 8,
        "vector": lambda: size(parts[0]),
        "array": lambda: 8 + 16 * parts[1],
        "optional": lambda: size(parts[0]) + 1,
    }[kind]()


def arguments(name: str, width: int) -> np.ndarray:
    """Return values of a type as they are passed: a row of bytes for each lane."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    rows = rng.integers(0, 256, (LANES, width)).astype(np.uint8)
    if name == "boolean":
        return rng.integers(0, 2, LANES).astype(np.int32).view(np.uint8).reshape(LANES, -1)
    if name.startswith(("int", "uint")) and name[-1] in "68" and width == 4:
        # C widens what is narrower than an int.
        return rows.view(name.partition("x")[0])[:, 0].astype(np.int32).view(np.uint8).reshape(LANES, -1)
    if name in FLAGS:
        # None has no value, and the tuple has a double and a byte.
        rows[:, 9:16] = 0
        rows[:, FLAGS[name]] &= 1
        rows[rows[:, FLAGS[name]] == 0, : FLAGS[name]] = 0
    if name.startswith("array"):
        _, element, ndim, _ = abi_rows.ROWS[name]
        words = rows.view(np.int64)
        words[:, 1 + ndim :] = size(element) * np.arange(1, ndim + 1)
    return rows


@pytest.mark.parametrize("name", ECHOED)
def test_a_value_of_each_type_comes_back(echoes, front_end, name):
    """Every bit that an argument has is in the result, and is defined."""
    if not abi_rows.Echo((abi_rows.ROWS[name],)).compiles(front_end):
        pytest.skip(f"{front_end} does not compile it")
    machine = Machine(echoes)
    function = machine.function(f"echo_{name}")
    given = arguments(name, function.params[0].size)
    ((values, known),) = machine.call(f"echo_{name}", given)
    assert (values & known).tolist() == (given & known).tolist()
    assert (known == 255).sum(axis=1).min() >= size(abi_rows.ROWS[name])


# What functions compute


class Computed(NamedTuple):
    """A signature with T for the type, and an expression."""

    signature: str
    expression: str
    types: str


WHOLE = "int8 uint8 int16 uint16 int32 uint32 int64"
SIGNED = "int8 int16 int32 int64"
REAL = "float32 float64"
COMPUTED = [
    Computed("T(T, T, T)", "a + b * c", WHOLE),
    Computed("T(T, T, T)", "(a - b) ^ (c & 77) | (b << 3)", WHOLE),
    Computed("T(T, T, T)", "a // c if c != 0 else b", WHOLE),
    Computed("T(T, T, T)", "a % c if c != 0 else b", WHOLE),
    Computed("T(T, T, T)", "(a >> (b & 7)) + ~c", WHOLE),
    Computed("T(T, T, T)", "min(a, b) + max(b, c)", WHOLE),
    Computed("T(T, T, T)", "abs(a) if a < b else -c", SIGNED),
    Computed("float64(T, T, T)", "a / b if b != 0 else c * 0.5", "int32 uint32"),
    Computed("boolean(T, T, T)", "a < b <= c or a == c", f"{WHOLE} {REAL}"),
    Computed("T(T, T, T)", "a + b - c", REAL),
    Computed("T(T, T, T)", "a * b", REAL),
    Computed("T(T, T, T)", "a / b if b != 0 else c", REAL),
    Computed("T(T, T, T)", "math.sqrt(abs(a))", REAL),
    Computed("T(T, T, T)", "math.floor(a) + math.ceil(b) + 0.5", REAL),
    Computed("T(T, T, T)", "math.copysign(a, b)", REAL),
    Computed("T(T, T, T)", "math.fabs(a) if math.isnan(b) else math.trunc(c) + 0.5", "float64"),
    Computed("int64(T, T, T)", "int(a) + int(b)", REAL),
    Computed("float32(T, T, T)", "a + b", "float64 int32"),
    Computed("T(T, T, T)", "(a + b).conjugate() - c", "complex64 complex128"),
    Computed("T(T, T, T)", "a + b", "float16"),
    Computed("T(T, T, T)", "a * b", "float16"),
    Computed("boolean(T, T, T)", "(a and b) or not c", "boolean"),
    Computed("UniTuple(T, 3)(T, T, T)", "(c, a, b)", "int8 int64 float32 float64"),
]
ROWS = [(number, kind) for number, each in enumerate(COMPUTED) for kind in each.types.split()]


@pytest.fixture(scope="module")
def computed(tmp_path_factory, front_end):
    """Return the PTX of all expressions for all types."""
    types = front_ends.get(front_end).types
    udfs = []
    for number, kind in ROWS:
        signature, expression, _ = COMPUTED[number]
        scope = {**vars(types), "T": getattr(types, kind), "math": math}
        typed = eval(signature, scope)  # noqa: S307 - of the table
        function = eval(f"lambda a, b, c: {expression}", {"math": math})  # noqa: S307 - likewise
        udfs.append(pl.udf(typed, name=f"f{number}_{kind}", front_end=front_end)(function))
    return exported(tmp_path_factory, udfs, front_end)


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
    signature, expression, _ = COMPUTED[number]
    if front_end == "numba-cuda-mlir" and "min(" in expression and kind.startswith("u"):
        pytest.skip("numba-cuda-mlir compares unsigned numbers as signed ones in min and max")
    rng = np.random.default_rng(number)
    given = [rng.permutation(drawn(kind)) for _ in range(3)]
    machine = Machine(computed)
    ((values, known),) = machine.call(f"f{number}_{kind}", *map(widened, given))
    names = re.match(r"(?:UniTuple\((T), 3\)|(\w+))\(", signature)
    result = np.dtype((names[1] or names[2]).replace("T", kind).replace("boolean", "bool"))
    count = 3 if names[1] else 1
    assert (known[:, : count * result.itemsize] == 255).all()
    results = np.ascontiguousarray(values[:, : count * result.itemsize]).view(result)
    function = eval(f"lambda a, b, c: {expression}", {"math": Reals})  # noqa: S307 - of the table
    for lane in range(LANES):
        row = [each[lane] for each in given]
        # Python's integers and floats, and NumPy's where Python has none.
        exact = kind == "float64" or "int" in kind or kind == "boolean"
        with np.errstate(all="ignore"):
            answer = function(*(value.item() if exact else value for value in row))
        expected = np.array(wrapped(answer, result))
        assert expected.tobytes() == results[lane].tobytes(), (row, expected, results[lane])


class Reals:
    """What functions of `math` return for NumPy's numbers: numbers of the same type."""

    sqrt, floor, ceil, copysign = np.sqrt, np.floor, np.ceil, np.copysign
    fabs, isnan, trunc = np.fabs, np.isnan, np.trunc


def wrapped(answer, result):
    """Return a number of Python as one of a type."""
    if isinstance(answer, tuple):
        return [wrapped(each, result) for each in answer]
    if result.kind in "iu" and isinstance(answer, int):
        return np.array(answer % (1 << 8 * result.itemsize), f"u{result.itemsize}").view(result)
    return np.array(answer).astype(result)


# Kernels


@pytest.fixture(scope="module")
def kernels(tmp_path_factory, front_end):
    """Return the PTX of a kernel that exchanges values, and of one that reduces them."""
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
        own = cuda.local.array(3, dtype=types.int64)
        for k in range(3):
            own[k] = types.int64(values[i]) + k
        if i % 3 != 1:
            cuda.atomic.add(out, own[i % 3] % out.size, 1)

    marked = pl.kernel("void(float32[::1], float32[::1])", front_end=front_end)(turned)
    other = pl.kernel("void(int32[::1], float32[::1])", front_end=front_end)(summed)
    return exported(tmp_path_factory, [marked, other], front_end)


def view(address: int, array: np.ndarray) -> bytes:
    """Return what C++ passes for a contiguous array."""
    return np.array([address, array.size, array.itemsize], np.int64).tobytes()


@pytest.mark.parametrize("lanes", [1, 31, 32, 100, 1024])
def test_kernels_of_any_size(kernels, lanes):
    """Lanes exchange values in shared memory, add to one word, and have memory of their own."""
    machine = Machine(kernels)
    values = np.random.default_rng(lanes).integers(0, 99, 2 * lanes).astype(np.float32)
    out, counts = np.zeros(2 * lanes - 1, np.float32), np.zeros(7, np.int32)
    places = [machine.array(array) for array in (values, out, counts)]
    arguments = [view(*pair) for pair in zip(places, (values, out, counts), strict=True)]
    machine.launch("turned", 2, lanes, [arguments[1], arguments[0]])
    machine.launch("summed", 2, lanes, [arguments[2], arguments[0]])
    expected = np.concatenate([2 * values[:lanes][::-1], 2 * values[lanes:][::-1]])[:-1]
    assert expected.tolist() == machine.read(places[1], out.size, np.float32).tolist()
    chosen = [int(value + i % 3) % 7 for i, value in enumerate(values) if i % 3 != 1]
    assert np.bincount(chosen, minlength=7).tolist() == machine.read(places[2], 7, np.int32).tolist()
