"""Arithmetic, comparisons, indices and stores that numba-cuda-mlir compiled, on this machine's CPU."""

from __future__ import annotations

import enum
import math
import struct

import front_ends
import numpy as np
import pytest
from mlir_host import host, lowered

import numba_ptxlink as pl

NAME = "numba-cuda-mlir"
FRONT_END = front_ends.get(NAME)
types, cuda = FRONT_END.types, front_ends.cuda(NAME)
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float32", "float64"]
HALVES = ["float16", "bfloat16"]
PAIRS = [
    ("uint8", "int8"),
    ("int32", "uint16"),
    ("uint32", "int32"),
    ("uint64", "uint8"),
    ("int64", "uint32"),
]
RECORD = np.dtype(
    [("d", "f8"), ("f", "f4"), ("q", "i8"), ("m", "f4", (2,)), ("a", "u1"), ("b", "i2")], align=True
)


def edges(name):
    """Return integers of a type: its ends, some around zero, and one that fits into few others."""
    info = np.iinfo(name)
    return sorted({info.min, info.max, info.max // 2 + 1, 5, max(-5, info.min)})


def passed(name, value):
    """Return *value* of the type *name* as LLVM passes it, which has no unsigned integers."""
    return (
        value if name.startswith("float") else int(np.array(value % 2**64, np.uint64).astype(name.strip("u")))
    )


def called(signature, function, *values, **options):
    """Return the result of *function* for *values*: a number, or the numbers of a tuple of int64."""
    names = [name.replace("boolean", "int8") for name in signature[signature.index("(") + 1 : -1].split(",")]
    got = host(pl.udf(signature, name="f", **options)(function))(*map(passed, names, values))
    return struct.unpack(f"<{len(got) // 8}q", got) if isinstance(got, bytes) else got


def wrapped(*values):
    """Return integers as int64 hold them."""
    return tuple(int(np.array(value % 2**64, np.uint64).astype(np.int64)) for value in values)


def arithmetic(x):
    """Widen what is computed."""
    y = -x
    return y, x**2, x**3, x * x, -y


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_computed_as_int64(name):
    """Neither the width nor the sign of the operand changes the result."""
    call = host(pl.udf(f"UniTuple(int64, 5)({name})", name="f")(arithmetic))
    for value in edges(name):
        got = struct.unpack("<5q", call(passed(name, value)))
        assert got == wrapped(*arithmetic(value)), value


@pytest.mark.parametrize("name", INTEGERS)
def test_the_complement_has_the_bits_of_its_operand(name):
    """As in NumPy: that of an unsigned integer is one of the same width."""
    call = host(pl.udf(f"int64({name})", name="f")(lambda x: ~x))
    for value in edges(name):
        (complement,) = wrapped(int(~np.array(value, name)))
        assert call(passed(name, value)) == complement, value


def extremes(x, y):
    """Compare two integers."""
    return max(x, y), min(x, y, y)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_the_larger_of_two_is_chosen_by_their_signs(pair):
    """Unsigned integers are not compared as signed ones, nor narrow ones extended by the wrong sign."""
    left, right = pair
    call = host(pl.udf(f"UniTuple(int64, 2)({left},{right})", name="f")(extremes))
    for x in edges(left):
        for y in edges(right):
            got = struct.unpack("<2q", call(passed(left, x), passed(right, y)))
            assert got == wrapped(*extremes(x, y)), (x, y)


def compared(x, y):
    """Compare in every way."""
    return (x < y) + 2 * (x <= y) + 4 * (x > y) + 8 * (x >= y) + 16 * (x == y) + 32 * (x != y) + 64 * (not y)


@pytest.mark.parametrize("name", [*INTEGERS, "float32"])
def test_numbers_are_compared_with_floats_as_numbers(name):
    """An unsigned integer is not taken for a signed one; NaN differs from everything, itself included."""
    call = host(pl.udf(f"int64({name},float64)", name="f")(compared))
    firsts = (math.nan, 0.0, 1.5) if name == "float32" else edges(name)
    for x in firsts:
        for y in (1.5, -1.5, 0.0, math.nan):
            assert call(passed(name, x), y) == compared(x, y), (x, y)


def told(x):
    """Tell NaN and two numbers."""
    return (x != x) + 2 * (x in (1.0, 2.0)) + 4 * (x != 1)  # noqa: PLR0124 - what is tested


@pytest.mark.parametrize("name", FLOATS)
def test_nan_is_told_by_comparing_it_with_itself(name):
    """`x != x` is how programs ask for NaN."""
    call = host(pl.udf(f"int32({name})", name="f")(told))
    assert [5, 2, 6, 4] == [call(value) for value in (math.nan, 1.0, 2.0, 3.0)]


@pytest.mark.parametrize("name", FLOATS)
def test_halves_are_rounded_to_the_even_number(name):
    """As Python's `round` does, and NumPy's."""
    udf = pl.udf(f"int64({name})", name="f")(lambda x: 1 * round(x))
    (text,) = lowered(udf).lowered[0].modules
    assert "llvm.roundeven" in text or "rint" in text


@pytest.mark.parametrize("name", HALVES)
def test_halves_that_are_nan_differ_from_themselves(name):
    """Unordered comparisons, as those of wider floats."""
    udf = pl.udf(f"boolean({name}, {name})", name="f")(lambda x, y: x != y)
    (text,) = lowered(udf).lowered[0].modules
    assert "fcmp une float" in text


def by_keyword(a):
    """Call a function in it by keyword."""

    def first(array):
        return array[0, 0]

    return first(array=a)


@pytest.mark.parametrize("function", [lambda a: a.strides[0], by_keyword])
def test_a_statement_without_code_is_named(function):
    """The error has the line, or the function that failed, where numba-cuda-mlir tells no cause."""
    udf = pl.udf((types.float32[:, ::1],), name="f")(function)
    with pytest.raises(
        pl.ExportError, match=r"numba-cuda-mlir has no code for (this statement|it): \w+Error"
    ):
        lowered(udf)


def test_a_tuple_of_floats_is_searched_without_memory():
    """`x in (1.0, 2.0)` calls no `malloc`, for there is nobody to give it back."""
    udf = pl.udf("boolean(float32)", name="f")(lambda x: x in (1.0, 2.0))
    (text,) = lowered(udf).lowered[0].modules
    assert "malloc" not in text


def counted(n):
    """Count."""
    total = 0
    for _ in range(n):
        total += 1
    return total


def test_a_range_of_an_unsigned_integer_is_not_empty():
    """Of the `uint8` 200 it has 200 numbers."""
    assert 200 == called("int32(uint8)", counted, 200)


@pytest.mark.parametrize("function", ["sqrt", "exp", "atan", "log1p"])
def test_functions_of_integers_are_of_double_precision(function):
    """`math.sqrt(n)` of an integer is a float64, in registers too."""
    of = getattr(math, function)
    (text,) = lowered(pl.udf("float64(int32)", name="f")(lambda n: of(n) * 2)).lowered[0].modules
    assert "sitofp i32 %v0 to double" in text
    assert "float @" not in text


@pytest.mark.parametrize("name", ["pow", "atan2", "fmod", "hypot", "copysign"])
def test_functions_of_two_numbers_are_of_double_precision(name):
    """Where one is an integer, or they differ: not of the type of the first one."""
    of = getattr(math, name)
    for signature in ("float64(int8,float32)", "float64(float64,uint32)", "float64(float32,float64)"):
        udf = pl.udf(signature, name="f")(lambda x, y: of(x, y) * 2)
        (text,) = lowered(udf).lowered[0].modules
        assert "fmul double" in text, signature


class Level(enum.IntEnum):
    """Integers of a range that narrow types lack."""

    LOW = -200
    HIGH = 4000000000


def with_members(x):
    """Compute with members of an IntEnum."""
    return (
        x + Level.LOW,
        x - Level.HIGH,
        (x < Level.HIGH) + 2 * (x >= Level.LOW) + 4 * (x == Level.LOW) + 8 * (x != Level.HIGH),
        Level.HIGH + x,
    )


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "int64"])
def test_members_of_an_intenum_are_the_integers(name):
    """They are not cut to the width of the other operand."""
    call = host(pl.udf(f"UniTuple(int64, 4)({name})", name="f")(with_members))
    for value in edges(name):
        if abs(value) < 2**62:
            assert struct.unpack("<4q", call(passed(name, value))) == wrapped(*with_members(value)), value


LARGE, LARGER = np.uint64(2**64 - 5), 2**64 - 9


def test_globals_may_be_any_unsigned_integers():
    """From half the range on, too."""
    assert -5 - 9 == called("int64(uint64)", lambda x: (x | LARGE) + LARGER, 0)


def through_pointer(p, i):
    """Read around a pointer."""
    return p[i] + 1000 * (p + i)[0] + 1000000 * (p - i)[0]


def of_array(a, i):
    """Read and write by an index."""
    a[i] += 1
    return a[i] + 1000 * a[1:][i - 1]


@pytest.mark.parametrize("name", INTEGERS)
def test_indices_have_the_sign_of_their_type(name):
    """Behind pointers and in arrays: -3 counts back, and the `uint8` 200 does not."""
    values = np.arange(1000, dtype=np.int64)
    behind = host(pl.udf(f"int64(CPointer(int64),{name})", name="f")(through_pointer))
    within = host(pl.udf((types.int64[::1], getattr(types, name)), name="f")(of_array))
    middle = struct.pack("<Q", values[500:].ctypes.data)
    for index in {min(200, np.iinfo(name).max), max(-3, np.iinfo(name).min), 4}:
        given = passed(name, index)
        assert behind(middle, given) == 1000000 * (500 - index) + 1001 * (500 + index)
        array = values.copy()
        expected = of_array(values.copy(), index)
        assert within(struct.pack("<QQ", array.ctypes.data, array.size), given) == expected
        assert array[index] == values[index] + 1


def test_an_index_into_a_tuple_counts_from_the_end():
    """Also where it is known at run time only."""
    call = host(pl.udf("int64(int8)", name="f")(lambda i: (10, 20, 30)[i]))
    assert [10, 20, 30, 10, 20, 30] == [call(i) for i in (*range(3), *range(-3, 0))]


@pytest.mark.parametrize("shape", [(7,), (7, 4), (7, 4, 2)], ids=len)
def test_the_length_of_an_array_is_that_of_its_first_axis(shape):
    """Not the number of its elements."""
    array = types.Array(types.float32, len(shape), "C")
    call = host(pl.udf((array,), name="f")(lambda a: len(a) + 100 * a.size))
    assert call(struct.pack(f"<{1 + len(shape)}q", 0, *shape)) == 7 + 100 * math.prod(shape)


@pytest.mark.parametrize("place", ["int64", "uint16", *FLOATS])
@pytest.mark.parametrize(
    "name",
    [
        "int8",
        "uint32",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("uint8", "int32", "uint64")),
    ],
)
def test_numbers_are_stored_through_pointers_as_what_lies_there(name, place):
    """A wider integer gets the sign, and a float the value."""

    def store(out, value):
        out[0] = value
        return 0

    call = host(pl.udf(f"int32(CPointer({place}),{name})", name="f")(store))
    for value in edges(name):
        out = np.zeros(1, place)
        call(struct.pack("<Q", out.ctypes.data), passed(name, value))
        exact = (
            np.array([float(value)]) if place.startswith("float") else np.array([value % 2**64], np.uint64)
        )
        assert out[0] == exact.astype(place)[0], value


def fill(records, x):
    """Store one number in members of several types."""
    r = records[0]
    r.d, r["f"], r.q, r.a, r.b = x, x, x, x, x
    r.m[1] = x
    r.d += records[0].a
    return 0


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint32"])
def test_members_of_records_hold_the_number(name):
    """A member of another type gets the value, by name and by attribute, and reads as it is."""
    array = types.Array(FRONT_END.from_dtype(RECORD), 1, "C")
    call = host(pl.udf(types.int32(array, getattr(types, name)), name="f")(fill))
    for value in edges(name):
        got, expected = np.zeros(1, RECORD), np.zeros(1, RECORD)
        call(struct.pack("<QQ", got.ctypes.data, 1), passed(name, value))
        low = np.array([value % 2**64], np.uint64)
        for member in ("d", "f", "q"):
            expected[member] = value
        expected["a"], expected["b"] = low.astype("u1"), low.astype("i2")
        expected["m"][0, 1] = value
        expected["d"] += expected["a"]
        assert got == expected, value


@pytest.mark.parametrize("sign", "&|^")
def test_bits_of_integers_with_and_without_a_sign_are_of_int64(sign):
    """numba-cuda-mlir types `uint8 & int8` as int8, which holds no 200."""
    function = eval(f"lambda x, y: x {sign} y", {})  # noqa: S307 - three operators
    for signature, x, y in (
        ("int64(uint8,int8)", 200, -7),
        ("int64(int32,uint32)", -70000, 4000000000),
        ("int64(uint16,boolean)", 60000, 1),
        ("int64(uint16,uint8)", 60000, 200),
        ("int64(int8,int32)", -7, -70000),
    ):
        assert called(signature, function, x, y) == function(x, y), signature


def in_place(x, y):
    """Change a variable."""
    x |= y
    return x


def test_bits_are_set_in_place():
    """As the operator of two operands does."""
    assert 60001 == called("int64(uint16,int8)", in_place, 60000, 1)


@pytest.mark.parametrize("function", [math.floor, math.ceil, math.trunc])
def test_integers_are_their_own_floor(function):
    """They are not rounded to single precision on the way."""
    assert 2**24 + 1 == called("int64(int32)", lambda x: 1 * function(x), 2**24 + 1)


@pytest.mark.parametrize("exponent", ["-1", "n"])
def test_zero_to_a_negative_power_is_an_error_where_that_is_checked(exponent):
    """Of floats too, whose power is computed in one instruction."""
    function = eval(f"lambda x, n: x ** {exponent}", {})  # noqa: S307 - two exponents
    texts = [
        lowered(pl.udf("float64(float64, int32)", name="f", checked=checked)(function)).lowered[0].modules[0]
        for checked in (False, True)
    ]
    assert [False, True] == ["fcmp oeq double %v0, 0.0" in text for text in texts]


def of_its_own(n):
    """Return memory that ends with the function."""
    local = cuda.local.array(4, types.int32)
    local[0] = n
    return local[n:]


def test_an_array_of_the_function_itself_cannot_be_returned():
    """Its memory ends with the function; a view of an argument's is returned."""
    with pytest.raises(pl.ExportError, match=r"cannot return an array of cuda\.local\.array"):
        lowered(pl.udf("int32[:](int32)", name="f")(of_its_own))
    assert lowered(pl.udf("int32[:](int32[:])", name="f")(lambda a: a[1:])).lowered
