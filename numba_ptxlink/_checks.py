"""
The mistakes in a link that nvJitLink accepts without a word or explains badly, found before it is called.

nvJitLink links mismatched prototypes and two definitions of one symbol as if nothing were wrong, and what
comes out computes wrong results or stops the process. So the inputs' symbols are read and compared first.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from . import _containers, _elf, _ltoir, _merge, _ptx, _symbols
from ._isa import newest_isa
from ._target import Arch
from .errors import ConfigError, LinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._inputs import Input
    from ._ptx import Param, Prototype
    from ._symbols import Symbol, Table

log = logging.getLogger("numba_ptxlink")

# The newest LTO-IR container of nvJitLink releases, as measured.
_CONTAINER_OF_RELEASE = {(13, 0): (1, 0x41), (13, 4): (1, 0x43), (13, 5): (1, 0x43)}
_UNDEFINED = re.compile(r"(?:Undefined reference to|Unresolved extern (?:function|variable)) '([^']+)'")
# Seen to pass structs of 184 bytes and more wrongly, which 13.1 to 13.5 pass right.
LOSES_STRUCTS = (13, 0)
_LARGE = 128
_STRUCTS_LOST = "Alignment of argument does not match formal parameter"
_MANGLED = re.compile(r"_Z(\d+)(\w+)")
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


def check(inputs: Sequence[Input], arch: Arch, linker: tuple[int, int], package: str) -> Findings:
    """
    Compare *inputs* with the link's architecture, with the linker, and with one another.

    Args:
        inputs: What is to be linked, none of it CUDA C++.
        arch: The architecture of the link.
        linker: nvJitLink's version.
        package: The package to upgrade where nvJitLink is too old.

    Raises:
        LinkError: The link cannot be right. Names symbols, inputs and the cure.
    """
    distinct = _once(inputs)
    for each in distinct:
        _containers.check_whole(each.kind, each.code, each.name)
        _check_version(each, linker, package)
        _check_target(each, arch)
    if len(distinct) == 1:
        return Findings(distinct, (), ())
    tables = tuple(_symbols.table(each, arch, deep=not _is_runtime(each)) for each in distinct)
    occurrences: dict[str, list[tuple[int, Symbol]]] = defaultdict(list)
    for number, table in enumerate(tables):
        for symbol in table.symbols or ():
            occurrences[symbol.name].append((number, symbol))
    several = {name: found for name, found in occurrences.items() if len(found) > 1}
    _check_prototypes(several, tables)
    _warn_of_large_structs(several, tables, linker, package)
    merged = _check_definitions(several, tables, distinct)
    if merged:
        distinct = tuple(
            replace(each, code=_merge.weaken(each.code, merged)) if each.kind == "ptx" else each
            for each in distinct
        )
    return Findings(distinct, tables, tuple(sorted(merged)))


def explain(log: str, tables: Sequence[Table]) -> str:
    """Return what helps against what the linker's *log* complains of, "" where that is not known."""
    if _STRUCTS_LOST in log:
        return (
            "nvJitLink before 13.2 can lose track of the types of inputs that have many structs. "
            "Upgrade it with `pip install --upgrade nvidia-nvjitlink`, or link the PTX of one of them."
        )
    return _explain_undefined(log, tables)


def _explain_undefined(log: str, tables: Sequence[Table]) -> str:
    names = list(dict.fromkeys(_UNDEFINED.findall(log)))
    defined = {
        symbol.name: table.name for table in tables for symbol in table.symbols or () if symbol.defined
    }
    lines = []
    for name in names[:_MOST]:
        users = [
            table.name
            for table in tables
            if any(symbol.name == name and not symbol.defined for symbol in table.symbols or ())
        ]
        line = f"{name} is asked for{' by ' + ', '.join(users) if users else ''} and defined in no input"
        near = _near(name, defined)
        if near:
            line += "; there is " + ", ".join(f"{each} in {defined[each]}" for each in near)
            line += (
                ': one of the two lacks extern "C".'
                if any(_plain(each) == _plain(name) for each in near)
                else ": is that one meant?"
            )
        lines.append(line if near else f"{line}.")
    if not names:
        return ""
    if len(names) > _MOST:
        lines.append(f"... and {len(names) - _MOST} more, in the attribute log.")
    return "\n".join((*lines, "Add the input that defines it, or correct the name."))


def _near(name: str, defined: dict[str, str]) -> list[str]:
    same = [each for each in defined if _plain(each) == _plain(name)]
    close = difflib.get_close_matches(name, defined, n=3, cutoff=0.6)
    plain = difflib.get_close_matches(_plain(name), map(_plain, defined), n=3, cutoff=0.75)
    close += [each for each in defined if _plain(each) in plain]
    return list(dict.fromkeys((*same, *close)))[:3]


def _plain(name: str) -> str:
    """Return the name that a mangled symbol was made of, where it stands in the open."""
    match = _MANGLED.match(name)
    return match[2][: int(match[1])] if match else name


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
    upgrade = (
        f"upgrade it with `pip install --upgrade {package}`, or generate the input with an older toolkit"
    )
    if source.kind == "ptx":
        declared = _ptx.version(source.code.decode(errors="replace"))
        newest = newest_isa(linker)
        if declared is not None and newest is not None and declared > newest:
            raise LinkError(
                f"{source.name} is PTX {declared}, and nvJitLink {_dotted(linker)} reads {newest} at most; "
                f"{upgrade}.",
                inputs=(source.name,),
            )
    header = _ltoir.read(source.code) if source.kind == "ltoir" else None
    newest_container = _CONTAINER_OF_RELEASE.get(linker)
    if header is not None and newest_container is not None and header.container > newest_container:
        raise LinkError(
            f"{source.name} is LTO-IR of container version {_dotted(header.container)}, and nvJitLink "
            f"{_dotted(linker)} reads {_dotted(newest_container)} at most; {upgrade}.",
            inputs=(source.name,),
        )


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _check_target(source: Input, arch: Arch) -> None:
    if source.kind == "ptx":
        target = _ptx.target(source.code.decode(errors="replace"))
        try:
            needs = Arch.of(target[0]) if target else None
        except ConfigError:
            return  # nvJitLink names what is wrong with it
        if needs is None or _runs_on(needs, arch):
            return
        holds = f"PTX for {needs.sm}"
    elif source.kind == "cubin":
        sm = _elf.read(source.code, source.name).sm
        major, minor = divmod(sm, 10)
        if major == arch.major and minor <= arch.minor:
            return
        holds = f"machine code for sm_{sm}"
    else:
        header = _ltoir.read(source.code) if source.kind == "ltoir" else None
        if header is None or header.sm <= arch.number:
            return
        holds = f"LTO-IR for sm_{header.sm}"
    older = "" if source.kind == "cubin" else " or an older one"
    raise LinkError(
        f"{source.name} holds {holds}, which does not run on {arch.sm}, the architecture of this link; "
        f"generate it for {arch.sm}{older}, or link for its own.",
        inputs=(source.name,),
    )


def _runs_on(needs: Arch, arch: Arch) -> bool:
    if needs.variant == "a":
        return needs == arch
    if needs.variant == "f":
        return needs.major == arch.major and needs.number <= arch.number and arch.variant in ("a", "f")
    return needs.number <= arch.number


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
        if max(sizes, default=0) > _LARGE and any(tables[number].kind != "ltoir" for number, _ in found):
            log.warning(
                "%s takes or returns a struct of %d bytes, and nvJitLink %s passes some above %d wrongly; "
                "upgrade it with `pip install --upgrade %s`, link LTO-IR, or pass a pointer",
                name,
                max(sizes),
                _dotted(linker),
                _LARGE,
                package,
            )


def _told(symbol: Symbol, table: Table) -> str:
    where = f"{table.name}:{symbol.line}" if symbol.line and table.kind == "ptx" else table.name
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
            if each.defined and not each.weak and tables[number].kind != "archive"
        ]
        if len(strong) < 2:
            continue
        sources = [inputs[number] for number, _ in strong]
        if all(each.kind == "ptx" for each in sources) and strong[0][1].kind != "variable":
            texts = [each.code.decode(errors="replace") for each in sources]
            if _merge.same(texts, name):
                merged.add(name)
                continue
        places = ", ".join(
            f"{table.name}:{each.line}" if table.kind == "ptx" and each.line else table.name
            for table, each in ((tables[number], each) for number, each in strong)
        )
        raise LinkError(
            f"{name} is defined {len(strong)} times, differently or where it cannot be compared: {places}. "
            "Which one a call reaches would depend on the order of the inputs. Rename one, leave one out, "
            "make it static, or mark it weak (inline in C++).",
            inputs=tuple(each.name for each in sources),
        )
    return merged
