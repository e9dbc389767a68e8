"""
Refuse what would be linked wrongly without a word, and what spoils NVIDIA's libraries for this process.

nvJitLink links PTX with two prototypes of a function, two definitions of a symbol, or a variable of two
sizes: there is a line on stderr at most, and the cubin computes wrong results. So PTX is read and compared
before. Every other kind is opaque, and NVIDIA's tools tell what is wrong with it.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from numba_ptxlink import cache
from numba_ptxlink._formats import elf
from numba_ptxlink._formats.kinds import ARCHIVE, CUBIN, PTX, THIN_ARCHIVE
from numba_ptxlink._formats.undefined import may_lack_variables, undefined_variables
from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Param, Prototype
    from numba_ptxlink._formats.symbol import Symbol

    from .read import Input
    from .symbols import Table

    Entry = tuple[str, Symbol]
    """A symbol, after the name of its input."""

log = logging.getLogger(__name__)

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
_HALF = 2
# A parameter that PTX declares as floating point. It lies where bits do, but nvJitLink takes it for another.
_FLOATING = re.compile(rb"(\.param\s+(?:\.align\s+\d+\s+)?)\.f(32|64)\b")


def check(inputs: Sequence[Input], arch: Arch, *, lto: bool, compares: bool = True) -> tuple[Input, ...]:
    """
    Return the inputs to link: each once, with equal definitions in PTX made weak.

    Args:
        inputs: The inputs of the link, none of them CUDA C++.
        arch: The architecture of the link.
        lto: Whether the link optimises.
        compares: Whether PTX is compared; otherwise only what spoils NVIDIA's libraries is refused.

    Raises:
        LinkError: An input is not to be linked, or inputs contradict each other. Names symbols, inputs and
            the cure.
    """
    for source in inputs:
        _refuse_thin_archive(source)
        _refuse_other_machine(source, arch)
    if compares:
        unique: dict[tuple[str, bytes], Input] = {}
        for source in inputs:
            unique.setdefault((source.kind, source.code), source)
        inputs = tuple(unique.values())
    texts = [source for source in inputs if source.kind == PTX]
    merged, respelled = _compared(texts) if compares and len(texts) > 1 else ([], False)
    if len(texts) == len(inputs) and not lto:
        _refuse_undefined_variables(texts)
    if merged:
        from .merge import weaken

        log.info("equal definitions are merged: %s", ", ".join(merged))
        inputs = [
            replace(source, code=weaken(source.module, merged)) if source.kind == PTX else source
            for source in inputs
        ]
    if respelled:
        inputs = [
            replace(source, code=_FLOATING.sub(rb"\1.b\2", source.code)) if source.kind == PTX else source
            for source in inputs
        ]
    return tuple(inputs)


def _compared(texts: Sequence[Input]) -> tuple[list[str], bool]:
    """
    Compare PTX, once for the same content.

    Returns:
        The functions that have several equal definitions, and whether parameters are floating point in one
        input and bits in another.
    """
    key = cache.Key.of(
        "check",
        {
            "package": cache.package_version(),
            "names": [source.name for source in texts],
            "inputs": [source.code for source in texts],
        },
    )

    def make() -> cache.Entry:
        from . import symbols

        tables = [symbols.table(source) for source in texts]
        compare(tables)
        meta = {"merged": sorted(_merged(texts, tables)), "respelled": _spelled_apart(tables)}
        return cache.Entry(meta, b"compared")

    meta = cache.cached(key, make).meta
    return list(meta["merged"]), bool(meta["respelled"])


def _refuse_thin_archive(source: Input) -> None:
    if source.kind == ARCHIVE and source.code.startswith(THIN_ARCHIVE):
        raise LinkError(
            f"{source.name} is a thin archive, which has paths in place of its members; make a common one: "
            "ar rcs.",
            inputs=(source.name,),
        )


def _refuse_other_machine(source: Input, arch: Arch) -> None:
    """Refuse machine code for other GPUs: once nvJitLink refuses it, other threads wait in it for ever."""
    sm = elf.machine(source.code) if source.kind == CUBIN else None
    if sm is None:
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


def _refuse_undefined_variables(texts: Sequence[Input]) -> None:
    """Refuse variables that no PTX defines: compilers of whole programs make new ones of declarations."""
    if not any(may_lack_variables(source.code) for source in texts):
        return
    defined = {
        variable.name
        for source in texts
        for variable in source.module.variables
        if variable.defined and (variable.linkage or len(texts) == 1)
    }
    declared = (name for source in texts for name in undefined_variables(source.module))
    names = [name for name in dict.fromkeys(declared) if name not in defined]
    if names:
        raise LinkError(
            f"{', '.join(source.name for source in texts)}: Undefined reference to "
            f"{', '.join(map(repr, names))}, of which the compiler would make variables of its own.",
            inputs=tuple(source.name for source in texts),
            log="\n".join(f"error   : Undefined reference to '{name}'" for name in names),
        )


def compare(tables: Iterable[Table]) -> None:
    """
    Refuse *tables* of symbols that contradict each other, but for several definitions.

    Raises:
        LinkError: They do. Names symbols, inputs and the cure.
    """
    complaints = []
    names: list[str] = []
    for entries in _several(tables).values():
        complaint = _kinds(entries) or _prototypes(entries) or _sizes(entries)
        if complaint:
            complaints.append(complaint)
            names += [name for name, _ in entries]
    if complaints:
        raise LinkError("\n".join(complaints[:_MOST]), inputs=tuple(dict.fromkeys(names)))


def _several(tables: Iterable[Table]) -> dict[str, list[Entry]]:
    """Return the symbols that occur more than once, each with the names of its inputs."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for table in tables:
        for symbol in table.symbols:
            found[symbol.name].append((table.name, symbol))
    return {name: entries for name, entries in found.items() if len(entries) > 1}


def _kinds(entries: Sequence[Entry]) -> str:
    """Return what is wrong where a symbol is two things, "" where it is one."""
    forms: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        forms.setdefault((entry[1].kind, entry[1].space), entry)
    if len(forms) < 2:
        return ""
    one, two = sorted(list(forms.values())[:2], key=lambda entry: entry[1].defined)

    def told(entry: Entry) -> str:
        return f"{_SPELLED.get(entry[1].space or entry[1].kind, f'a {entry[1].space}')}, {_place(entry)}"

    return (
        f"{one[1].name} is {told(one)}, and {told(two)}. The code of one would use what the other has as "
        "something else: declare the symbol as it is defined, or rename one of the two."
    )


def _prototypes(entries: Sequence[Entry]) -> str:
    """Return what is wrong where a function has two prototypes, "" where it has one."""
    # Definitions first: the others are held against them.
    ordered = sorted(entries, key=lambda entry: not entry[1].defined)
    typed = [(entry, entry[1].prototype) for entry in ordered if entry[1].prototype is not None]
    for other, theirs in typed[1:]:
        first, ours = typed[0]
        if ours is not None and theirs is not None and not _agree(ours, theirs):
            return (
                f"{ours.name} has two prototypes:\n    {ours}  {_place(first)}\n    {theirs}  "
                f"{_place(other)}\nA call across them would pass wrong values. Make the declaration agree "
                "with the definition: the types and their order, the result, and for structs the size and "
                f"alignment.{_of_half(ours, theirs)}"
            )
    return ""


def _agree(one: Prototype, other: Prototype) -> bool:
    if (one.result is None) != (other.result is None) or len(one.params) != len(other.params):
        return False
    pairs = list(zip(one.params, other.params, strict=True))
    results = [(one.result, other.result)] if one.result and other.result else []
    if not all(_alike(mine, yours) for mine, yours in (*pairs, *results)):
        return False
    if all(mine.align == yours.align or not mine.align or not yours.align for mine, yours in pairs):
        return True
    # nvcc itself lowers the alignment, which decides in which register a struct starts, in the definition of
    # a function that it also clones, and not in declarations.
    registers = one.registers()
    return registers is not None and registers == other.registers()


def _alike(mine: Param, yours: Param) -> bool:
    return (mine.bits, mine.size) == (yours.bits, yours.size)


def _of_half(one: Prototype, other: Prototype) -> str:
    """Return the cure where a half is a scalar on one side and two bytes, as `__half`, on the other."""
    pairs = zip((one.result, *one.params), (other.result, *other.params), strict=False)
    halves = ({(each.bits > 0, each.size, each.align) for each in pair if each} for pair in pairs)
    if not any(len(half) == 2 and (False, _HALF, _HALF) in half for half in halves):
        return ""
    return " A half arrives in a link of LTO-IR: pass lto=True."


def _spelled_apart(tables: Iterable[Table]) -> bool:
    """Return whether a function has `.f32` in one input where it has `.b32` in another."""
    return any(
        len({str(symbol.prototype) for _, symbol in entries if symbol.prototype}) > 1
        and any(".f" in str(symbol.prototype) for _, symbol in entries)
        for entries in _several(tables).values()
    )


def _sizes(entries: Sequence[Entry]) -> str:
    """Return what is wrong where a variable has two sizes: code that has it larger writes past its end."""
    sized = [entry for entry in entries if entry[1].size]
    fixed = [entry for entry in sized if not entry[1].common]
    # A common symbol becomes as large as the largest, but not larger than a definition.
    if not fixed:
        return ""
    largest = max(sized, key=lambda entry: entry[1].size)
    smallest = min(fixed, key=lambda entry: entry[1].size)
    if smallest[1].size == largest[1].size:
        return ""
    return (
        f"{largest[1].name} has {largest[1].size} bytes, {_place(largest)}, and {smallest[1].size} bytes, "
        f"{_place(smallest)}. Declare it with the same type and length in all inputs."
    )


def _merged(texts: Sequence[Input], tables: Sequence[Table]) -> set[str]:
    """Return the functions with several equal definitions; refuse other symbols that have several."""
    from .merge import same

    merged = set()
    for name, entries in _several(tables).items():
        strong = [entry for entry in entries if entry[1].defined and not entry[1].weak]
        if len(strong) < 2:
            continue
        owners = [text for text, table in zip(texts, tables, strict=True) if _defines(table, name)]
        if strong[0][1].kind != "variable" and same((each.module for each in owners), name):
            merged.add(name)
            continue
        raise LinkError(
            f"{name} is defined {len(strong)} times, differently or with variables of its own: "
            f"{', '.join(_place(entry) for entry in strong)}. Which one a call reaches would depend on the "
            "order of the inputs. Rename one (of Python: name= of udf, abi_info={'abi_name': ...} of "
            "cuda.compile), leave one out, make it static, or mark it weak (inline in C++).",
            inputs=tuple(owner for owner, _ in strong),
        )
    return merged


def _defines(table: Table, name: str) -> bool:
    return any(each.name == name and each.defined and not each.weak for each in table.symbols)


def _place(entry: Entry) -> str:
    name, symbol = entry
    where = f"{name}:{symbol.line}" if symbol.line else name
    return f"{'defined' if symbol.defined else 'declared'} in {where}"
