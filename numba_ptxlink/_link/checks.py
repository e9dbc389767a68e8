"""
The mistakes in a link that nvJitLink accepts without a word or explains badly, found before it is called.

nvJitLink links mismatched prototypes and two definitions of one symbol as if nothing were wrong, and what
comes out computes wrong results or stops the process. So the inputs' symbols are read and compared first.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from numba_ptxlink._formats import containers, elf
from numba_ptxlink._formats.kinds import ARCHIVE, CUBIN, LTOIR, PTX
from numba_ptxlink._formats.ptx.isa import sure_isa
from numba_ptxlink.errors import LinkError

from . import merge, symbols

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Param, Prototype

    from .inputs import Input
    from .symbol_tables import Symbol
    from .symbols import Table

log = logging.getLogger(__name__)

# Bytes of LTO-IR that are compiled for its symbols by default, of all inputs together: 15 to 50 ms, once for
# a content, beside a link of 25 to 90. 14 kB take as long as their link, 97 kB over four times as long.
SMALL = 8 << 10
# Bytes of a fat binary, object or library that is read by default. One of 7 MB took as long as its link.
READABLE = 1 << 20
# Seen to pass structs of 184 bytes and more wrongly, which 13.1 to 13.5 pass right.
LOSES_STRUCTS = (13, 0)
_LARGE = 128
_MOST = 5


@dataclass(frozen=True)
class Findings:
    """
    What the checks leave for the linker.

    Args:
        inputs: The inputs to link, equal ones once and equal definitions made weak.
        tables: The symbols of each.
        merged: The symbols of which one definition was kept out of several equal ones.
    """

    inputs: tuple[Input, ...]
    tables: tuple[Table, ...]
    merged: tuple[str, ...]


def check(
    inputs: Sequence[Input],
    arch: Arch,
    linker: tuple[int, int],
    package: str,
    *,
    lto: bool = False,
    checks: str = "cheap",
) -> Findings:
    """
    Refuse what the linker crashes or loses its senses on, and compare *inputs* with one another.

    What it refuses soundly is left to it, and explained by `explain.cure`: whether LTO-IR is too new, or PTX
    and LTO-IR are for another architecture, is the linker's to say.

    Args:
        inputs: What is to be linked, none of it CUDA C++.
        arch: The architecture of the link.
        linker: nvJitLink's version.
        package: The package to upgrade where nvJitLink is too old.
        lto: Whether the link optimises.
        checks: "all"; "cheap", which compiles nothing large for its symbols; or "none", which compares
            nothing.

    Raises:
        LinkError: The link cannot be right. Names symbols, inputs and the cure.
    """
    distinct = tuple(inputs) if checks == "none" else _once(inputs)
    for each in distinct:
        containers.check_whole(each.kind, each.code, each.name, arch)
        _check_version(each, linker, package)
        _check_machine(each, arch)
    if len(distinct) == 1 or checks == "none":
        return Findings(distinct, (), ())
    tables = _tables(distinct, arch, lto=lto, checks=checks)
    several = _several(tables)
    _check_prototypes(several, tables)
    _warn_of_large_structs(several, tables, linker, package)
    merged = _check_definitions(several, tables, distinct)
    if merged:
        distinct = tuple(
            replace(each, code=merge.weaken(each.module, merged)) if each.kind == PTX else each
            for each in distinct
        )
    return Findings(distinct, tables, tuple(sorted(merged)))


def _tables(inputs: Sequence[Input], arch: Arch, *, lto: bool, checks: str) -> tuple[Table, ...]:
    left = _left_out(inputs, checks)
    tables = [
        symbols.Table(each.name, each.kind, None)
        if _is_runtime(each) or (number in left and len(each.code) > READABLE)
        else symbols.table(each, arch, lto=lto, deep=False)
        for number, each in enumerate(inputs)
    ]
    rest = [
        number
        for number, table in enumerate(tables)
        if table.symbols is None and number not in left and not _is_runtime(inputs[number])
    ]
    # One alone has nothing to be compared with.
    if len(rest) + sum(table.symbols is not None for table in tables) > 1:
        for number in rest:
            tables[number] = symbols.table(inputs[number], arch, lto=lto)
    return tuple(tables)


def unread(inputs: Sequence[Input], checks: str) -> tuple[str, ...]:
    """Return which of *inputs*, counted from 1, the checks may leave out: what they find depends on it."""
    if len(_once(inputs)) == 1:
        return ()
    if checks == "none":
        return ("all",)
    return tuple(str(number + 1) for number in sorted(_left_out(inputs, checks)))


def _left_out(inputs: Sequence[Input], checks: str) -> set[int]:
    """Return the numbers of the inputs that are not compiled, where nothing else may tell their symbols."""
    needing = [
        (len(each.code), number)
        for number, each in enumerate(inputs)
        if each.kind not in (PTX, CUBIN) and not each.witness and not _is_runtime(each)
    ]
    if checks == "all":
        return set()
    left, total = set(), 0
    for size, number in sorted(needing):
        total += size
        if total > SMALL:
            left.add(number)
    return left


def _several(tables: Sequence[Table]) -> dict[str, list[tuple[int, Symbol]]]:
    """Return the symbols that more than one table has, each with the number of its table."""
    occurrences: dict[str, list[tuple[int, Symbol]]] = defaultdict(list)
    for number, table in enumerate(tables):
        # The members of a library too: nvJitLink links all of them, asked for or not.
        for symbol in table.symbols or ():
            occurrences[symbol.name].append((number, symbol))
    return {name: found for name, found in occurrences.items() if len(found) > 1}


def _once(inputs: Sequence[Input]) -> tuple[Input, ...]:
    """Leave out an input that holds what another one holds already."""
    found: dict[tuple[str, bytes], Input] = {}
    for each in inputs:
        found.setdefault((each.kind, each.code), each)
    return tuple(found.values())


def _is_runtime(source: Input) -> bool:
    # 5 ms to read, and nobody else defines what it does.
    return "cudadevrt" in source.name


def _check_version(source: Input, linker: tuple[int, int], package: str) -> None:
    """Refuse PTX that is too new: once nvJitLink has, it links undefined references from then on."""
    declared = source.header.version if source.kind == PTX else None
    newest = sure_isa(linker)
    if declared is not None and newest is not None and declared > newest:
        raise LinkError(
            f"{source.name} is PTX {declared}, and nvJitLink {dotted(linker)} reads {newest} at most; "
            f"upgrade it with `pip install --upgrade {package}`, or generate the input with an older "
            "toolkit.",
            inputs=(source.name,),
        )


def _check_machine(source: Input, arch: Arch) -> None:
    """Refuse machine code for other GPUs: once nvJitLink has, every other thread waits for ever in it."""
    if source.kind != CUBIN:
        return
    try:
        sm = elf.read(source.code, source.name).sm
    except elf.UnfamiliarError:
        return
    major, minor = divmod(sm, 10)
    # Machine code runs on its own generation's GPUs from its own on; sm_101 is an older name of sm_110.
    if (major == arch.major and minor <= arch.minor) or {sm, arch.number} == {101, 110}:
        return
    raise LinkError(
        f"{source.name} holds machine code for sm_{sm}, which does not run on {arch.sm}, the architecture of "
        f"this link; generate it for {arch.sm}, or link for its own.",
        inputs=(source.name,),
    )


def dotted(version: tuple[int, int]) -> str:
    """Return a release as text, such as "13.5"."""
    return f"{version[0]}.{version[1]}"


def _check_prototypes(several: dict[str, list[tuple[int, Symbol]]], tables: Sequence[Table]) -> None:
    complaints = []
    names: list[str] = []
    for name, found in several.items():
        told = sorted(
            ((number, each) for number, each in found if each.prototype is not None),
            key=lambda pair: not pair[1].defined,
        )
        if not told:
            continue
        first_number, first = told[0]
        for number, other in told[1:]:
            if not _agree(first.prototype, other.prototype):
                complaints.append(
                    f"{name} has two prototypes:\n"
                    f"    {_told(first, tables[first_number])}\n    {_told(other, tables[number])}"
                )
                names += [tables[first_number].name, tables[number].name]
                break
    if complaints:
        raise LinkError(
            "\n".join(complaints[:_MOST])
            + "\nA call across them would pass wrong values. Make the declaration agree with the definition: "
            "the types and their order, the result, and for structs the size and alignment.",
            inputs=tuple(dict.fromkeys(names)),
        )


def _warn_of_large_structs(
    several: dict[str, list[tuple[int, Symbol]]],
    tables: Sequence[Table],
    linker: tuple[int, int],
    package: str,
) -> None:
    if linker != LOSES_STRUCTS:
        return
    for name, found in several.items():
        told = [each.prototype for _, each in found if each.prototype]
        sizes = [param.size for each in told for param in (*each.params, each.result) if param]
        # With LTO on both sides there is no call left to pass anything.
        if max(sizes, default=0) > _LARGE and any(tables[number].kind != LTOIR for number, _ in found):
            log.warning(
                "%s takes or returns a struct of %d bytes, and nvJitLink %s passes some above %d wrongly; "
                "upgrade it with `pip install --upgrade %s`, link LTO-IR, or pass a pointer",
                name,
                max(sizes),
                dotted(linker),
                _LARGE,
                package,
            )


def _told(symbol: Symbol, table: Table) -> str:
    where = f"{table.name}:{symbol.line}" if symbol.line and table.kind == PTX else table.name
    return f"{symbol.prototype}  {'defined' if symbol.defined else 'declared'} in {where}"


def _agree(one: Prototype | None, other: Prototype | None) -> bool:
    if one is None or other is None:
        return True
    if (one.result is None) != (other.result is None) or len(one.params) != len(other.params):
        return False
    if one.result is not None and other.result is not None and not _alike(one.result, other.result):
        return False
    return all(
        # The alignment decides in which register a parameter starts; machine code does not tell it.
        _alike(mine, yours) and (mine.align == yours.align or not mine.align or not yours.align)
        for mine, yours in zip(one.params, other.params, strict=True)
    )


def _alike(mine: Param, yours: Param) -> bool:
    return (mine.bits, mine.size, mine.floating) == (yours.bits, yours.size, yours.floating)


def _check_definitions(
    several: dict[str, list[tuple[int, Symbol]]], tables: Sequence[Table], inputs: Sequence[Input]
) -> set[str]:
    merged: set[str] = set()
    for name, found in several.items():
        strong = [
            (number, each)
            for number, each in found
            # A library gives only what nobody else defines.
            if each.defined and not each.weak and tables[number].kind != ARCHIVE
        ]
        if len(strong) < 2:
            continue
        sources = [inputs[number] for number, _ in strong]
        texts = all(each.kind == PTX for each in sources) and strong[0][1].kind != "variable"
        if texts and merge.same((each.module for each in sources), name):
            merged.add(name)
            continue
        places = ", ".join(
            f"{table.name}:{each.line}" if table.kind == PTX and each.line else table.name
            for table, each in ((tables[number], each) for number, each in strong)
        )
        raise LinkError(
            f"{name} is defined {len(strong)} times, differently or where it cannot be compared: {places}. "
            "Which one a call reaches would depend on the order of the inputs. Rename one, leave one out, "
            "make it static, or mark it weak (inline in C++).",
            inputs=tuple(each.name for each in sources),
        )
    return merged
