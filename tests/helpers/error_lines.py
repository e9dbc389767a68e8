"""Where functions raise, in their source and by what an export tells about itself."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numba_ptxlink as pl
from numba_ptxlink._formats.ptx import parse


def line_of(function, text) -> str:
    """Return the place of the line that holds *text* in *function*, as headers spell it."""
    function = getattr(function, "py_func", getattr(function, "function", function))
    lines, first = inspect.getsourcelines(function)
    (number,) = (first + number for number, line in enumerate(lines) if text in line)
    return f"{Path(function.__code__.co_filename).name}:{number}"


def sites(udf, folder, front_end) -> tuple[list[str], str]:
    """Return what manifest and header of an export say about errors."""
    exported = pl.export([udf], folder, arch="sm_90", emit=["ptx"], front_end=front_end)
    (function,) = json.loads(exported.manifest.read_text())["functions"]
    assert udf.options.checked is function["checked"]
    lines = exported.header.read_text().splitlines()
    return function["raises"], next((line for line in lines if "it raises" in line), "")


def traps_of(udfs, folder, arch, **options) -> dict[str, bool]:
    """Return whether each of *udfs* traps in the PTX of their export, by name."""
    exported = pl.export(udfs, folder, arch=[arch], emit=["ptx"], name="traps", **options)
    text = exported.artifacts["ptx", arch].read_text()
    module = parse(text)
    functions = {each.name: module.text[each.start : each.end] for each in module.functions if each.defined}
    assert {udf.name for udf in udfs} == functions.keys()
    return {udf.name: "trap;" in functions[udf.name] for udf in udfs}
