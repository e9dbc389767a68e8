"""
Detect errors that nvJitLink does not report, or reports unclearly, before it is called.

nvJitLink links mismatched prototypes and two definitions of one symbol without an error, and the cubin
computes wrong results or stops the process. So the inputs' symbols are read and compared first.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from numba_ptxlink._arch import dotted
from numba_ptxlink._formats import containers, elf
from numba_ptxlink._formats.kinds import ARCHIVE, CUBIN, LTOIR, PTX
from numba_ptxlink._formats.ptx.isa import sure_isa
from numba_ptxlink._tools import nvjitlink, nvvm, packages
from numba_ptxlink.errors import LinkError

from . import contradictions, ltoir_symbols, members, merge, symbols
from .definitions import check_definitions, check_sizes
from .device_runtime import is_runtime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Param, Prototype
    from numba_ptxlink._formats.symbol import Symbol

    from .inputs import Input
    from .symbols import Table

log = logging.getLogger(__name__)

# Bytes of LTO-IR, over all inputs, that are compiled by default to read its symbols: 15 to 50 ms, once per
# content, while a link takes 25 to 90 ms. 14 kB take as long as their link, 97 kB over four times as long.
SMALL = 8 << 10
# Largest fat binary, object or library in bytes that is read by default: 7 MB took as long as their link.
READABLE = 1 << 20
# This release was observed to pass structs of 184 bytes and more wrongly; 13.1 to 13.5 pass them correctly.
LOSES_STRUCTS = (13, 0)
_LARGE = 128
_PTX_OF_CUDA_13 = 9
_MOST = 5
_SPELT = "\n    CUDA's compilers declare floating point as .b32 and .b64: write it so in PTX of others."
# Sections of variables that may be written; those of relocatable code have "debug" in their names.
_STATE = re.compile(r"\.nv\.global|\.nv(_debug)?\.shared(?!\.reserved)")


@dataclass(frozen=True)
class Findings:
    """
    The inputs to link after the checks.

    Args:
        inputs: The inputs to link, without duplicates, and with equal definitions made weak.
        merged: The symbols with several equal definitions, of which the linker keeps one.
    """

    inputs: tuple[Input, ...]
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
    Refuse inputs that crash nvJitLink or corrupt its state, and compare the symbols of *inputs*.

    Errors that nvJitLink reports safely are left to it, and explained by `explain.cure`: LTO-IR that is too
    new, and PTX or LTO-IR for another architecture.

    Args:
        inputs: The inputs of the link, none of them CUDA C++.
        arch: The architecture of the link.
        linker: nvJitLink's version.
        package: The package to upgrade where nvJitLink is too old.
        lto: Whether the link optimises.
        checks: "all"; "cheap", which compiles no large input to read its symbols; or "none", which
            compares nothing.

    Raises:
        LinkError: The inputs contradict each other, or nvJitLink cannot link one of them. Names symbols,
            inputs and the cure.
    """
    distinct = tuple(inputs) if checks == "none" else _once(inputs)
    for source in distinct:
        containers.check_whole(source.kind, source.code, source.name, arch)
        _check_version(source, linker, package)
        _check_machine(source, arch)
    alone = len(distinct) == 1 and distinct[0].kind != ARCHIVE
    if alone or checks == "none":
        return Findings(distinct, ())
    tables = _tables(distinct, arch, lto=lto, checks=checks)
    several = _several(tables)
    _compare(several, tables)
    _warn_of_large_structs(several, tables, linker, package)
    contradicting = {
        number for pair in contradictions.found(several, distinct).values() for number, _ in pair
    }
    opened = members.opened(distinct, tables, arch, lto=lto, contradicting=contradicting)
    if opened is not None:
        distinct, tables = opened
        several = _several(tables)
    contradictions.check(several, tables, distinct)
    merged = check_definitions(several, tables, distinct, arch)
    check_sizes(several, tables)
    if merged:
        distinct = tuple(
            replace(source, code=merge.weaken(source.module, merged)) if source.kind == PTX else source
            for source in distinct
        )
    return Findings(distinct, tuple(sorted(merged)))


def _tables(inputs: Sequence[Input], arch: Arch, *, lto: bool, checks: str) -> tuple[Table, ...]:
    skipped = _left_out(inputs, checks)
    tables = [
        symbols.Table(source.name, source.kind, None)
        if is_runtime(source) or (number in skipped and len(source.code) > READABLE)
        else symbols.table(source, arch, lto=lto, deep=False)
        for number, source in enumerate(inputs)
    ]
    unread_numbers = [
        number
        for number, table in enumerate(tables)
        if table.symbols is None and number not in skipped and not is_runtime(inputs[number])
    ]
    # A single table has nothing to be compared with.
    if len(unread_numbers) + sum(table.symbols is not None for table in tables) > 1:
        for number in unread_numbers:
            tables[number] = symbols.table(inputs[number], arch, lto=lto)
    silent = [number for number in unread_numbers if tables[number].symbols is None]
    silent = [number for number in silent if inputs[number].kind == LTOIR]
    if silent and not _makes_relocatable():
        read = ltoir_symbols.tables([inputs[number] for number in silent], tables, arch)
        for number, table in zip(silent, read, strict=True):
            tables[number] = table
    if checks == "all":
        _warn_of_unread(inputs, tables)
    return tuple(tables)


def _makes_relocatable() -> bool:
    try:
        return nvjitlink.makes_relocatable()
    except LinkError:  # pynvjitlink links, and nvJitLink itself is missing
        return True


def _warn_of_unread(inputs: Sequence[Input], tables: Sequence[Table]) -> None:
    names = [
        table.name
        for source, table in zip(inputs, tables, strict=True)
        if table.symbols is None and not is_runtime(source)
    ]
    if names:
        log.warning(
            "not compared with the other inputs: %s, whose symbols nothing here can read", ", ".join(names)
        )


def unread(inputs: Sequence[Input], checks: str) -> tuple[str, ...]:
    """Return the numbers, from 1, of the *inputs* that the checks may skip; "all" for all of them."""
    if len(_once(inputs)) == 1:
        return ()
    if checks == "none":
        return ("all",)
    return tuple(str(number + 1) for number in sorted(_left_out(inputs, checks)))


def _left_out(inputs: Sequence[Input], checks: str) -> set[int]:
    """Return the indices of the inputs too large to compile just to read their symbols."""
    sizes = [
        (len(source.code), number)
        for number, source in enumerate(inputs)
        if source.kind not in (PTX, CUBIN) and not source.witness and not is_runtime(source)
    ]
    if checks == "all":
        return set()
    skipped, total = set(), 0
    for size, number in sorted(sizes):
        total += size
        if total > SMALL:
            skipped.add(number)
    return skipped


def _several(tables: Sequence[Table]) -> dict[str, list[tuple[int, Symbol]]]:
    """Return the symbols that occur more than once, each with the index of its table."""
    occurrences: dict[str, list[tuple[int, Symbol]]] = defaultdict(list)
    for number, table in enumerate(tables):
        # Members of a library count too: nvJitLink links all of them, referenced or not.
        for symbol in table.symbols or ():
            occurrences[symbol.name].append((number, symbol))
    return {name: entries for name, entries in occurrences.items() if len(entries) > 1}


def _once(inputs: Sequence[Input]) -> tuple[Input, ...]:
    """Return *inputs* without those that repeat an earlier one, or its content if that has no state."""
    sources: dict[tuple[str, bytes], list[Input]] = {}
    for source in inputs:
        equal = sources.setdefault((source.kind, source.code), [])
        if all(_origin(source) != _origin(other) for other in equal) and not (equal and _is_pure(source)):
            equal.append(source)
    kept = {id(source) for equal in sources.values() for source in equal}
    return tuple(source for source in inputs if id(source) in kept)


def _origin(source: Input) -> str:
    return source.name if source.path is None else str(source.path.resolve())


def _is_pure(source: Input) -> bool:
    """Return whether it makes no difference that there is one copy of *source*, of which there are more."""
    if source.kind == PTX:
        return not merge.has_state(source.module)
    if source.kind != CUBIN:
        # Linkers take of a library what is not there yet.
        return source.kind == ARCHIVE
    try:
        sections = elf.read(source.code, source.name).sections
    except elf.UnfamiliarError:
        return False
    return not any(_STATE.match(section.name) for section in sections)


def _check_version(source: Input, linker: tuple[int, int], package: str) -> None:
    """Refuse PTX that is too new: after refusing it once, nvJitLink accepts undefined references."""
    declared = source.header.version if source.kind == PTX else None
    newest = sure_isa(linker)
    if declared is not None and newest is not None and declared > newest:
        raise LinkError(
            f"{source.name} is PTX {declared}, and nvJitLink {dotted(linker)} reads {newest} at most; "
            + upgrade(linker, package, of_cuda_13=declared.major >= _PTX_OF_CUDA_13),
            inputs=(source.name,),
        )


def upgrade(linker: tuple[int, int], package: str, *, of_cuda_13: bool) -> str:
    """Return the cure for an input that is newer than *linker* reads, which its *package* brings."""
    if of_cuda_13 and linker[0] < 13:
        mixed = nvvm.too_new(linker)
        if mixed:
            return f"no release of CUDA {linker[0]} does. {mixed[0]}, in this environment: {mixed[1]}."
        return (
            f"no release of CUDA {linker[0]} does. Export or compile it with a toolkit of CUDA {linker[0]}, "
            f"or link with CUDA 13's: `{packages.install(13)}` in another environment."
        )
    return f"upgrade it with `pip install --upgrade {package}`, or generate the input with an older toolkit."


def _check_machine(source: Input, arch: Arch) -> None:
    """Refuse machine code for other GPUs: after nvJitLink refuses it, all other threads deadlock in it."""
    if source.kind != CUBIN:
        return
    try:
        sm = elf.read(source.code, source.name).sm
    except elf.UnfamiliarError:
        return
    major, minor = divmod(sm, 10)
    # Machine code runs on its own major architecture, from its own minor on; sm_101 was renamed sm_110.
    if (major == arch.major and minor <= arch.minor) or {sm, arch.number} == {101, 110}:
        return
    raise LinkError(
        f"{source.name} holds machine code for sm_{sm}, which does not run on {arch.sm}, the architecture of "
        f"this link; generate it for {arch.sm}, or link for its own.",
        inputs=(source.name,),
    )


def check_prototypes(tables: Sequence[Table]) -> None:
    """
    Refuse *tables* of symbols in which a function has two prototypes.

    Raises:
        LinkError: One has. Names both, their inputs and the cure.
    """
    _compare(_several(tables), tables)


def _compare(several: dict[str, list[tuple[int, Symbol]]], tables: Sequence[Table]) -> None:
    complaints = []
    names: list[str] = []
    for name, entries in several.items():
        typed = sorted(
            ((number, symbol) for number, symbol in entries if symbol.prototype is not None),
            key=lambda pair: not pair[1].defined,
        )
        if not typed:
            continue
        first_number, first = typed[0]
        for number, other in typed[1:]:
            if not _agree(first.prototype, other.prototype):
                # Equality leaves the spelling of types out.
                cure = _SPELT if first.prototype == other.prototype else ""
                complaints.append(
                    f"{name} has two prototypes:\n"
                    f"    {_told(first, tables[first_number])}\n    {_told(other, tables[number])}{cure}"
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
    for name, entries in several.items():
        prototypes = [symbol.prototype for _, symbol in entries if symbol.prototype]
        sizes = [
            param.size for prototype in prototypes for param in (*prototype.params, prototype.result) if param
        ]
        # Where all sides are LTO-IR, no call remains that passes the struct.
        if max(sizes, default=0) > _LARGE and any(tables[number].kind != LTOIR for number, _ in entries):
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
    pairs = list(zip(one.params, other.params, strict=True))
    if not all(_alike(mine, yours) for mine, yours in pairs):
        return False
    # The alignment decides in which register a parameter starts; machine code does not record it.
    if all(mine.align == yours.align or not mine.align or not yours.align for mine, yours in pairs):
        return True
    # nvcc itself lowers it in the definition of a function that it also clones, and not in declarations.
    registers = one.registers()
    return registers is not None and registers == other.registers()


def _alike(mine: Param, yours: Param) -> bool:
    return (mine.bits, mine.size, mine.floating) == (yours.bits, yours.size, yours.floating)
