"""
Refuse symbols that are of different kinds, or lie in different memory, in two inputs of a link.

nvlink refuses them, be they defined, weak or only declared. nvJitLink links them, with a note on stderr at
most, or the process ends in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.kinds import PTX
from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numba_ptxlink._formats.symbol import Symbol

    from .inputs import Input
    from .symbols import Table

_MOST = 5
_SPELLED = {
    "func": "a device function",
    "entry": "a kernel (__global__)",
    "variable": "a variable",
    "global": "a variable in global memory (__device__)",
    "managed": "a managed variable (__managed__)",
    "const": "a variable in constant memory (__constant__)",
    "shared": "a variable in shared memory (__shared__)",
}

Entry = tuple[int, "Symbol"]


def found(several: Mapping[str, Sequence[Entry]], inputs: Sequence[Input]) -> dict[str, tuple[Entry, Entry]]:
    """
    Return two entries that contradict each other for each symbol that has such, a declaration first.

    Args:
        several: The symbols that occur more than once, each with the indices of its inputs.
        inputs: The inputs of the link.
    """
    pairs = {}
    for name, entries in several.items():
        forms: dict[tuple[str, str], Entry] = {}
        for number, symbol in entries:
            forms.setdefault((symbol.kind, symbol.space), (number, symbol))
        if len(forms) == 1:
            continue
        used = [entry for entry in forms.values() if _is_used(entry, inputs)]
        pair = next(((one, two) for one in used for two in used if _differ(one[1], two[1])), None)
        if pair is not None:
            one, two = sorted(pair, key=lambda entry: entry[1].defined)
            pairs[name] = one, two
    return pairs


def check(several: Mapping[str, Sequence[Entry]], tables: Sequence[Table], inputs: Sequence[Input]) -> None:
    """
    Refuse contradictions.

    Raises:
        LinkError: There are some. Says of each what both inputs take the symbol for, and the cure.
    """
    pairs = found(several, inputs)
    if not pairs:
        return
    lines = [
        f"{name} is {_told(one, tables)}, and {_told(two, tables)}."
        for name, (one, two) in list(pairs.items())[:_MOST]
    ]
    if len(pairs) > _MOST:
        lines.append(f"... and {len(pairs) - _MOST} more.")
    numbers = [number for pair in pairs.values() for number, _ in pair]
    raise LinkError(
        "\n".join(lines) + "\nThe code of one would use what the other has as something else. Declare the "
        "symbol as it is defined, or rename one of the two.",
        inputs=tuple(dict.fromkeys(tables[number].name for number in numbers)),
    )


def _differ(one: Symbol, two: Symbol) -> bool:
    return one.kind != two.kind or bool(one.space and two.space and one.space != two.space)


def _is_used(entry: Entry, inputs: Sequence[Input]) -> bool:
    """Return whether the code of an input has the symbol: ptxas drops functions that are only declared."""
    number, symbol = entry
    if symbol.defined or symbol.kind == "variable" or inputs[number].kind != PTX:
        return True
    module = inputs[number].module
    bodies = (statement for function in module.functions for statement in ptx.flattened(function.body))
    aliases = (item for item in module.items if isinstance(item, ptx.Alias))
    return any(symbol.name in ptx.names(node) for node in (*bodies, *module.variables, *aliases))


def _told(entry: Entry, tables: Sequence[Table]) -> str:
    table, symbol = tables[entry[0]], entry[1]
    kind = symbol.space or symbol.kind
    where = f"{table.name}:{symbol.line}" if symbol.line and table.kind == PTX else table.name
    return f"{_SPELLED.get(kind, f'a {kind}')}, {'defined' if symbol.defined else 'declared'} in {where}"
