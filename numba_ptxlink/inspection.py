"""Inspect PTX, LTO-IR, cubins, and what contains them, up to libraries: their symbols and resource usage."""

from __future__ import annotations

import re
import struct
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import assembler
from ._arch import Arch, dotted
from ._config import config
from ._formats import callgraph, elf, ltoir
from ._formats.containers import FatbinEntry, device_code
from ._formats.demangle import demangled
from ._formats.kinds import ARCHIVE, CU, CUBIN, LTOIR, OBJECT, PTX
from ._link import explain, manifests, symbols
from ._link.inputs import Input, read
from ._tools import nvjitlink
from ._tools.nvdisasm import disassemble, find_tool
from .errors import ConfigError, LinkError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ._arch import ArchLike
    from ._formats.ptx import Param
    from ._formats.symbol import Symbol

__all__ = ["FatbinEntry", "Inspection", "SymbolReport", "find_tool", "inspect"]

_REGISTERS, _FRAME = 0x2F, 0x11
_BY_VALUE = 4
_SPILLS = re.compile(
    r"Function properties for (\S+)\s*\n[^\n]*?(\d+) bytes stack frame, "
    r"(\d+) bytes spill stores, (\d+) bytes spill loads"
)
_MANY = 16
"""From more pieces on, only what is cheap is read of each: libraries have thousands."""


@dataclass(frozen=True)
class SymbolReport:
    """
    One symbol and its resource usage.

    Args:
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether it is defined here, rather than only declared.
        prototype: The prototype in PTX terms, "" where it is not recorded.
        c_prototype: The declaration in C if it is *exact*. Otherwise the shape of one, with widths in
            comments where the file records no types: a `.b32` may be an integer or a float.
        exact: Whether `c_prototype` is a declaration, from the file or from the manifest of its export.
        demangled: The name as C++ spells it, "" if it is not mangled.
        registers: Registers per thread, None where there is no machine code.
        stack: Bytes of stack frame per thread, None where there is no machine code.
        spills: Bytes of spill stores and spill loads, None where nothing was compiled to count them.
        shared: Bytes of static shared memory.
        constant: Bytes of constant memory, parameters included.
        size: Bytes of machine code or data.
        calls: The functions that its machine code calls, by name; empty where all calls were inlined. Those
            that private functions call are among them.
        calls_pointers: Whether it calls through a pointer. Code that is linked no further does not record it:
            of that only its disassembly tells, where it is asked for and there is an nvdisasm.
    """

    name: str
    kind: str
    defined: bool
    prototype: str = ""
    c_prototype: str = ""
    exact: bool = False
    demangled: str = ""
    registers: int | None = None
    stack: int | None = None
    spills: tuple[int, int] | None = None
    shared: int = 0
    constant: int = 0
    size: int = 0
    calls: tuple[str, ...] = ()
    calls_pointers: bool = False


@dataclass(frozen=True)
class Inspection:
    """
    The content of a file.

    Args:
        name: Its name.
        kind: "ptx", "cubin", "fatbin", "ltoir", "object" or "archive".
        arch: The architecture that the resource usage is for.
        details: Facts of its header: the PTX ISA, whether it can be linked further, the LTO-IR's versions.
        entries: The pieces of device code in a fat binary, a host file or an archive.
        symbols: Its symbols; of a container, those of the first piece for *arch*.
        parts: Every piece in it, or every one for the architecture that was named, inspected by itself.
        sass: Its machine code as disassembled by nvdisasm, "" where either is missing, and for containers.
        notes: What could not be determined, and why.
    """

    name: str
    kind: str
    arch: str
    details: dict[str, str]
    entries: tuple[FatbinEntry, ...] = ()
    symbols: tuple[SymbolReport, ...] = ()
    parts: tuple[Inspection, ...] = ()
    sass: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary that `json` can encode."""
        entries = [{"kind": entry.kind, "arch": entry.arch, "size": entry.size} for entry in self.entries]
        fields = asdict(replace(self, entries=(), parts=()))
        return {**fields, "entries": entries, "parts": [part.as_dict() for part in self.parts]}


def inspect(source: Any, *, arch: ArchLike | None = None, sass: bool = True) -> Inspection:
    """
    Read the content of *source*. Needs neither a GPU nor a driver.

    Args:
        source: A path, or content, as `link` takes it, except CUDA C++; shared libraries and executables too.
            Beside a file that `export` wrote, its manifest tells the declarations in C.
        arch: The architecture to report resource usage for; by default the one that the file names. Of
            several pieces of code, only those for it are read.
        sass: Whether to disassemble.

    Raises:
        LinkError: *source* cannot be read, or is damaged.
        ConfigError: *arch* is no GPU architecture.
    """
    config()
    content = read(source)
    if content.kind == CU:
        header = Path(content.name).suffix in {".h", ".hpp", ".cuh"}
        raise LinkError(
            f"{content.name} is a header, which has no code; inspect the PTX, cubin or object beside it."
            if header
            else f"{content.name} is CUDA C++, which has no symbols yet; compile it first, such as with "
            "`numba-ptxlink link`.",
            inputs=(content.name,),
        )
    target = None if arch is None else Arch.of(arch)
    reader = _READERS.get(content.kind)
    inspection = (
        _of_container(content, target, sass=sass) if reader is None else _read(content, target, sass=sass)
    )
    return _declared(inspection, content.path, content.code) if content.path else inspection


def _read(source: Input, arch: Arch | None, *, sass: bool) -> Inspection:
    inspection, image = _READERS[source.kind](source, arch)
    text, note = disassemble(image) if sass and image else ("", "")
    pointers = callgraph.by_pointer(text)
    reports = tuple(
        replace(symbol, calls_pointers=symbol.calls_pointers or symbol.name in pointers)
        for symbol in inspection.symbols
    )
    notes = (*inspection.notes, *((note,) if note else ()))
    return replace(inspection, symbols=reports, sass=text, notes=notes)


def _of_ptx(source: Input, arch: Arch | None) -> tuple[Inspection, bytes]:
    target, version = source.header.target, source.header.version
    details = {"ptx_isa": str(version or "not declared"), "target": ", ".join(target) or "not declared"}
    table = symbols.table(source, arch or Arch(7, 5)).symbols or ()
    try:
        machine = arch or Arch.of(target[0] if target else "")
        cubin = assembler.assemble(source.code, machine, relocatable=True, extra_flags=("-v",))
    except (ConfigError, PtxlinkError) as error:
        said = str(error).splitlines()
        # A compiler's reason is in the line after the one that introduces it.
        reason = " ".join(line.strip() for line in said[: 2 if said[0].endswith(":") else 1])
        notes = (f"Resources are not told: {reason}",)
        reports = tuple(_report(symbol) for symbol in table)
        return Inspection(source.name, PTX, "", details, symbols=reports, notes=notes), b""
    image = elf.read(cubin.code, source.name)
    spills = {match[1]: (int(match[3]), int(match[4])) for match in _SPILLS.finditer(cubin.info_log)}
    reports = tuple(replace(report, spills=spills.get(report.name)) for report in _resources(table, image))
    return Inspection(source.name, PTX, machine.sm, details, symbols=reports), cubin.code


def _of_cubin(source: Input, _: Arch | None) -> tuple[Inspection, bytes]:
    image = elf.read(source.code, source.name)
    table = symbols.table(source, Arch(*divmod(image.sm, 10))).symbols or ()
    details = {"linkable": "yes" if image.relocatable else "no"}
    reports = _resources(table, image)
    return Inspection(source.name, CUBIN, f"sm_{image.sm}", details, symbols=reports), source.code


def _of_ltoir(source: Input, arch: Arch | None) -> tuple[Inspection, bytes]:
    header = ltoir.read(source.code)
    if header is None:
        raise LinkError(f"{source.name} is not a whole LTO-IR container; generate or copy it again.")
    details = {
        "container": dotted(header.container),
        "nvvm_ir": dotted(header.ir),
    }
    machine = arch or Arch(*divmod(header.sm, 10))
    return _told(source, machine, details, ())


_READERS = {PTX: _of_ptx, CUBIN: _of_cubin, LTOIR: _of_ltoir}


def _of_container(source: Input, arch: Arch | None, *, sass: bool) -> Inspection:
    pieces = device_code(source.code, source.kind, source.name)
    entries = tuple(entry for _, entry in pieces)
    details = {"file": elf.form(source.code)} if source.kind == OBJECT else {}
    if not pieces:
        return Inspection(source.name, source.kind, "", details, notes=("There is no device code in it.",))
    wanted = [piece for piece in pieces if arch is None or piece[1].arch == arch.sm]
    if arch is not None and not wanted:
        # nvJitLink may make it of PTX, or of code for an older architecture.
        inspection, image = _told(source, arch, details, entries)
        text, note = disassemble(image) if sass and image else ("", "")
        return replace(inspection, sass=text, notes=(*inspection.notes, *((note,) if note else ())))
    few = len(wanted) <= _MANY
    parts = tuple(_part(source, *piece, sass=sass and few, compile_it=few) for piece in wanted)
    first = max(parts, key=lambda part: (part.arch == parts[0].arch, part.kind == CUBIN))
    notes = (
        () if few else (f"Of {len(wanted)} pieces of code only the symbols are read; name one architecture.",)
    )
    return Inspection(
        source.name, source.kind, parts[0].arch, details, entries, first.symbols, parts=parts, notes=notes
    )


def _part(whole: Input, member: str, entry: FatbinEntry, *, sass: bool, compile_it: bool) -> Inspection:
    """Inspect one piece of the container *whole*."""
    name = f"{whole.name}({member})" if member else whole.name
    plain = Inspection(name, entry.kind, entry.arch, {})
    content = entry.content()
    try:
        if content is None and entry.kind == LTOIR and compile_it and whole.kind != ARCHIVE:
            # Only nvJitLink reads compressed LTO-IR; of an archive it links nothing that nobody asks for.
            machine = Arch.of(entry.arch)
            try:
                code = symbols.relocatable(whole, machine, "-lto")
            except LinkError as error:
                return replace(plain, notes=(_why_not(Input(LTOIR, name, b""), machine, error),))
            image = elf.read(code, name)
            return replace(plain, symbols=_resources(symbols.of_image(image), image))
        if content is None or entry.kind not in _READERS:
            form = "compressed in a way" if entry.kind in _READERS else f"of a kind, {entry.kind},"
            return replace(plain, notes=(f"It is {form} that is not known here.",))
        source = Input(entry.kind, name, content.rstrip(b"\0") if entry.kind == PTX else content)
        if entry.kind != CUBIN and not compile_it:
            table = symbols.table(source, Arch.of(entry.arch), deep=False).symbols
            return replace(plain, symbols=tuple(map(_report, table or ())))
        return replace(_read(source, Arch.of(entry.arch), sass=sass), arch=entry.arch)
    except PtxlinkError as error:
        return replace(plain, notes=(str(error),))


def _declared(inspection: Inspection, path: Path, code: bytes) -> Inspection:
    """Give *inspection* the declarations of the manifest beside *path*, if it is of that content."""
    parts = path.name.split(".")
    for number in range(len(parts) - 1, 0, -1):
        manifest = manifests.read(path.with_name(".".join(parts[:number]) + ".json"))
        recorded = manifest.digests.get(path.name) if manifest else None
        if manifest is None or recorded is None:
            continue
        if recorded != manifests.digest(code):
            note = f"{manifest.path.name} is of another export: the digest that it has of this file differs."
            return replace(inspection, notes=(*inspection.notes, note))
        declarations = {extern.get("name"): extern.get("declaration") for extern in manifest.externs}
        declarations |= {each.get("symbol"): each.get("declaration") for each in manifest.functions}
        details = {**inspection.details, "manifest": manifest.path.name}
        return replace(_with_declarations(inspection, declarations), details=details)
    return inspection


def _with_declarations(inspection: Inspection, declarations: Mapping[Any, Any]) -> Inspection:
    reports = tuple(
        replace(symbol, c_prototype=declaration, exact=True)
        if (declaration := declarations.get(symbol.name))
        else symbol
        for symbol in inspection.symbols
    )
    parts = tuple(_with_declarations(part, declarations) for part in inspection.parts)
    return replace(inspection, symbols=reports, parts=parts)


def _told(
    source: Input, arch: Arch, details: dict[str, str], entries: tuple[FatbinEntry, ...]
) -> tuple[Inspection, bytes]:
    """Return the inspection of a container through the image that nvJitLink makes of it for *arch*."""
    inspection = Inspection(source.name, source.kind, arch.sm, details, entries)
    try:
        code = symbols.relocatable(source, arch)
    except LinkError as error:
        return replace(inspection, notes=(_why_not(source, arch, error),)), b""
    image = elf.read(code, source.name)
    return replace(inspection, symbols=_resources(symbols.of_image(image), image)), code


def _why_not(source: Input, arch: Arch, error: LinkError) -> str:
    """Return why nvJitLink tells nothing of *source*, from its *error*."""
    if not error.flags:
        return str(error)  # nvJitLink is missing, or of CUDA 12
    known = explain.cure(error.log, [source], arch, nvjitlink.version(), nvjitlink.package(), checks="none")
    if known or source.kind == LTOIR:
        return known or str(error).splitlines()[0]
    return f"nvJitLink finds no code for {arch.sm} in it; name another arch."


def _resources(symbols: tuple[Symbol, ...], image: elf.Image) -> tuple[SymbolReport, ...]:
    table = image.section(".symtab")
    names = elf.symbol_names(image) if table else []
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    info = image.section(".nv.info")
    for attribute, value in _attributes(info.content if info else b""):
        if attribute in (_REGISTERS, _FRAME) and len(value) == 8:
            number, amount = struct.unpack("<II", value)
            if number < len(names):
                (registers if attribute == _REGISTERS else frames)[names[number]] = amount
    sizes = {section.name: section.size for section in image.sections}
    lengths = {symbol.name: symbol.size for symbol in image.symbols}
    left = callgraph.calls(image)
    return tuple(
        replace(
            _report(symbol),
            registers=registers.get(symbol.name),
            stack=frames.get(symbol.name),
            shared=sizes.get(f".nv.shared.{symbol.name}", 0),
            constant=sizes.get(f".nv.constant0.{symbol.name}", 0),
            size=lengths.get(symbol.name, 0),
            calls=left.get(symbol.name, callgraph.Calls()).names,
            calls_pointers=left.get(symbol.name, callgraph.Calls()).indirect,
        )
        for symbol in symbols
    )


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, at)
        value = content[at + 4 : at + 4 + size] if form == _BY_VALUE else b""
        yield attribute, value
        at += 4 + len(value)


def _report(symbol: Symbol) -> SymbolReport:
    report = SymbolReport(symbol.name, symbol.kind, symbol.defined, demangled=demangled(symbol.name))
    prototype = symbol.prototype
    if prototype is None:
        return report
    passed = (prototype.result, *prototype.params)
    result, *params = map(_c_type, passed)
    in_c = f"{result} {symbol.name}({', '.join(params) or 'void'})"
    # A mangled name is declared in C++, with the types that are in the name.
    exact = all(param is None or param.floating for param in passed) and not report.demangled
    in_c = f'extern "C" __device__ {in_c};' if exact else in_c
    return replace(report, prototype=str(prototype), c_prototype=in_c, exact=exact)


def _c_type(param: Param | None) -> str:
    """Return the C type of *param*, in a comment its width where only that is recorded."""
    if param is None:
        return "void"
    if param.size:
        aligned = f", aligned to {param.align}" if param.align else ""
        return f"/* {param.size} bytes{aligned} */"
    if param.floating:
        return "float" if param.bits == 32 else "double"
    width = {0: "of unknown width", 8: "1 byte"}.get(param.bits, f"{param.bits // 8} bytes")
    return f"/* {width} */"
