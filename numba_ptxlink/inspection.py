"""Inspect PTX, LTO-IR, cubins, and files that contain them: their symbols and resource usage."""

from __future__ import annotations

import re
import struct
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from . import assembler
from ._arch import Arch, dotted
from ._config import config
from ._formats import elf
from ._formats.kinds import CU, CUBIN, LTOIR, PTX, ltoir_header
from ._link import manifests
from ._link.read import Input, read
from ._link.symbols import symbols
from ._tools import programs
from ._tools.programs import disassemble
from .errors import LinkError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from ._arch import ArchLike
    from ._link.symbols import Symbol

__all__ = ["Inspection", "SymbolReport", "inspect"]

# In the section .nv.info of a cubin: the numbers of two attributes of functions, and the format of attributes
# with a value of any size. The names are those that `cuobjdump -elf` prints.
_EIATTR_REGCOUNT, _EIATTR_FRAME_SIZE = 0x2F, 0x11
_EIFMT_SVAL = 4
# In the compiler's log: "Function properties for f", and in the next line
# "    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads".
_SPILLS = re.compile(
    r"Function properties for (\S+)\s*\n[^\n]*?(\d+) bytes stack frame, "
    r"(\d+) bytes spill stores, (\d+) bytes spill loads"
)
_MAX_DISASSEMBLED_PIECES = 16
"""If a file has more pieces of code, none is compiled or disassembled: libraries have thousands."""


@dataclass(frozen=True)
class SymbolReport:
    """
    A symbol and its resource usage.

    Args:
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether the file defines it, rather than only declares it.
        prototype: The prototype in PTX; "" if the file does not contain it.
        c_prototype: The declaration in C; "" if no manifest is beside the file, since a `.b32` in PTX may be
            an integer or a float.
        registers: Registers per thread; None without machine code.
        stack: Bytes of stack frame per thread; None without machine code.
        spills: Bytes of spill stores and spill loads; None if nothing was compiled to count them.
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
        name: The name of the file.
        kind: "ptx", "cubin", "fatbin", "ltoir", "object" or "archive".
        arch: The architecture that the resource usage is for.
        details: Fields of the file's header, such as the PTX ISA; and whether a cubin can be linked further.
        symbols: The symbols; for a container, those of its first piece of machine code for *arch*, or of its
            first piece if none is machine code for *arch*.
        parts: For a container, such as a fat binary: the inspections of its pieces of code, or only of those
            for the requested architecture.
        sass: The disassembled machine code; "" if there is none, if nvdisasm is missing, and for containers.
        notes: Properties that could not be determined, and why.
    """

    name: str
    kind: str
    arch: str
    details: dict[str, str]
    symbols: tuple[SymbolReport, ...] = ()
    parts: tuple[Inspection, ...] = ()
    sass: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary that `json` can encode."""
        return asdict(self)


def inspect(source: Any, *, arch: ArchLike | None = None, sass: bool = True) -> Inspection:
    """
    Read the content of *source*. Needs neither a GPU nor a driver, and runs no code of it.

    Fat binaries, host files and libraries are read by NVIDIA's cuobjdump, machine code by nvdisasm, if they
    are installed. LTO-IR is opaque: only its header is read.

    Args:
        source: A path or content as for `link`, except CUDA C++; also a shared library or executable. The
            manifest beside a file of an export has the declarations in C.
        arch: The architecture to report resource usage for; by default that of the file. Pieces of code for
            other architectures are skipped.
        sass: Whether to disassemble.

    Raises:
        LinkError: *source* cannot be read, or is damaged.
        ConfigError: *arch* is no GPU architecture.
    """
    # The first call in a process sets up logging.
    config()
    content = read(source)
    if content.kind == CU:
        raise LinkError(
            f"{content.name} is CUDA C++, which has no symbols yet; compile it, for example by "
            "`numba-ptxlink link`, and inspect the result.",
            inputs=(content.name,),
        )
    target = None if arch is None else Arch.of(arch)
    reader = _inspect_code if content.kind in _READERS else _inspect_container
    inspection = reader(content, target, sass=sass)
    return _with_manifest(inspection, content.path, content.code) if content.path else inspection


def _inspect_code(source: Input, arch: Arch | None, *, sass: bool) -> Inspection:
    """Inspect PTX, a cubin or LTO-IR."""
    inspection, cubin = _READERS[source.kind](source, arch)
    sass_text, note = disassemble(cubin) if sass and cubin else ("", "")
    return replace(inspection, sass=sass_text, notes=(*inspection.notes, *filter(None, [note])))


def _inspect_ptx(source: Input, arch: Arch | None) -> tuple[Inspection, bytes]:
    """Inspect PTX; return also the cubin that the PTX is compiled to, b"" if the compiler rejects it."""
    target, version = source.header.target, source.header.version
    details = {"ptx_isa": str(version or "not declared"), "target": ", ".join(target) or "not declared"}
    reports = tuple(map(_symbol_report, symbols(source)))
    notes: tuple[str, ...] = ()
    try:
        compiled_arch = arch or Arch.of(target[0] if target else "")
        oldest = assembler.supported_archs()[0]
        if arch is None and compiled_arch.cc < oldest.cc:
            # PTX for an older GPU is valid for a newer one, so compile it for the oldest supported GPU.
            compiler = f"nvPTXCompiler {dotted(assembler.compiler_version())}"
            cause = f"Resources are for {oldest.sm}, since {compiler} does not support {compiled_arch.sm}"
            notes = (f"{cause}; pass another architecture as arch= (--arch).",)
            compiled_arch = oldest
        cubin = assembler.assemble(source.code, compiled_arch, relocatable=True, extra_flags=("-v",))
    except PtxlinkError as error:
        message_lines = str(error).splitlines()
        # If the first line ends with a colon, the second one has the compiler's reason.
        line_count = 2 if message_lines[0].endswith(":") else 1
        reason = " ".join(line.strip() for line in message_lines[:line_count])
        notes = (f"Resources are unknown: {reason}",)
        return Inspection(source.name, PTX, "", details, symbols=reports, notes=notes), b""
    spills = {match[1]: (int(match[3]), int(match[4])) for match in _SPILLS.finditer(cubin.info_log)}
    usage = _resource_usage(elf.read(cubin.code, source.name))
    reports = tuple(
        replace(report, **usage.get(report.name, {}), spills=spills.get(report.name)) for report in reports
    )
    return Inspection(source.name, PTX, compiled_arch.sm, details, symbols=reports, notes=notes), cubin.code


def _inspect_cubin(source: Input, _: Arch | None) -> tuple[Inspection, bytes]:
    """Inspect a cubin, which is for one architecture; return also the cubin."""
    image = elf.read(source.code, source.name)
    details = {"linkable": "yes" if image.relocatable else "no"}
    usage = _resource_usage(image)
    reports = tuple(
        SymbolReport(symbol.name, symbol.kind, symbol.defined, **usage[symbol.name])
        for symbol in image.symbols
    )
    return Inspection(source.name, CUBIN, f"sm_{image.sm}", details, symbols=reports), source.code


def _inspect_ltoir(source: Input, _: Arch | None) -> tuple[Inspection, bytes]:
    """Inspect LTO-IR; return also b"", since there is no cubin."""
    header = ltoir_header(source.code)
    if header is None:
        raise LinkError(f"{source.name} is incomplete LTO-IR; generate or copy it again.")
    version, sm = header
    notes = ("The symbols of LTO-IR are unknown before it is linked.",)
    return Inspection(source.name, LTOIR, f"sm_{sm}", {"nvvm_ir": dotted(version)}, notes=notes), b""


_READERS = {PTX: _inspect_ptx, CUBIN: _inspect_cubin, LTOIR: _inspect_ltoir}


def _inspect_container(source: Input, arch: Arch | None, *, sass: bool) -> Inspection:
    """Inspect a container of pieces of code: a fat binary, object, library or program."""
    empty = Inspection(source.name, source.kind, "", {})
    pieces = programs.pieces(source.code, source.name)
    if pieces is None:
        return replace(empty, notes=(programs.NO_CUOBJDUMP,))
    selected_pieces = [piece for piece in pieces if arch is None or piece.arch == arch.sm]
    if not selected_pieces:
        archs = ", ".join(dict.fromkeys(piece.arch for piece in pieces)) or "no GPU"
        return replace(empty, notes=(f"The file has code for {archs}.",))
    has_few_pieces = len(selected_pieces) <= _MAX_DISASSEMBLED_PIECES
    parts = tuple(
        _inspect_piece(source, piece, sass=sass and has_few_pieces, compiles=has_few_pieces)
        for piece in selected_pieces
    )
    # The symbols of the container are those of the first architecture: of its machine code, if it has any.
    main_part = max(parts, key=lambda part: (part.arch == parts[0].arch, part.kind == CUBIN))
    note = (
        f"There are {len(selected_pieces)} pieces of code, so only the symbols of each are read; pass arch= "
        "(--arch) to inspect the pieces for one architecture."
    )
    return replace(
        empty,
        arch=parts[0].arch,
        symbols=main_part.symbols,
        parts=parts,
        notes=() if has_few_pieces else (note,),
    )


def _inspect_piece(whole: Input, piece: programs.Piece, *, sass: bool, compiles: bool) -> Inspection:
    """Inspect one piece of the container *whole*; if *compiles*, compile PTX to count its resources."""
    name = f"{whole.name}({piece.member})" if piece.member else whole.name
    empty = Inspection(name, piece.kind, piece.arch, {})
    # `programs.pieces` lists LTO-IR without its code, since the symbols could not be read from it anyway.
    if piece.code is None:
        note = "The symbols are unknown: cuobjdump writes another piece of this file under the same name."
        return replace(empty, notes=() if piece.kind == LTOIR else (note,))
    # PTX in a fat binary ends in null bytes.
    source = Input(piece.kind, name, piece.code.rstrip(b"\0") if piece.kind == PTX else piece.code)
    try:
        if piece.kind == PTX and not compiles:
            return replace(empty, symbols=tuple(map(_symbol_report, symbols(source))))
        # PTX is compiled for its own `.target`.
        arch = None if piece.kind == PTX else Arch.of(piece.arch)
        return replace(_inspect_code(source, arch, sass=sass), arch=piece.arch)
    except PtxlinkError as error:
        return replace(empty, notes=(str(error),))


def _with_manifest(inspection: Inspection, path: Path, code: bytes) -> Inspection:
    """Return *inspection* with the declarations of the manifest beside *path*, if it lists this content."""
    # The manifest of a.sm_90.cubin may be a.sm_90.json or a.json.
    name_parts = path.name.split(".")
    for count in range(len(name_parts) - 1, 0, -1):
        manifest = manifests.read(path.with_name(".".join(name_parts[:count]) + ".json"))
        recorded_digest = manifest.digests.get(path.name) if manifest else None
        if manifest is None or recorded_digest is None:
            continue
        if recorded_digest != manifests.digest(code):
            note = f"{manifest.path.name} is of another export: it has another digest of this file."
            return replace(inspection, notes=(*inspection.notes, note))
        # The declaration of a function that C++ defines, an extern, is None if C cannot declare it.
        declarations: dict[str, str | None] = {
            function.symbol: function.declaration for function in manifest.functions
        }
        declarations |= manifest.externs
        details = {**inspection.details, "manifest": manifest.path.name}
        return replace(_with_declarations(inspection, declarations), details=details)
    return inspection


def _with_declarations(inspection: Inspection, declarations: Mapping[Any, Any]) -> Inspection:
    """Return *inspection* with C declarations of its symbols."""
    # Only the manifest names the symbols of LTO-IR.
    exported = (SymbolReport(str(name), "func", True) for name in declarations if inspection.kind == LTOIR)
    reports = tuple(
        replace(symbol, c_prototype=declarations.get(symbol.name) or symbol.c_prototype)
        for symbol in inspection.symbols or exported
    )
    parts = tuple(_with_declarations(part, declarations) for part in inspection.parts)
    return replace(inspection, symbols=reports, parts=parts)


def _resource_usage(image: elf.Image) -> dict[str, dict[str, Any]]:
    """Return the resource usage of the public symbols of a cubin, by name, as fields of `SymbolReport`."""
    registers: dict[str, int] = {}
    frames: dict[str, int] = {}
    info = image.section(".nv.info")
    tables = {_EIATTR_REGCOUNT: registers, _EIATTR_FRAME_SIZE: frames}
    for attribute, value in _read_attributes(info.content if info else b""):
        if attribute in tables and len(value) == 8:
            symbol_index, amount = struct.unpack("<II", value)
            if symbol_index < len(image.all_symbols):
                tables[attribute][image.all_symbols[symbol_index].name] = amount
    sizes = {section.name: section.size for section in image.sections}
    return {
        symbol.name: {
            "registers": registers.get(symbol.name),
            "stack": frames.get(symbol.name),
            "shared": sizes.get(f".nv.shared.{symbol.name}", 0),
            "constant": sizes.get(f".nv.constant0.{symbol.name}", 0),
            "size": symbol.size,
        }
        for symbol in image.symbols
    }


def _read_attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    """
    Yield the attributes in a section .nv.info, each with its value; b"" for a value that has no size.

    An attribute has a format (1 byte), a number (1 byte) and a size (2 bytes). A value of this size follows
    only if the format is `_EIFMT_SVAL`.
    """
    offset = 0
    while offset + 4 <= len(content):
        value_format, attribute, size = struct.unpack_from("<BBH", content, offset)
        value = content[offset + 4 : offset + 4 + size] if value_format == _EIFMT_SVAL else b""
        yield attribute, value
        offset += 4 + len(value)


def _symbol_report(symbol: Symbol) -> SymbolReport:
    """Return the report of a symbol of PTX, without resource usage."""
    prototype = str(symbol.prototype) if symbol.prototype else ""
    return SymbolReport(symbol.name, symbol.kind, symbol.defined, prototype, size=symbol.size)
