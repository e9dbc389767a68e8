"""`run` and `compare`: compiled functions on the command line, and beside Python."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import front_ends
import numpy as np
import pytest

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


def said(capsys, *command):
    """Return status, output and messages of a command."""
    status = main([*map(str, command)])
    return status, *capsys.readouterr()


def test_run_prints_what_a_function_returns(manifest, capsys, tmp_path):
    """Values are literals or .npy files; the result is text or JSON, and a Python file is exported first."""
    np.save(tmp_path / "x.npy", np.array([1.5, -2]))
    assert (0, "-4.5\n", "") == said(capsys, "run", manifest, "scaled", "1.5", "-3")
    assert (0, "(1.5, 3.0)\n", "") == said(capsys, "run", manifest.with_suffix(".py"), "pair", "1.5")
    _, output, _ = said(capsys, "run", manifest, "scaled", tmp_path / "x.npy", "2", "--json")
    assert {"result": [3.0, -4.0]} == json.loads(output)
    _, output, _ = said(capsys, "run", manifest, "pair", "inf", "--json")
    assert {"result": ["inf", "inf"]} == json.loads(output)
    assert (0, "nan\n", "") == said(capsys, "run", manifest, "scaled", "nan", "2")


def test_run_launches_a_kernel(manifest, capsys, tmp_path):
    """Arrays that the kernel has changed are shown and written; what it prints goes to the standard error."""
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
    status, output, printed = said(capsys, *command)
    assert (0, f"{tmp_path / 'out.npy'}  int32 (1,)\n[2]\n", ["0", "2"]) == (status, output, printed.split())
    assert [2] == np.load(tmp_path / "out.npy").tolist()


def test_run_writes_what_a_function_writes(manifest, capsys, tmp_path):
    """Arrays that a function has changed are written, too; a file with two paths is one array."""
    place, link = tmp_path / "x.npy", tmp_path / "link.npy"
    link.symlink_to(place)
    np.save(place, np.zeros(2, np.int32))
    assert (0, f"2\n{place}  int32 (2,)\n[1 2]\n", "") == said(capsys, "run", manifest, "both", link, place)
    assert [1, 2] == np.load(place).tolist()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("scaled", "x", "1"), r"'x' is no value \(malformed .*\); give a number"),
        (("scaled", "none.npy", "1"), r"none\.npy: No such file"),
        (("scaled", "1", "1", "--grid", "1"), "scaled is a function: give .* neither for a function"),
        (("count", "1", "1", "--grid", "1"), "count is a kernel: give both --grid and --block"),
        (("other",), "'other' is not loaded: the export has scaled, pair, both, count"),
    ],
)
def test_run_says_what_is_wrong(manifest, capsys, arguments, reason):
    """Wrong arguments are errors with a cure, and no traceback."""
    status, output, message = said(capsys, "run", manifest, *arguments)
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
    """Functions of one line differ where the page says, explained by a sentence; others do not differ."""
    rows = [*ROWS, *EQUAL]
    udfs = [function(number, row, front_end) for number, row in enumerate(rows)]
    found = comparison.compared(udfs, 7, front_end=front_end)
    unlike = {each.function.partition("(")[0].split()[1] for each in found.differences}
    # numba-cuda-mlir takes the complement of 64 bits, as Python does.
    differ = [row for row in ROWS if row[1] != "~x" or front_end == "numba-cuda"]
    assert {f"f{rows.index(row)}" for row in differ} == unlike
    explained = {each.function for each in found.differences if each.why}
    assert len(differ) == len(explained)
    assert {} == found.left_out
    again = comparison.compared(udfs[:3], 7, front_end=front_end)
    assert again.differences == [each for each in found.differences if each.function in again.calls]


def test_the_sentences_are_those_of_the_page():
    """What explains a difference is on the page about compilers."""
    page = " ".join(PAGE.read_text().split())
    assert [] == [sentence for sentence in comparison.WHY if sentence not in page]


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
    for given in ((2**60, 2.0), (5, math.nan)):
        assert 1 == len(pl.compare(converted, values, *given))

    @pl.udf("void(uint64, uint64[::1])")
    def tenth(number, values):
        values[0] = number // 10

    # An array for a number is not taken for one that is written.
    assert 1 == len(pl.compare(tenth, np.array(2**64 - 1, np.uint64), np.zeros(1, np.uint64)))

    @pl.udf("float64(float64, float64)")
    def power(x, y):
        return x**y

    (difference,) = pl.compare(power, 1e300, 3.0)
    assert "`**`, raise in Python outside of their domain" in difference.why

    @pl.udf("float32(MATRIX)")
    def corner(record):
        return record.m[1][2]

    assert [] == pl.compare(corner)

    @pl.udf("float64(float64)", name="wide")
    @pl.udf("float32(float32)", name="narrow")
    def inverse(number):
        return 1 / number

    called = [each.function.partition("(")[0] for each in pl.compare(inverse, 0)]
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

    assert [0, 1] == [len(pl.compare(within, (given, np.zeros(1)))) for given in (2.0, math.nan)]

    with pytest.raises(pl.ExportError, match=r"parameter 'x' is int32_t.*; give other arguments"):
        pl.compare(divided, 1.5, 2)
    with pytest.raises(pl.ExportError, match="takes a function with @udf"):
        pl.compare(len)


# llvmlite, which runs what is compared, comes with it.
@pytest.mark.numba_cuda
def test_the_command_shows_a_table(tmp_path, capsys):
    """Differences are rows with inputs, both results and the sentence, and the status is 1."""
    (tmp_path / "udfs.py").write_text(UDFS + '@udf("int32(int32)")\ndef tenth(x):\n    return 10 // x\n')
    status, output, _ = said(capsys, "compare", tmp_path / "udfs.py", "--seed", "3")
    assert status == 1
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "0 ZeroDivisionError 0" in lines
    assert any(line.startswith("Division by zero raises in Python.") for line in lines)
    assert "not compared: count: a kernel is not called in Python" in lines
    assert "seed 3" in lines
    # Helpers that are read of a module are called in Python; deeper ones, and those of a device, are told.
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "__init__.py").touch()
    (tmp_path / "inner" / "apart.py").write_text(APART)
    (tmp_path / "udfs.py").write_text(UDFS + USES_APART)
    status, output, _ = said(capsys, "compare", tmp_path / "udfs.py", "--json")
    found = json.loads(output)
    assert (0, [], {"count", "nested", "device_only"}) == (status, found["differences"], {*found["left_out"]})
    assert sys.gettrace() is None or "coverage" in sys.modules
