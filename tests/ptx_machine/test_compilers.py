"""
What the compilers compute where they differ, executed, against the table in the documentation.

Run as a script, it writes the table.
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import front_ends
import numpy as np
import pytest
from emulator import Machine, PtxError

import numba_ptxlink as pl

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "compilers.md"
BEGIN, END = "<!-- values -->\n", "<!-- /values -->"
UPSTREAM = "https://github.com/NVIDIA/numba-cuda-mlir/issues/"
NAN = float("nan")
# An expression, its arguments by name with their types and values, and upstream's issue about its kind.
ROWS: list[tuple[str, dict[str, tuple[str, Any]], int | None]] = [
    ("-x", {"x": ("int32", 5)}, None),
    ("-x", {"x": ("uint8", 5)}, None),
    ("~x", {"x": ("uint8", 5)}, None),
    ("x + 1", {"x": ("uint8", 255)}, None),
    ("x < y", {"x": ("int32", -1), "y": ("uint32", 1)}, 121),
    ("x < y", {"x": ("int64", -1), "y": ("uint64", 1)}, 121),
    ("x < y", {"x": ("uint32", 2**31), "y": ("float64", 1.0)}, 290),
    ("x == y", {"x": ("int64", -1), "y": ("uint64", 2**64 - 1)}, 121),
    ("x + y", {"x": ("int64", -1), "y": ("uint64", 2)}, None),
    ("x // y", {"x": ("int32", -7), "y": ("uint32", 2)}, 184),
    ("x % y", {"x": ("int32", -7), "y": ("uint32", 4)}, 184),
    ("x % 10", {"x": ("uint64", 2**64 - 1)}, None),
    ("x // 10", {"x": ("uint64", 2**64 - 1)}, None),
    ("x >> y", {"x": ("int32", -8), "y": ("uint32", 1)}, None),
    ("x & y", {"x": ("uint8", 200), "y": ("int8", -1)}, None),
    ("max(x, y)", {"x": ("uint32", 2**32 - 1), "y": ("int32", 1)}, None),
    ("x ** 2", {"x": ("int8", 100)}, None),
    ("x ** 2", {"x": ("int32", 100_000)}, None),
    ("x ** y", {"x": ("int32", 2), "y": ("int32", -1)}, None),
    ("x ** y", {"x": ("float32", 2.0), "y": ("int32", -1)}, None),
    ("x != x", {"x": ("float64", NAN)}, None),
    ("x < y", {"x": ("float64", NAN), "y": ("float64", 1.0)}, None),
    ("not x", {"x": ("float64", NAN)}, 304),
    ("bool(x)", {"x": ("float64", 0.5)}, 304),
    ("max(x, y)", {"x": ("float64", NAN), "y": ("float64", 1.0)}, 229),
    ("min(x, y)", {"x": ("float64", 1.0), "y": ("float64", NAN)}, 229),
    ("x // y", {"x": ("int32", 7), "y": ("int32", 0)}, None),
    ("x % y", {"x": ("int32", 7), "y": ("int32", 0)}, None),
    ("x / y", {"x": ("int32", 7), "y": ("int32", 0)}, None),
    ("x / y", {"x": ("float64", 1.0), "y": ("float64", 0.0)}, None),
    ("x // y", {"x": ("float64", 1.0), "y": ("float64", 0.0)}, None),
    ("math.sqrt(x) * 2", {"x": ("int32", 2)}, None),
    ("math.floor(x)", {"x": ("float64", -1.5)}, None),
    ("round(x)", {"x": ("float64", 2.5)}, None),
    ("(x, 2 * x, 3 * x)[y]", {"x": ("int64", 7), "y": ("int64", -1)}, None),
]
C_TYPES = {"bool": np.bool_, "float": np.float32, "double": np.float64}


def function(expression: str, names: str) -> Any:
    """Return the Python function of an expression."""
    scope: dict[str, Any] = {"math": math}
    exec(f"def f({names}): return {expression}", scope)  # noqa: S102 - the rows are our own
    return scope["f"]


def python(expression: str, arguments: dict[str, tuple[str, Any]]) -> str:
    """Return what Python computes."""
    try:
        return str(function(expression, ", ".join(arguments))(*(value for _, value in arguments.values())))
    except (ZeroDivisionError, ValueError) as error:
        return type(error).__name__


def executed(name: str, folder: Path) -> list[str]:
    """Return what the functions of all rows return that the front end *name* compiled."""
    types = front_ends.get(name).types
    udfs = [
        pl.udf(tuple(getattr(types, ty) for ty, _ in arguments.values()), name=f"f{number}", front_end=name)(
            function(expression, ", ".join(arguments))
        )
        for number, (expression, arguments, _) in enumerate(ROWS)
    ]
    made = pl.export(udfs, folder, name="rows", archs=["sm_90"], emit=["ptx"])
    described = {each["symbol"]: each for each in json.loads(made.manifest.read_text())["functions"]}
    machine = Machine(made.artifacts["ptx", "sm_90"].read_text(), checked=False)
    found = []
    for number, (_, arguments, _) in enumerate(ROWS):
        passed = [np.array([value], ty) for ty, value in arguments.values()]
        # Narrow integers are passed as words.
        passed = [each.astype(f"{each.dtype.kind}4") if each.itemsize < 4 else each for each in passed]
        try:
            ((value, _),) = machine.call(f"f{number}", *passed)
        except PtxError as error:
            found.append("stops" if "trap" in str(error) or "assert" in str(error) else f"({error})")
            continue
        result = described[f"f{number}"]["result"]
        dtype = np.dtype(C_TYPES.get(result) or result.removesuffix("_t"))
        found.append(f"{value.reshape(-1)[: dtype.itemsize].view(dtype)[0]} ({dtype})")
    return found


def table(folder: Path) -> str:
    """Return the table of all rows."""
    columns = [executed(name, folder / name) for name in front_ends.NAMES]
    lines = [["expression", "of", "Python", *front_ends.NAMES, "upstream"], ["---"] * 6]
    for (expression, arguments, issue), *values in zip(ROWS, *columns, strict=True):
        given = ", ".join(f"{name} = {ty} {value}" for name, (ty, value) in arguments.items())
        about = f"[{issue}]({UPSTREAM}{issue})" if issue else ""
        lines.append([f"`{expression}`", given, python(expression, arguments), *values, about])
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


@pytest.mark.filterwarnings("ignore")
def test_the_page_shows_what_is_computed(tmp_path):
    """Each value in the table is what the compiled function returns."""
    for name in front_ends.NAMES:
        pytest.importorskip(name.replace("-", "_"))
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert table(tmp_path).splitlines() == shown.splitlines()


if __name__ == "__main__":
    import tempfile

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + table(Path(folder)) + END + rest.partition(END)[2])
