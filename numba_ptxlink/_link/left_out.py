"""
Find code that linkers leave out without a word, and links that nothing comes of.

nvJitLink and nvlink take PTX, LTO-IR and relocatable code. Machine code that is finished for a driver they
skip: a cubin, or the one of a fat binary that fits; of host files the section that nvcc writes without
-rdc=true; of libraries what is no object. Observed with nvJitLink 12.9 and 13.5.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import containers, elf, ptx
from numba_ptxlink._formats.kinds import ARCHIVE, CUBIN, FATBIN, OBJECT, PTX, recognise
from numba_ptxlink.errors import LinkError

from . import symbols
from .checks import READABLE
from .device_runtime import find as find_runtime
from .device_runtime import is_runtime, is_runtime_call
from .inputs import Input

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.containers import FatbinEntry
    from numba_ptxlink._formats.symbol import Symbol

log = logging.getLogger(__name__)

_MOST = 5
_CONTENTS = (".text.", ".nv.global", ".nv.constant3")
_RELOCATABLE = (
    "Make it relocatable (`nvcc -rdc=true`, `assemble(relocatable=True)`, `assemble --relocatable`), or give "
    "the PTX or CUDA C++ that it was made of."
)
_BY_ITSELF = "Give such a file by itself."


class LeftOut(NamedTuple):
    """
    An input of which a linker takes nothing.

    Args:
        name: Its name.
        symbols: What it defines that no other input does.
        cause: Why a linker takes nothing of it.
        cure: What to give in its place.
        library: Whether it is a library, of which a linker only takes what others need.
        partly: Whether a linker takes the rest of it.
    """

    name: str
    symbols: tuple[str, ...]
    cause: str
    cure: str
    library: bool
    partly: bool

    def __str__(self) -> str:
        named = ", ".join(self.symbols[:_MOST])
        more = f" and {len(self.symbols) - _MOST} more" if len(self.symbols) > _MOST else ""
        return f"{self.name} {self.cause}: the link leaves out {named}{more}. {self.cure}"


def left_out(inputs: Sequence[Input], arch: Arch, *, lto: bool, checks: str = "cheap") -> list[LeftOut]:
    """
    Return the *inputs* that define what a linker leaves out, and no other input defines.

    Args:
        inputs: The inputs of the link.
        arch: The architecture of the link.
        lto: Whether the link optimises.
        checks: "none" for nothing; "cheap", which reads no large library beside other inputs; or "all".
    """
    if checks == "none":
        return []
    found = []
    alone = all(source.kind == ARCHIVE for source in inputs)
    for source in inputs:
        if source.kind not in _READERS or is_runtime(source):
            continue
        # Of a library nobody may need what is left out, so there is nothing but a warning to lose.
        if checks != "all" and source.kind == ARCHIVE and not alone and len(source.code) > READABLE:
            continue
        try:
            skipped = _READERS[source.kind](source, arch, lto=lto)
        except (elf.UnfamiliarError, LinkError) as error:
            log.debug("it is not told what a link takes of %s: %s", source.name, error)
            continue
        names = {symbol.name for symbol in skipped.symbols if symbol.defined}
        if names:
            found.append((source, names, skipped))
    skipped_inputs = [source for source, *_ in found]
    others = [source for source in inputs if source not in skipped_inputs] if found else []
    elsewhere = {
        symbol.name
        for other in others
        for symbol in symbols.table(other, arch, lto=lto).symbols or ()
        if symbol.defined
    }
    # nvcc -dlink leaves the device runtime in what it writes, which is not an input until a link wants it.
    if any(is_runtime_call(name) for _, names, *_ in found for name in names - elsewhere):
        runtime = find_runtime()
        table = symbols.table(runtime, arch, lto=lto).symbols if runtime else None
        elsewhere |= {symbol.name for symbol in table or () if symbol.defined}
    return [
        LeftOut(
            source.name,
            tuple(sorted(names - elsewhere)),
            skipped.cause,
            skipped.cure,
            source.kind == ARCHIVE,
            skipped.partly,
        )
        for source, names, skipped in found
        if names - elsewhere
    ]


def refuse_left_out(inputs: Sequence[Input], arch: Arch, *, lto: bool, checks: str) -> None:
    """
    Refuse *inputs* that define what a linker leaves out; warn of libraries beside what it takes.

    Raises:
        LinkError: There is such an input. Names what it defines, and the cure.
    """
    found = left_out(inputs, arch, lto=lto, checks=checks)
    beside = len(found) < len(inputs) or any(skipped.partly for skipped in found)
    for skipped in found:
        if beside and skipped.library:
            log.warning("%s", skipped)
    refused = [skipped for skipped in found if not (beside and skipped.library)]
    if refused:
        raise LinkError("\n".join(map(str, refused)), inputs=tuple(skipped.name for skipped in refused))


def warn_of_left_out(inputs: Sequence[Input], arch: Arch, *, lto: bool, checks: str) -> None:
    """Warn of *inputs* that define what a linker leaves out; a kernel may need nothing of that."""
    for skipped in left_out(inputs, arch, lto=lto, checks=checks):
        log.warning("%s", skipped)


def refuse_empty(cubin: bytes, inputs: Sequence[Input], arch: Arch, *, lto: bool) -> None:
    """
    Refuse *inputs* that define nothing, of which the empty *cubin* was linked.

    Raises:
        LinkError: They define nothing.
    """
    try:
        # Not the symbols, which leave out static kernels.
        if any(section.name.startswith(_CONTENTS) for section in elf.read(cubin).sections):
            return
    except elf.UnfamiliarError:
        return
    if not all(_is_empty(source, arch, lto=lto) for source in inputs):
        return  # What the inputs define is used by nobody.
    names = tuple(source.name for source in inputs)
    raise LinkError(
        f"{', '.join(names)} {'define' if names[1:] else 'defines'} no kernel, function or variable that "
        "other code can reach, so that the cubin would be empty. Give the code too"
        + (
            ": what the header of an export declares is in the artifacts beside it, and templates are "
            "compiled where name_expressions names them."
            if any(source.compiled for source in inputs)
            else ": PTX, LTO-IR, CUDA C++, or a file with device code, which `numba-ptxlink inspect` lists."
        ),
        inputs=names,
    )


def _is_empty(source: Input, arch: Arch, *, lto: bool) -> bool:
    """Return whether *source* is known to define nothing."""
    try:
        if source.kind in containers.CONTAINERS and not containers.device_code(
            source.code, source.kind, source.name
        ):
            return True
        # LTO-IR of others is compiled only to be read where it cannot be otherwise, which may take seconds.
        table = symbols.table(source, arch, lto=lto, deep=source.compiled).symbols
    except LinkError:
        return False
    return table is not None and not any(symbol.defined for symbol in table)


class _Skipped(NamedTuple):
    """What a linker skips of an input, why, the cure, and whether it takes the rest."""

    symbols: Sequence[Symbol]
    cause: str
    cure: str = _RELOCATABLE
    partly: bool = False


_FINISHED = "is finished code, which no linker takes"
_HOLDS_FINISHED = "holds finished code alone, which no linker takes"
_PARTLY_FINISHED = "holds finished code too, which no linker takes"
_OTHER_THAN_OBJECTS = "holds more than objects, and linkers read nothing else in a library"
_NO_OBJECT = "holds no object that has device code, and linkers read nothing else in a library"


def _of_cubin(source: Input, _arch: Arch, *, lto: bool) -> _Skipped:  # noqa: ARG001 - as its siblings
    return _Skipped(_finished(source.code, source.name), _FINISHED)


def _of_fatbin(source: Input, arch: Arch, *, lto: bool) -> _Skipped:
    entry = containers.chosen(containers.fatbin_entries(source.code, source.name), arch, lto=lto)
    content = entry.content() if entry is not None and entry.kind == CUBIN else None
    found = () if content is None else _finished(content, source.name)
    return _Skipped(found, f"has finished code for {arch.sm}, which no linker takes")


def _of_object(source: Input, arch: Arch, *, lto: bool) -> _Skipped:
    found = _of_host_file(source, arch)
    if not (found and containers.fatbins(source.code, OBJECT, source.name)):
        return _Skipped(found, _HOLDS_FINISHED)
    table = symbols.table(source, arch, lto=lto, deep=False).symbols
    linked = {symbol.name for symbol in table or () if symbol.defined}
    found = () if table is None else tuple(symbol for symbol in found if symbol.name not in linked)
    return _Skipped(found, _PARTLY_FINISHED, partly=True)


def _of_archive(source: Input, arch: Arch, *, lto: bool) -> _Skipped:
    found: list[Symbol] = []
    other: list[Symbol] = []
    partly = False
    for title, content in containers.members(source.code, source.name):
        kind = recognise(content)
        member = Input(kind or "", f"{source.name}({title})", content)
        if kind == OBJECT:
            partly = partly or bool(containers.fatbins(content, OBJECT, member.name))
            found += _of_object(member, arch, lto=lto).symbols
        elif kind in (CUBIN, FATBIN, PTX):
            other += symbols.table(member, arch, lto=lto, deep=False).symbols or ()
    if partly and (found or other):
        table = symbols.table(source, arch, lto=lto, deep=False).symbols
        linked = {symbol.name for symbol in table or () if symbol.defined}
        found, other = ([symbol for symbol in each if symbol.name not in linked] for each in (found, other))
    cause, cure = (_PARTLY_FINISHED if partly else _HOLDS_FINISHED), _RELOCATABLE
    if other:
        cause, cure = (_OTHER_THAN_OBJECTS if partly else _NO_OBJECT), _BY_ITSELF
    return _Skipped((*found, *other), cause, cure, partly)


_READERS = {CUBIN: _of_cubin, FATBIN: _of_fatbin, OBJECT: _of_object, ARCHIVE: _of_archive}


def _of_host_file(source: Input, arch: Arch) -> tuple[Symbol, ...]:
    """Return the symbols of the finished code in a host file."""
    found: list[Symbol] = []
    for entries in containers.finished_fatbins(source.code, source.name):
        entry = containers.chosen(entries, arch, lto=False) or (entries[0] if entries else None)
        content = entry.content() if entry is not None else None
        if entry is not None and content is not None:
            found += _of_entry(entry, content, source.name)
    return tuple(found)


def _of_entry(entry: FatbinEntry, content: bytes, name: str) -> tuple[Symbol, ...]:
    if entry.kind == CUBIN:
        return symbols.of_image(elf.read(content, name))
    if entry.kind == PTX:
        return symbols.of_ptx(ptx.parse(content.rstrip(b"\0").decode(errors="replace")))
    return ()


def _finished(code: bytes, name: str) -> tuple[Symbol, ...]:
    # Relocatable code, which is what is usually given, is not read for this.
    return () if elf.is_relocatable(code) else symbols.of_image(elf.read(code, name))
