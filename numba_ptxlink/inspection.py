"""What is inside PTX, cubins, fat binaries, LTO-IR, objects and archives: symbols and what they cost."""

from __future__ import annotations

import re
import struct
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from . import assembler
from ._arch import Arch
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
    One symbol and what it costs.

    Args:
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether it is defined here, rather than asked for.
        prototype: The interface as PTX has it, "" where it is not told.
        c_prototype: The same in C, with unsigned integers and byte arrays for what PTX tells by width alone.
        registers: Registers per thread, None where there is no machine code.
        stack: Bytes of stack frame per thread, None likewise.
        spills: Bytes stored and loaded because registers ran out, None where the compiler was not asked.
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
    What a file holds.

    Args:
        name: Its name.
        kind: "ptx", "cubin", "fatbin", "ltoir", "object" or "archive".
        arch: The architecture its resources are told for.
        details: What its header says: the PTX ISA, whether it can be linked further, the LTO-IR's versions.
        entries: What a fat binary holds.
        symbols: Its symbols.
        sass: Its machine code as nvdisasm writes it, "" where there is none or no nvdisasm.
        notes: What could not be told, and why.
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
        """Return it as what JSON can hold."""
        found = asdict(self)
        for entry in found["entries"]:
            for internal in ("payload", "flags", "packed_size", "unpacked_size"):
                del entry[internal]
        return found


def inspect(source: Any, *, arch: ArchLike | None = None, sass: bool = True) -> Inspection:
    """
    Read what *source* holds. Needs neither a GPU nor a driver.

    Args:
        source: A path, or content, as `link` takes it; CUDA C++ aside.
        arch: The architecture to tell resources for; by default the one the file names.
        sass: Whether to disassemble.

    Raises:
        LinkError: It cannot be read, or is damaged.
        ConfigError: *arch* is no GPU architecture.
    """
    given = read(source)
    if given.kind == CU:
        raise LinkError(
            f"{given.name} is CUDA C++, which has no symbols yet; compile it first, such as with "
            "`numba-ptxlink link`.",
            inputs=(given.name,),
        )
    target = None if arch is None else Arch.of(arch)
    reader = {PTX: _of_ptx, CUBIN: _of_cubin, LTOIR: _of_ltoir}.get(given.kind, _of_container)
    found, image = reader(given, target)
    if not sass or not image:
        return found
    text, note = disassemble(image)
    return replace(found, sass=text, notes=(*found.notes, *((note,) if note else ())))


def _of_ptx(given: Input, arch: Arch | None) -> tuple[Inspection, bytes]:
    target, version = given.header.target, given.header.version
    details = {"ptx_isa": str(version or "not declared"), "target": ", ".join(target) or "not declared"}
    found = symbols.table(given, arch or Arch(7, 5)).symbols or ()
    try:
        machine = arch or Arch.of(target[0] if target else "")
        made = assembler.assemble(given.code, machine, relocatable=True, extra_flags=("-v",))
    except (ConfigError, PtxlinkError) as error:
        notes = (f"Resources are not told: {str(error).splitlines()[0]}",)
        reports = tuple(_report(each) for each in found)
        return Inspection(given.name, PTX, "", details, symbols=reports, notes=notes), b""
    image = elf.read(made.code, given.name)
    spills = {match[1]: (int(match[3]), int(match[4])) for match in _SPILLS.finditer(made.info_log)}
    reports = tuple(replace(each, spills=spills.get(each.name)) for each in _resources(found, image))
    return Inspection(given.name, PTX, machine.sm, details, symbols=reports), made.code


def _of_cubin(given: Input, _: Arch | None) -> tuple[Inspection, bytes]:
    image = elf.read(given.code, given.name)
    found = symbols.table(given, Arch(*divmod(image.sm, 10))).symbols or ()
    details = {"linkable": "yes" if image.relocatable else "no"}
    reports = _resources(found, image)
    return Inspection(given.name, CUBIN, f"sm_{image.sm}", details, symbols=reports), given.code


def _of_ltoir(given: Input, arch: Arch | None) -> tuple[Inspection, bytes]:
    header = ltoir.read(given.code)
    if header is None:
        raise LinkError(f"{given.name} is not a whole LTO-IR container; generate or copy it again.")
    details = {
        "container": "{}.{}".format(*header.container),
        "nvvm_ir": "{}.{}".format(*header.ir),
    }
    machine = arch or Arch(*divmod(header.sm, 10))
    return _told(given, machine, details, ())


def _of_container(given: Input, arch: Arch | None) -> tuple[Inspection, bytes]:
    entries = fatbin_entries(given.code, given.name) if given.kind == FATBIN else ()
    if arch is None:
        named = [each.arch for each in entries]
        arch = Arch.of(named[0]) if named else Arch(7, 5)
    return _told(given, arch, {}, entries)


def _told(
    given: Input, arch: Arch, details: dict[str, str], entries: tuple[FatbinEntry, ...]
) -> tuple[Inspection, bytes]:
    """Return what nvJitLink makes of a container for one architecture, which can be read."""
    found = Inspection(given.name, given.kind, arch.sm, details, entries)
    code = symbols.unpack(given, arch)
    if code is None:
        return replace(
            found, notes=(f"nvJitLink finds no code for {arch.sm} in it; name another arch.",)
        ), b""
    image = elf.read(code, given.name)
    return replace(found, symbols=_resources(symbols.of_image(image), image)), code


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
    sizes = {each.name: each.size for each in image.sections}
    lengths = {each.name: each.size for each in image.symbols}
    return tuple(
        replace(
            _report(each),
            registers=registers.get(each.name),
            stack=frames.get(each.name),
            shared=sizes.get(f".nv.shared.{each.name}", 0),
            constant=sizes.get(f".nv.constant0.{each.name}", 0),
            size=lengths.get(each.name, 0),
        )
        for each in symbols
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
