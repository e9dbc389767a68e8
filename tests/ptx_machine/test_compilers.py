"""
What the compilers compute where they differ, executed, against the table in the documentation.

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


def arguments_of(given: str) -> list[np.ndarray]:
    """Return the arguments x and y of an expression, such as "x = int32 -1, y = uint32 1"."""
    spelled = [each.split() for each in given.split(", ")]
    return [np.array([value], ty) for _, _, ty, value in spelled]


def function(expression: str, arguments: list[np.ndarray]) -> Any:
    """Return the Python function of an expression."""
    return eval(f"lambda {', '.join('xy'[: len(arguments)])}: {expression}", {"math": math})  # noqa: S307 - our own page


def python(expression: str, given: str) -> str:
    """Return what Python computes."""
    arguments = arguments_of(given)
    try:
        return str(function(expression, arguments)(*(each.item() for each in arguments)))
    except (ZeroDivisionError, ValueError) as error:
        return type(error).__name__


def executed(name: str) -> list[str]:
    """Return what the functions of all rows return that the front end *name* compiled."""
    types = front_ends.get(name).types
    given = [arguments_of(row[1]) for row in ROWS]
    udfs = [
        pl.udf(
            tuple(getattr(types, str(each.dtype)) for each in arguments), name=f"f{number}", front_end=name
        )(function(ROWS[number][0], arguments))
        for number, arguments in enumerate(given)
    ]
    made = pl.export(udfs, name="rows", arch="sm_90", emit=["ptx"])
    described = {each["symbol"]: each for each in json.loads(made.contents["rows.json"])["functions"]}
    machine = Machine(made.read("ptx").decode())
    found = []
    for number, arguments in enumerate(given):
        # Narrow integers are passed as words.
        passed = [each.astype(f"{each.dtype.kind}4") if each.itemsize < 4 else each for each in arguments]
        try:
            ((value, _),) = machine.call(f"f{number}", *passed)
        except PtxError as error:
            found.append("stops" if "trap" in str(error) or "assert" in str(error) else f"({error})")
            continue
        result = described[f"f{number}"]["result"]
        dtype = np.dtype(C_TYPES.get(result) or result.removesuffix("_t"))
        found.append(f"{value.reshape(-1)[: dtype.itemsize].view(dtype)[0]} ({dtype})")
    return found


def table() -> str:
    """Return the table of all rows."""
    columns = [executed(name) for name in front_ends.NAMES]
    lines = list(HEAD)
    for (expression, given, *_, issue), *values in zip(ROWS, *columns, strict=True):
        cells = (f"`{expression}`", given, python(expression, given), *values, issue)
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join((*lines, ""))


@front_ends.MLIR_06
@pytest.mark.filterwarnings("ignore")
def test_the_page_shows_what_is_computed():
    """Each value in the table is what the compiled function returns."""
    for name in front_ends.NAMES:
        pytest.importorskip(name.replace("-", "_"))
    assert table().splitlines() == SHOWN.splitlines()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    PAGE.write_text(f"{BEFORE}<!-- values -->\n{table()}<!-- /values -->{AFTER}")
