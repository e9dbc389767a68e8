"""Refuse symbols with several definitions, and variables of several sizes, which nvJitLink links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import containers
from numba_ptxlink._formats.demangle import demangled
from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink.errors import LinkError

from . import merge

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.symbol import Symbol

    from .inputs import Input
    from .symbols import Table


def check_definitions(
    several: dict[str, list[tuple[int, Symbol]]],
    tables: Sequence[Table],
    inputs: Sequence[Input],
    arch: Arch,
) -> set[str]:
    """
    Return the functions of *several* that have equal definitions in PTX, which a linker may merge.

    Raises:
        LinkError: A symbol has several definitions.
    """
    merged: set[str] = set()
    for name, entries in several.items():
        strong = [(number, symbol) for number, symbol in entries if symbol.defined and not symbol.weak]
        if len(strong) < 2 or _left_to_linker(strong, inputs, arch):
            continue
        sources = [inputs[number] for number, _ in strong]
        all_ptx = all(source.kind == PTX for source in sources) and strong[0][1].kind != "variable"
        if all_ptx and merge.same((source.module for source in sources), name):
            merged.add(name)
            continue
        places = [_place(entry, tables) for entry in strong]
        unsure = {inputs[number].kind for number, symbol in strong if symbol.common is None}
        ltoir = any(source.kind == LTOIR for source in sources)
        raise LinkError(
            several_definitions(name, places, unsure=unsure, ltoir=ltoir),
            inputs=tuple(source.name for source in sources),
        )
    return merged


def several_definitions(
    name: str, places: Sequence[str], *, unsure: Collection[str] = (), ltoir: bool
) -> str:
    """
    Return the message that *name* is defined in each of *places*.

    Args:
        name: The symbol.
        places: The inputs, with lines where they have them.
        unsure: The kinds of those inputs that do not tell whether it is a common symbol.
        ltoir: Whether one of them is LTO-IR.
    """
    spelled = f"{demangled(name)} ({name})" if demangled(name) else name
    # What Python names so is no name of C++.
    rename = (
        "" if demangled(name) else " (of Python: name= of udf, abi_info={'abi_name': ...} of cuda.compile)"
    )
    # PTX and cubins of an export keep what is not exported to themselves.
    cure = "; of exports, link PTX or cubins" if ltoir else ""
    what = (
        f"{spelled} is defined {len(places)} times, differently, with variables of its own or where it "
        f"cannot be compared: {', '.join(places)}. Which one a call reaches would depend on the order of the "
        f"inputs. Rename one{rename}, leave one out, make it static, or mark it weak (inline in C++){cure}."
    )
    if ltoir:
        what += (
            " What link= of a Python function names is part of its code: drop it there, or among the inputs."
        )
    if CUBIN in unsure:
        what += (
            " If it was .common in the PTX, a relocatable link has made a definition of it: give what that "
            "linked."
        )
    elif unsure:
        what += (
            " Link-time optimisation may keep a common symbol of LTO-IR apart from definitions in other "
            "inputs: give all of them as LTO-IR, or none."
        )
    return what


def _left_to_linker(strong: list[tuple[int, Symbol]], inputs: Sequence[Input], arch: Arch) -> bool:
    """Return whether LLVM's linker, which merges common symbols and refuses definitions, sees all of them."""
    return any(symbol.common is None for _, symbol in strong) and all(
        containers.holds_ltoir(inputs[number].code, inputs[number].kind, inputs[number].name, arch)
        for number, _ in strong
    )


def check_sizes(several: dict[str, list[tuple[int, Symbol]]], tables: Sequence[Table]) -> None:
    """Refuse variables of several sizes: code that takes one for larger than it is writes past its end."""
    for name, entries in several.items():
        sized = [(number, symbol) for number, symbol in entries if symbol.size]
        fixed = [(number, symbol) for number, symbol in sized if symbol.common is False]
        # A common symbol becomes as large as the largest, but not larger than a definition.
        largest = max(sized, key=lambda pair: pair[1].size, default=None)
        if not fixed or largest is None or all(symbol.size == largest[1].size for _, symbol in fixed):
            continue
        smallest = min(fixed, key=lambda pair: pair[1].size)
        raise LinkError(
            f"{name} has {largest[1].size} bytes in {_place(largest, tables)} and {smallest[1].size} bytes "
            f"in {_place(smallest, tables)}. Declare it with the same type and length in all inputs.",
            inputs=tuple(dict.fromkeys((tables[largest[0]].name, tables[smallest[0]].name))),
        )


def _place(entry: tuple[int, Symbol], tables: Sequence[Table]) -> str:
    table, symbol = tables[entry[0]], entry[1]
    return f"{table.name}:{symbol.line}" if table.kind == PTX and symbol.line else table.name
