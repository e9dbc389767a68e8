"""`run` and `compare`: compiled functions on the command line, and beside Python."""

from __future__ import annotations

import json
import math
import re
import sys
from collections import namedtuple
from pathlib import Path

import corpus
import front_ends
import numpy as np
import pytest
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink import comparison
from numba_ptxlink.cli import main

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "compilers.md"
UDFS = """
import math
from numba import cuda
from numba_ptxlink import kernel, udf

@udf("float32(float32, int8)")
def scaled(value, factor):
    return value * factor

@cuda.jit(device=True)
def twice(value):
    return 2 * value

@udf("UniTuple(float64, 2)(float64)")
def pair(value):
    return value, twice(value)

@udf("int32(int32[::1], int32[::1])")
def both(x, out):
    x[0] += 1
    out[1] += 2
    return x[1]

@kernel("void(float32[::1], int32[::1])")
def count(x, out):
    i = cuda.grid(1)
    if i < x.size and x[i] > 0:
        cuda.atomic.add(out, 0, 1)
        print(i)
"""

APART = """
from numba import cuda

@cuda.jit(device=True)
def one(value):
    return value + 1

@cuda.jit(device=True)
def two(value):
    return one(value) * 2
"""
USES_APART = """
import inner.apart
from numba.cuda import libdevice
from inner import apart

@udf("int32(int32)")
def doubled(value):
    return apart.two(value)

@udf("int32(int32)")
def nested(value):
    return inner.apart.two(value)

@udf("float32(float32)")
def device_only(value):
    return libdevice.expf(value)
"""


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """Return the path of the manifest of these functions, in a folder with their file."""
    folder = tmp_path_factory.mktemp("udfs")
    (folder / "udfs.py").write_text(UDFS)
    pl.export(folder / "udfs.py", folder, emit=["ptx"])
    return folder / "udfs.json"


def run_command(capsys, *command):
    """Return status, output and messages of a command."""
    status = main([*map(str, command)])
    return status, *capsys.readouterr()


def test_run_prints_what_a_function_returns(manifest, capsys, tmp_path):
    """Values are literals or .npy files; the result is text or JSON, and a Python file is exported first."""
    np.save(tmp_path / "x.npy", np.array([1.5, -2]))
    assert (0, "-4.5\n", "") == run_command(capsys, "run", manifest, "scaled", "1.5", "-3")
    assert (0, "(1.5, 3.0)\n", "") == run_command(capsys, "run", manifest.with_suffix(".py"), "pair", "1.5")
    _, output, _ = run_command(capsys, "run", manifest, "scaled", tmp_path / "x.npy", "2", "--json")
    assert {"result": [3.0, -4.0]} == json.loads(output)
    _, output, _ = run_command(capsys, "run", manifest, "pair", "inf", "--json")
    assert {"result": ["inf", "inf"]} == json.loads(output)
    assert (0, "nan\n", "") == run_command(capsys, "run", manifest, "scaled", "nan", "2")


def test_run_launches_a_kernel(manifest, capsys, tmp_path):
    """Arrays that the kernel has changed are shown and written; its printed text goes to standard error."""
    np.save(tmp_path / "x.npy", np.array([1, -2, 3], np.float32))
    np.save(tmp_path / "out.npy", np.zeros(1, np.int32))
    command = (
        "run",
        manifest,
        "count",
        tmp_path / "x.npy",
        tmp_path / "out.npy",
        "--grid",
        "1",
        "--block",
        "4,1",
    )
    status, output, printed = run_command(capsys, *command)
    assert (0, f"{tmp_path / 'out.npy'}  int32 (1,)\n[2]\n", ["0", "2"]) == (status, output, printed.split())
    assert [2] == np.load(tmp_path / "out.npy").tolist()


def test_run_writes_what_a_function_writes(manifest, capsys, tmp_path):
    """Arrays that a function has changed are written, too; a file with two paths is one array."""
    array_file, link = tmp_path / "x.npy", tmp_path / "link.npy"
    link.symlink_to(array_file)
    np.save(array_file, np.zeros(2, np.int32))
    assert (0, f"2\n{array_file}  int32 (2,)\n[1 2]\n", "") == run_command(
        capsys, "run", manifest, "both", link, array_file
    )
    assert [1, 2] == np.load(array_file).tolist()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("scaled", "x", "1"), r"'x' is not a value \(malformed .*\); pass a number"),
        (("scaled", "none.npy", "1"), r"none\.npy: No such file"),
        (("scaled", "1", "1", "--grid", "1"), "scaled is a function: give .* neither for a function"),
        (("count", "1", "1", "--grid", "1"), "count is a kernel: give both --grid and --block"),
        (("other",), "'other' is not loaded: the export has scaled, pair, both, count"),
    ],
)
def test_run_says_what_is_wrong(manifest, capsys, arguments, reason):
    """Wrong arguments are errors with a cure, and no traceback."""
    status, output, message = run_command(capsys, "run", manifest, *arguments)
    assert (1, "") == (status, output)
    assert message.startswith("numba-ptxlink: error: ")
    assert re.search(reason, message), message


MATRIX = np.dtype([("m", "f4", (2, 3))])
# A kind of difference for each: Numba's types of the parameters, and an expression of x and y.
ROWS = [
    ("int32 int32", "x // y"),
    ("int32 int32", "x % y"),
    ("int32 int32", "x / y"),
    ("float64 float64", "x / y"),
    ("uint8", "-x"),
    ("uint8", "~x"),
    ("uint8 uint8", "x - y > 0"),
    ("uint64", "x % 10"),
    ("uint64", "x // 10"),
    ("int32 int32", "x ** y"),
    ("float64 float64", "max(x, y)"),
    ("float64 float64", "min(x, y)"),
    ("float64", "math.sqrt(x)"),
]
EQUAL = [
    ("int32 int32", "x + y"),
    ("float32 float32", "x * y + x"),
    ("int8 float64", "x * y"),
    ("uint8", "x + 1"),
    ("float16", "x / 2 - x"),
]


def function(number, row, front_end):
    """Return the function of a row."""
    kinds, expression = row
    names = ", ".join("xy"[: len(kinds.split())])
    types = front_ends.get(front_end).types
    body = eval(f"lambda {names}: {expression}", {"math": math})  # noqa: S307 - of the table
    signature = tuple(getattr(types, kind) for kind in kinds.split())
    return pl.udf(signature, name=f"f{number}", front_end=front_end)(body)


@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_rows_of_the_page_are_found(front_end):
    """Functions of one line differ if the page says so; others do not differ."""
    rows = [*ROWS, *EQUAL]
    udfs = [function(number, row, front_end) for number, row in enumerate(rows)]
    report = comparison.compare_functions(udfs, 7, front_end=front_end)
    unlike = {difference.function.partition("(")[0].split()[1] for difference in report.differences}
    # numba-cuda-mlir takes the complement of 64 bits, as Python does.
    differ = [row for row in ROWS if row[1] != "~x" or front_end == "numba-cuda"]
    assert {f"f{rows.index(row)}" for row in differ} == unlike
    assert {} == report.left_out
    again = comparison.compare_functions(udfs[:3], 7, front_end=front_end)
    assert again.differences == [
        difference for difference in report.differences if difference.function in again.calls
    ]


def test_compare_calls_with_arguments_of_a_test():
    """A call that agrees has no differences; one that does not has both results."""
    divided = function(0, ("int32 int32", "x // y"), "numba-cuda")
    assert [] == pl.compare(divided, -7, 2)
    (difference,) = pl.compare(divided, 7, 0)
    assert ("7, 0", "ZeroDivisionError", "0") == difference[1:4]

    @pl.udf("float32(float32[::1], int32)")
    def written(values, index):
        values[index] = index + 0.5
        return values[0]

    assert [] == pl.compare(written, np.zeros(3, np.float32), 1)

    @pl.udf("Tuple((boolean, int8, float64, complex128))(int32[::1, :], int64, float64)")
    def converted(values, number, part):
        return values[0, 0], values[0, 1], number**3, complex(part, max(part, 1.0))

    values = np.array([[2, 300], [0, 0]], np.int32, order="F")
    assert [] == pl.compare(converted, values, 5, 2.0)
    # Python's power is too large for an integer of 64 bits, and NaN in one part does not hide the other.
    for arguments in ((2**60, 2.0), (5, math.nan)):
        assert 1 == len(pl.compare(converted, values, *arguments))

    @pl.udf("void(uint64, uint64[::1])")
    def tenth(number, values):
        values[0] = number // 10

    # An array for a number is not taken for one that is written.
    assert 1 == len(pl.compare(tenth, np.array(2**64 - 1, np.uint64), np.zeros(1, np.uint64)))

    @pl.udf("float64(float64, float64)")
    def power(x, y):
        return x**y

    (difference,) = pl.compare(power, 1e300, 3.0)
    assert ("OverflowError", "inf") == (difference.python, difference.compiled)

    @pl.udf("float32(MATRIX)")
    def corner(record):
        return record.m[1][2]

    assert [] == pl.compare(corner)

    @pl.udf("float64(float64)", name="wide")
    @pl.udf("float32(float32)", name="narrow")
    def inverse(number):
        return 1 / number

    called = [difference.function.partition("(")[0] for difference in pl.compare(inverse, 0)]
    assert ["float narrow", "double wide"] == called

    @pl.udf("float64(float64[::1], float64)")
    def beyond(values, number):
        return values[3 if math.sqrt(number) >= 0 else 1 << 40]

    assert [] == pl.compare(beyond, np.zeros(3), 1.0)
    # Python stops before the access.
    assert 1 == len(pl.compare(beyond, np.zeros(3), -1.0))

    @pl.udf("void(Tuple((float64, float64[::1])))")
    def within(pair):
        pair[1][0] = max(pair[0], 1.0)

    assert [0, 1] == [len(pl.compare(within, (number, np.zeros(1)))) for number in (2.0, math.nan)]

    with pytest.raises(pl.ExportError, match=r"parameter 'x' is int32_t.*; give other arguments"):
        pl.compare(divided, 1.5, 2)
    with pytest.raises(pl.ExportError, match="takes a function with @udf"):
        pl.compare(len)


box = np.dtype([("size", "f4"), ("data", "i4"), ("pos", "f4", (2, 2))], align=True)
overflowing = 1e20


@pl.udf("float32(float32)")
def scaled_twice(x):
    """Exceed the range of a float32 on the way."""
    return x * overflowing * 1e20 / 1e40


@pl.udf("float64(float32, float32)")
def of_both_widths(x, y):
    """Round to float32, and go on with float64."""
    return (x + y) * 1e20 * 1e20


@pl.udf("void(float32[::1], int16[:, ::1])")
def of_elements(floats, integers):
    """Compute on elements, which NumPy would keep narrow, and wrap stored values around."""
    floats[0] = floats[1] * 1e30 * 1e30 / 1e60
    integers[0, 0] = (integers[0, 1] << 20) // 3
    integers[0, 1] = integers[1, 0] * 1000


@pl.udf("float32(CPointer(box), box, box[::1], box[:, ::1])")
def of_records(pointer, value, view, matrix):
    """Read and write members that are named like attributes of arrays."""
    view[1].size = pointer[0].size + value["size"] + value.data
    view.data[2] = 7
    matrix[1, 0]["pos"][0, 1] = view[0].pos[1, 1] + value.pos[0, 1]
    value.size = 2.0
    return value.size + len(view) + view.size + matrix.size


@pytest.mark.parametrize(
    "udf", [scaled_twice, of_both_widths, of_elements, of_records], ids=lambda udf: udf.name
)
def test_python_is_what_python_computes(udf):
    """Constants have 64 bits, integers any size and records all their members, also in arrays."""
    assert [] == pl.compare(udf, seed=1)


@pytest.mark.parametrize("seed", [-1, 2.5, "7", True])
def test_a_seed_is_a_whole_number(seed):
    """Another one is an error before anything is compiled."""
    with pytest.raises(pl.ExportError, match=r"seed is .*; pass a whole number from 0 on"):
        pl.compare(scaled_twice, seed=seed)


def test_records_are_arguments_in_any_form():
    """A named tuple, a tuple, a record of NumPy and an array of one are the same record."""
    Box = namedtuple("Box", box.names)  # noqa: PYI024 - for one call

    @pl.udf("float32(box, box[::1])", name="size_of")
    def size_of(value, view):
        return value.size * view[0].size + value["data"]

    members = (3.5, 2, ((1, 2), (3, 4)))
    record = np.array(members, box)
    for value in (members, Box(*members), record, record[()]):
        assert [] == pl.compare(size_of, value, record.reshape(1))


DATE = types.NPDatetime("D")
NOT_COMPARED = {
    "date": ((DATE, types.Array(DATE, 1, "C")), lambda a, b: a - b[0], "dates are integers in C"),
    "address": ("CPointer(float32)(CPointer(float32))", lambda p: p, "it returns an address"),
    "void": ("void(voidptr)", lambda _: None, "a void. has no type of which to draw values"),
    "tuple": (
        (types.UniTuple(types.Array(types.float32, 1, "C"), 2),),
        lambda arrays: arrays[0].size,
        "no values are drawn for an array in a tuple",
    ),
    "array": ("float32[::1](float32[::1])", lambda a: a, "returns an array; let it write to one"),
}


@pytest.mark.parametrize("case", NOT_COMPARED)
def test_what_python_has_no_value_for_is_not_compared(case):
    """Dates, which are integers in C, and addresses are left out, with the reason."""
    signature, body, reason = NOT_COMPARED[case]
    with pytest.raises(pl.ExportError, match=f"same was not compared: .*{reason}"):
        pl.compare(pl.udf(signature, name="same")(body))


def test_an_array_without_dimensions():
    """An array without dimensions is written in place, in Python too."""

    @pl.udf((types.Array(types.float32, 0, "C"), types.float32))
    def stored(array, value):
        array[()] = value + array[()]
        return array[()]

    assert [] == pl.compare(stored)


POWERS = """
from numba import cuda
from numba_ptxlink import udf

@cuda.jit(device=True)
def power(a, b):
    return a ** b

@udf("int64(int64, int64)")
def by_operator(a, b):
    return power(a, b)

@udf("int64(int64, int64)")
def by_function(a, b):
    quotient, remainder = divmod(a, b if b else 1)
    return pow(int(a), int(b)) + (1 << int(a)) + quotient**remainder

@udf("uint64(uint64)")
def by_squares(a):
    for _ in range(64):
        a = a * a + 1
    return a

@udf("float32(uint32, float32)")
def negated(a, b):
    if b != b:
        raise TypeError("no NaN")
    return -a * 1.0

@udf("float32(float32)")
def refused(a):
    raise TypeError("nothing")
"""


@pytest.mark.numba_cuda
def test_calls_that_python_cannot_make_are_skipped(tmp_path, capsys):
    """Integers that grow without end, and errors of Python, skip a call; the others are compared."""
    (tmp_path / "udfs.py").write_text(POWERS)
    status, output, _ = run_command(capsys, "compare", tmp_path / "udfs.py", "--seed", "2", "--json")
    report = json.loads(output)
    assert status == 1
    counts = {
        declaration.partition("(")[0].split()[1]: count for declaration, count in report["calls"].items()
    }
    assert {"by_operator", "by_function", "negated"} == set(counts)
    assert all(20 < count < 500 for count in counts.values()), counts
    assert report["left_out"] == {
        "by_squares": "an integer exceeds 4,096 bits in Python",
        "refused": "Python raises TypeError: nothing",
    }
    differ = {difference["function"].partition("(")[0].split()[1] for difference in report["differences"]}
    assert {"by_operator", "by_function", "negated"} == differ
    (tmp_path / "udfs.py").write_text(
        "from numba_ptxlink import udf\n" + POWERS[POWERS.index('@udf("float32(float32)")') :]
    )
    status, output, _ = run_command(capsys, "compare", tmp_path / "udfs.py")
    assert (1, "not compared: refused: Python raises TypeError: nothing") == (status, output.splitlines()[0])


def of_row(expression, assignments, front_end):
    """Return the function and the arguments of a row of the page."""
    words = [argument.split() for argument in assignments.split(", ")]
    values = [np.array([value], ty)[0].item() for _, _, ty, value in words]
    return function(0, (" ".join(ty for _, _, ty, _ in words), expression), front_end), values


@pytest.mark.slow
@front_ends.MLIR_06
@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_the_table_of_the_page_is_found(front_end):
    """The rows of the table on compilers that differ from Python, and no others, are differences."""
    _, _, table = PAGE.read_text().partition("<!-- values -->\n")
    lines = table.partition("<!-- /values -->")[0].splitlines()[2:]
    for expression, assignments, expected, *actual in (
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines
    ):
        udf, values = of_row(expression, assignments, front_end)
        result = actual[front_ends.NAMES.index(front_end)].rpartition(" (")[0]
        assert is_different(result, expected) == bool(pl.compare(udf, *values)), (expression, assignments)


def is_different(actual, expected):
    """Return whether two values of the page differ as C sees them: 2.0 is 2, and integers wrap around."""
    try:
        return bool((int(actual) - int(expected)) % 2**64)
    except ValueError:
        return actual not in {expected, f"{expected}.0"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_differences_of_the_corpus_are_pythons_own(front_end):
    """Each difference shows the result of Python's own numbers, evaluated separately."""
    udfs, expressions = [], {}
    for number, (expression, kinds) in enumerate(corpus.EXPRESSIONS):
        types = re.split(r", (?![^\[(]*[\])])", kinds)
        body = eval(f"lambda {', '.join('ab'[: len(types)])}: {expression}", {"math": math, "np": np})  # noqa: S307 - of the table
        # numba-cuda-mlir has no such power.
        if front_end == "numba-cuda" or (expression, types) != ("a ** b", ["int64", "float32"]):
            name = f"f{number}"
            udfs.append(pl.udf(f"({', '.join(types)},)", name=name, front_end=front_end)(body))
            expressions[name] = body, types
    report = comparison.compare_functions(udfs, 5, front_end=front_end)
    assert ({}, len(udfs)) == (report.left_out, len(report.calls))
    assert len(report.differences) > 1000
    for difference in report.differences:
        body, types = expressions[difference.function.partition("(")[0].split()[1]]
        # Arrays are shown rounded.
        if "[" not in types[0]:
            assert difference.python == python(body, types, difference.arguments.split(", ")), difference


def python(body, types, texts):
    """Return the value of an expression in Python, as a report shows it; *texts* are its arguments."""
    values = [
        np.dtype(name).type(complex(text) if "complex" in name else text).item()
        for name, text in zip(types, texts, strict=True)
    ]
    try:
        return re.sub(r"\b(\d{20})\d{30,}(\d{10})\b", r"\1...\2", str(body(*values)))
    except (ArithmeticError, ValueError) as error:
        return type(error).__name__


# The comparison runs code by llvmlite, which numba-cuda installs.
@pytest.mark.numba_cuda
def test_the_command_shows_a_table(tmp_path, capsys):
    """Differences are rows with inputs and both results, and the status is 1."""
    (tmp_path / "udfs.py").write_text(UDFS + '@udf("int32(int32)")\ndef tenth(x):\n    return 10 // x\n')
    status, output, _ = run_command(capsys, "compare", tmp_path / "udfs.py", "--seed", "3")
    assert status == 1
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "0 ZeroDivisionError 0" in lines
    assert any(line.startswith('"Where compilers differ" in the documentation') for line in lines)
    assert "not compared: count: a kernel is not called in Python" in lines
    assert "seed 3" in lines
    # Helpers that are attributes of a module are called in Python; deeper ones, and device functions, are
    # reported.
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").touch()
    (tmp_path / "inner" / "apart.py").write_text(APART)
    (tmp_path / "udfs.py").write_text(UDFS + USES_APART)
    status, output, _ = run_command(capsys, "compare", tmp_path / "udfs.py", "--json")
    report = json.loads(output)
    assert (0, [], {"count", "nested", "device_only"}) == (
        status,
        report["differences"],
        {*report["left_out"]},
    )
    assert sys.gettrace() is None or "coverage" in sys.modules
