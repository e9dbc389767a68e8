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
    exported = pl.export([udf], folder, archs=["sm_90"], emit=["ptx"], front_end=front_end)
    (function,) = json.loads(exported.manifest.read_text())["functions"]
    assert udf.options.checked is function["checked"]
    lines = exported.header.read_text().splitlines()
    return function["raises"], next((line for line in lines if "it raises" in line), "")


def modes(function, folder, front_end) -> list[bool]:
    """Return whether a function that is exported lax, strict and lax again traps in each of these."""
    udfs = [
        pl.udf("int32(int32, int32)", name=name, checked=checked, on_error="trap")(function)
        for name, checked in (("lax", False), ("strict", True), ("lax_too", False))
    ]
    return [*traps_of(udfs, folder, "sm_90", front_end=front_end).values()]


def trapping(signature, function, folder, arch, **options) -> dict[tuple[str, bool], bool]:
    """Return whether a function traps, by `on_error` and `checked`, which differ within one export."""
    modes = {
        f"{on_error}_{checked}": (on_error, checked)
        for on_error in ("zero", "trap")
        for checked in (False, True)
    }
    udfs = [
        pl.udf(signature, name=name, on_error=on_error, checked=checked)(function)
        for name, (on_error, checked) in modes.items()
    ]
    traps = traps_of(udfs, folder, arch, **options)
    return {mode: traps[name] for name, mode in modes.items()}


def traps_of(udfs, folder, arch, **options) -> dict[str, bool]:
    """Return whether each of *udfs* traps in the PTX of their export, by name."""
    exported = pl.export(udfs, folder, archs=[arch], emit=["ptx"], name="traps", **options)
    text = exported.artifacts["ptx", arch].read_text()
    module = parse(text)
    functions = {each.name: module.text[each.start : each.end] for each in module.functions if each.defined}
    assert {udf.name for udf in udfs} == functions.keys()
    return {udf.name: "trap;" in functions[udf.name] for udf in udfs}
