"""Find the lines at which functions raise, in their source and in an export."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numba_ptxlink as pl


def line_of(function, text) -> str:
    """Return the place of the line that holds *text* in *function*, as headers spell it."""
    function = getattr(function, "py_func", getattr(function, "function", function))
    lines, first = inspect.getsourcelines(function)
    (number,) = (first + number for number, line in enumerate(lines) if text in line)
    return f"{Path(function.__code__.co_filename).name}:{number}"


def sites(udf, folder, front_end) -> tuple[list[str], str]:
    """Return the entries about errors in the manifest and the header of an export."""
    exported = pl.export([udf], folder, arch="sm_90", emit=["ptx"], front_end=front_end)
    (function,) = json.loads(exported.manifest.read_text())["functions"]
    assert udf.abi_options.checked is function["checked"]
    lines = exported.header.read_text().splitlines()
    return function["raises"], next((line for line in lines if "it raises" in line), "")
