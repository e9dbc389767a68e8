"""
Values for which compilers differ, executed, against the table in the documentation.

The table's expressions and arguments are taken from the page. Run as a script, it writes the values.
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
BEFORE, _, REST = PAGE.read_text().partition("<!-- values -->\n")
SHOWN, _, AFTER = REST.partition("<!-- /values -->")
HEAD = SHOWN.splitlines()[:2]
ROWS = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in SHOWN.splitlines()[2:]]
C_TYPES = {"bool": np.bool_, "float": np.float32, "double": np.float64}


def arguments_of(assignments: str) -> list[np.ndarray]:
    """Return the arguments x and y of an expression, such as "x = int32 -1, y = uint32 1"."""
    words = [assignment.split() for assignment in assignments.split(", ")]
    return [np.array([value], ty) for _, _, ty, value in words]


def function(expression: str, arguments: list[np.ndarray]) -> Any:
    """Return the Python function of an expression."""
    return eval(f"lambda {', '.join('xy'[: len(arguments)])}: {expression}", {"math": math})  # noqa: S307 - our own page


def python(expression: str, assignments: str) -> str:
    """Return the value of *expression* in Python, or the name of its exception."""
    arguments = arguments_of(assignments)
    try:
        return str(function(expression, arguments)(*(argument.item() for argument in arguments)))
    except (ZeroDivisionError, ValueError) as error:
        return type(error).__name__


def executed(name: str) -> list[str]:
    """Return the results of all rows, compiled by the front end *name*."""
    types = front_ends.get(name).types
    rows = [arguments_of(row[1]) for row in ROWS]
    udfs = [
        pl.udf(
            tuple(getattr(types, str(argument.dtype)) for argument in arguments),
            name=f"f{number}",
            front_end=name,
        )(function(ROWS[number][0], arguments))
        for number, arguments in enumerate(rows)
    ]
    exported = pl.export(udfs, name="rows", arch="sm_90", emit=["ptx"])
    described = {entry["symbol"]: entry for entry in json.loads(exported.contents["rows.json"])["functions"]}
    machine = Machine(exported.read("ptx").decode())
    results = []
    for number, arguments in enumerate(rows):
        # Narrow integers are passed as words.
        passed = [
            argument.astype(f"{argument.dtype.kind}4") if argument.itemsize < 4 else argument
            for argument in arguments
        ]
        try:
            ((value, _),) = machine.call(f"f{number}", *passed)
        except PtxError as error:
            results.append("stops" if "trap" in str(error) or "assert" in str(error) else f"({error})")
            continue
        result = described[f"f{number}"]["result"]
        dtype = np.dtype(C_TYPES.get(result) or result.removesuffix("_t"))
        results.append(f"{value.reshape(-1)[: dtype.itemsize].view(dtype)[0]} ({dtype})")
    return results


def table() -> str:
    """Return the table of all rows."""
    columns = [executed(name) for name in front_ends.NAMES]
    lines = list(HEAD)
    for (expression, assignments, *_, issue), *values in zip(ROWS, *columns, strict=True):
        cells = (f"`{expression}`", assignments, python(expression, assignments), *values, issue)
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join((*lines, ""))


@front_ends.MLIR_06
@pytest.mark.filterwarnings("ignore")
def test_the_page_shows_what_is_computed():
    """Each value in the table is the result of the compiled function."""
    for name in front_ends.NAMES:
        pytest.importorskip(name.replace("-", "_"))
    assert table().splitlines() == SHOWN.splitlines()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    PAGE.write_text(f"{BEFORE}<!-- values -->\n{table()}<!-- /values -->{AFTER}")
