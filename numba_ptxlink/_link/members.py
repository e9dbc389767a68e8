"""
Take out of static libraries what a link needs, where a symbol of theirs has several definitions.

nvJitLink links all members of a library, referenced or not. Of two definitions it takes the first, with a
note on stderr and no error, or the process ends in it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from numba_ptxlink._formats import containers
from numba_ptxlink._formats.kinds import ARCHIVE, CUBIN, FATBIN, OBJECT, recognise

from . import symbols
from .device_runtime import is_runtime
from .inputs import Input

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numba_ptxlink._arch import Arch

    from .symbols import Table

log = logging.getLogger(__name__)


def opened(
    inputs: Sequence[Input],
    tables: Sequence[Table],
    arch: Arch,
    *,
    lto: bool,
    contradicting: Collection[int] = (),
) -> tuple[tuple[Input, ...], tuple[Table, ...]] | None:
    """
    Return *inputs* and *tables* with needed members in place of libraries that repeat or contradict others.

    A member is needed if it has a kernel, or defines what an input or a needed member references and no
    input defines; whatever the order. All are, where an input's references are not known or all inputs are
    libraries.

    Args:
        inputs: The inputs of the link.
        tables: Their symbols.
        arch: The architecture of the link.
        lto: Whether the link optimises.
        contradicting: The indices of inputs with a symbol that an input has as something else.

    Returns:
        The inputs and their symbols; None where no library repeats a definition or contradicts an input.
    """
    libraries = _repeating(tables)
    libraries |= {number for number in contradicting if tables[number].kind == ARCHIVE}
    if not libraries:
        return None
    seen = {source.code for number, source in enumerate(inputs) if number not in libraries}
    parts = [
        _members(source, arch, seen, lto=lto) if number in libraries else [(source, table)]
        for number, (source, table) in enumerate(zip(inputs, tables, strict=True))
    ]
    whole = [pair for number, part in enumerate(parts) if number not in libraries for pair in part]
    candidates = [pair for number in sorted(libraries) for pair in parts[number]]
    known = all(table.symbols is not None or is_runtime(source) for source, table in (*whole, *candidates))
    everything = not known or all(source.kind == ARCHIVE for source in inputs)
    needed = candidates if everything else _needed(whole, candidates)
    left_out = [source.name for source, table in candidates if (source, table) not in needed]
    if left_out:
        log.info("not linked, as nothing references them: %s", ", ".join(left_out))
    pairs = [
        pair
        for number, part in enumerate(parts)
        for pair in part
        if number not in libraries or pair in needed
    ]
    return tuple(source for source, _ in pairs), tuple(table for _, table in pairs)


def _repeating(tables: Sequence[Table]) -> set[int]:
    """Return the indices of the libraries that define, not weakly, what is defined elsewhere too."""
    owners: dict[str, set[int]] = {}
    found: set[int] = set()
    for number, table in enumerate(tables):
        for symbol in table.symbols or ():
            if symbol.defined and not symbol.weak:
                owners.setdefault(symbol.name, set()).add(number)
            if symbol.repeated:
                found.add(number)
    found.update(*(numbers for numbers in owners.values() if len(numbers) > 1))
    return {number for number in found if tables[number].kind == ARCHIVE}


def _members(source: Input, arch: Arch, seen: set[bytes], *, lto: bool) -> list[tuple[Input, Table]]:
    """Return the members of *source* whose content is not in *seen*, and add it there."""
    found = []
    for title, content in containers.members(source.code, source.name):
        kind = recognise(content)
        # The others are the library's own tables.
        if kind in (OBJECT, FATBIN, CUBIN) and content not in seen:
            seen.add(content)
            member = Input(kind, f"{source.name}({title})", content)
            found.append((member, symbols.table(member, arch, lto=lto, deep=False)))
    return found


def _needed(
    whole: Collection[tuple[Input, Table]], candidates: Collection[tuple[Input, Table]]
) -> list[tuple[Input, Table]]:
    taken = [(source, table) for source, table in candidates if _has_kernel(table)]
    provided = {symbol.name for _, table in whole for symbol in table.symbols or () if symbol.defined}
    while True:
        wanted = {
            symbol.name
            for _, table in (*whole, *taken)
            for symbol in table.symbols or ()
            if not symbol.defined and symbol.name not in provided
        }
        more = [pair for pair in candidates if pair not in taken and _defines(pair[1], wanted)]
        if not more:
            return taken
        taken += more


def _has_kernel(table: Table) -> bool:
    return any(symbol.kind == "entry" and symbol.defined for symbol in table.symbols or ())


def _defines(table: Table, wanted: Collection[str]) -> bool:
    return any(symbol.defined and symbol.name in wanted for symbol in table.symbols or ())
