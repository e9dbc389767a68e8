"""Inspect PTX, cubins, fat binaries, LTO-IR, objects and archives: their symbols and resource usage."""

from __future__ import annotations

import re
import struct
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from . import assembler
from ._arch import Arch
from ._config import config
from ._formats import elf, ltoir
from ._formats.containers import FatbinEntry, fatbin_entries
from ._formats.kinds import CU, CUBIN, FATBIN, LTOIR, PTX
from ._link import symbols
from ._link.inputs import Input, read
from ._tools.nvdisasm import disassemble, find_tool
from .errors import ConfigError, LinkError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._arch import ArchLike
    from ._formats.ptx import Param
    from ._link.inputs import Input
    from ._link.symbol_tables import Symbol

__all__ = ["FatbinEntry", "Inspection", "SymbolReport", "find_tool", "inspect"]

_REGISTERS, _FRAME = 0x2F, 0x11
_BY_VALUE = 4
_SPILLS = re.compile(
    r"Function properties for (\S+)\s*\n[^\n]*?(\d+) bytes stack frame, "
    r"(\d+) bytes spill stores, (\d+) bytes spill loads"
)
_C_TYPES = {8: "uint8_t", 16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}


@dataclass(frozen=True)
class SymbolReport:
    """
    One symbol and its resource usage.

    Args:
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether it is defined here, rather than only declared.
        prototype: The prototype in PTX terms, "" where it is not recorded.
        c_prototype: The same in C, with unsigned integers and byte arrays where PTX records only the width.
        registers: Registers per thread, None where there is no machine code.
        stack: Bytes of stack frame per thread, None where there is no machine code.
        spills: Bytes of spill stores and spill loads, None where nothing was compiled to count them.
        shared: Bytes of static shared memory.
        constant: Bytes of constant memory, parameters included.
        size: Bytes of machine code or data.
    """

    name: str
    kind: str
    defined: bool
    prototype: str = ""
    c_prototype: str = ""
    registers: int | None = None
    stack: int | None = None
    spills: tuple[int, int] | None = None
    shared: int = 0
    constant: int = 0
    size: int = 0


@dataclass(frozen=True)
class Inspection:
    """
    The content of a file.

    Args:
        name: Its name.
        kind: "ptx", "cubin", "fatbin", "ltoir", "object" or "archive".
        arch: The architecture that the resource usage is for.
        details: Facts of its header: the PTX ISA, whether it can be linked further, the LTO-IR's versions.
        entries: The entries of a fat binary.
        symbols: Its symbols.
        sass: Its machine code as disassembled by nvdisasm, "" where either is missing.
        notes: What could not be determined, and why.
    """

    name: str
    kind: str
    arch: str
    details: dict[str, str]
    entries: tuple[FatbinEntry, ...] = ()
    symbols: tuple[SymbolReport, ...] = ()
    sass: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary that `json` can encode."""
        fields = asdict(self)
        for entry in fields["entries"]:
            for internal in ("payload", "flags", "packed_size", "unpacked_size"):
                del entry[internal]
        return fields


def inspect(source: Any, *, arch: ArchLike | None = None, sass: bool = True) -> Inspection:
    """
    Read the content of *source*. Needs neither a GPU nor a driver.

    Args:
        source: A path, or content, as `link` takes it, except CUDA C++.
        arch: The architecture to report resource usage for; by default the one that the file names.
        sass: Whether to disassemble.

    Raises:
        LinkError: *source* cannot be read, or is damaged.
        ConfigError: *arch* is no GPU architecture.
    """
    config()
    content = read(source)
    if content.kind == CU:
        raise LinkError(
            f"{content.name} is CUDA C++, which has no symbols yet; compile it first, such as with "
            "`numba-ptxlink link`.",
            inputs=(content.name,),
        )
    target = None if arch is None else Arch.of(arch)
    reader = {PTX: _of_ptx, CUBIN: _of_cubin, LTOIR: _of_ltoir}.get(content.kind, _of_container)
    inspection, image = reader(content, target)
    if not sass or not image:
        return inspection
    text, note = disassemble(image)
    return replace(inspection, sass=text, notes=(*inspection.notes, *((note,) if note else ())))


def _of_ptx(source: Input, arch: Arch | None) -> tuple[Inspection, bytes]:
    target, version = source.header.target, source.header.version
    details = {"ptx_isa": str(version or "not declared"), "target": ", ".join(target) or "not declared"}
    table = symbols.table(source, arch or Arch(7, 5)).symbols or ()
    try:
        machine = arch or Arch.of(target[0] if target else "")
        cubin = assembler.assemble(source.code, machine, relocatable=True, extra_flags=("-v",))
    except (ConfigError, PtxlinkError) as error:
        notes = (f"Resources are not told: {str(error).splitlines()[0]}",)
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
        "container": "{}.{}".format(*header.container),
        "nvvm_ir": "{}.{}".format(*header.ir),
    }
    machine = arch or Arch(*divmod(header.sm, 10))
    return _told(source, machine, details, ())


def _of_container(source: Input, arch: Arch | None) -> tuple[Inspection, bytes]:
    entries = fatbin_entries(source.code, source.name) if source.kind == FATBIN else ()
    if arch is None:
        archs = [entry.arch for entry in entries]
        arch = Arch.of(archs[0]) if archs else Arch(7, 5)
    return _told(source, arch, {}, entries)


def _told(
    source: Input, arch: Arch, details: dict[str, str], entries: tuple[FatbinEntry, ...]
) -> tuple[Inspection, bytes]:
    """Return the inspection of a container through the image that nvJitLink makes of it for *arch*."""
    inspection = Inspection(source.name, source.kind, arch.sm, details, entries)
    code = symbols.unpack(source, arch)
    if code is None:
        return replace(
            inspection, notes=(f"nvJitLink finds no code for {arch.sm} in it; name another arch.",)
        ), b""
    image = elf.read(code, source.name)
    return replace(inspection, symbols=_resources(symbols.of_image(image), image)), code


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
    return tuple(
        replace(
            _report(symbol),
            registers=registers.get(symbol.name),
            stack=frames.get(symbol.name),
            shared=sizes.get(f".nv.shared.{symbol.name}", 0),
            constant=sizes.get(f".nv.constant0.{symbol.name}", 0),
            size=lengths.get(symbol.name, 0),
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
    prototype = symbol.prototype
    if prototype is None:
        return SymbolReport(symbol.name, symbol.kind, symbol.defined)
    result = "void" if prototype.result is None else _c_type(prototype.result)
    params = ", ".join(map(_c_type, prototype.params)) or "void"
    in_c = f'extern "C" __device__ {result} {symbol.name}({params});'
    return SymbolReport(symbol.name, symbol.kind, symbol.defined, str(prototype), in_c)


def _c_type(param: Param) -> str:
    if param.size:
        aligned = f"alignas({param.align}) " if param.align else ""
        return f"struct {aligned}{{ uint8_t bytes[{param.size}]; }}"
    if param.floating:
        return "float" if param.bits == 32 else "double"
    return _C_TYPES.get(param.bits, f"/* {param.bits} bits */ void")
