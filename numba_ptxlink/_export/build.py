"""
Compile marked functions to PTX, LTO-IR and relocatable cubins for one arch.

Functions are lowered one by one, and compiled to machine code in groups, so that an edit of one costs no more
than its group, and groups may be compiled at a time, anywhere. What the groups are depends on the functions'
names alone. LTO-IR is made of all functions at once.
"""

from __future__ import annotations

import functools
import logging
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink._formats.ptx import Prototype, parse
from numba_ptxlink._link import single_ptx
from numba_ptxlink._tools.options import AssembleOptions
from numba_ptxlink.errors import ExportError

from . import externs, groups, link_files
from .groups import Lowering, portable
from .signatures import each_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from numba_ptxlink import abi
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Module
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd, LinkFile
    from numba_ptxlink._link.consumer import Consumer

    from .signatures import Typed

__all__ = ["Built", "Compiled", "build", "callers", "lower", "portable", "tag"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Compiled:
    """
    All functions of an export for one arch, lowered and with their C functions.

    Args:
        front_end: What compiled them.
        arch: The GPU.
        lowered: What each function was lowered to.
        links: The files that they link.
        ptx: The PTX of groups of them, in order; None where it is not made yet.
    """

    front_end: FrontEnd
    arch: Arch
    lowered: tuple[Lowering, ...]
    links: tuple[LinkFile, ...] = ()
    ptx: tuple[bytes, ...] | None = None

    @property
    def signatures(self) -> tuple[abi.Signature, ...]:
        """The C signature of each function."""
        return tuple(lowered.signature for lowered in self.lowered)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the functions link by their paths, with the headers that these include."""
        return tuple(link_files.paths(self.links))


@dataclass(frozen=True)
class Built:
    """
    All functions of an export for one arch.

    Args:
        artifacts: Code by kind: "ptx", "ltoir", "cubin".
        externs: The undefined symbols of the code by name: PTX prototype, and C signature if it is known.
        undeclared: Those that `cuda.declare_device` declares and C++ cannot, by name.
        cubin_by: Name and release of the tool that compiled the cubin, "" without a cubin.
        merged: Whether nvJitLink merged link files into the code.
        variables: The undefined variables of the code, which link files declare.
    """

    artifacts: dict[str, bytes]
    externs: dict[str, tuple[Prototype, abi.Signature | None]]
    undeclared: tuple[str, ...] = ()
    cubin_by: str = ""
    merged: bool = False
    variables: tuple[str, ...] = ()


def lower(functions: Sequence[Typed], arch: Arch, options: CompileOptions) -> Compiled:
    """
    Lower *functions*, which are of one front end.

    Raises:
        AbiError: A function's name or types have no counterpart in C.
        ExportError: The front end refused a function.
    """
    lowered = groups.lower_each(functions, arch, options)
    return Compiled(functions[0].front_end, arch, lowered, read_links(lowered))


def compile_archs(
    functions: Sequence[Typed],
    archs: Sequence[Arch],
    options: CompileOptions,
    done: Mapping[tuple[Arch, tuple[str, ...]], groups.Done],
    progress: Callable[[int, int, str], object],
) -> list[Compiled]:
    """
    Lower and compile *functions*, which are of one front end, for each of *archs*.

    Args:
        functions: The functions.
        archs: The GPUs.
        options: The options of the export.
        done: What groups of them have become elsewhere, by architecture and C names.
        progress: Called after each group.

    Raises:
        PtxlinkError: A compiler refused functions. Names all of them.
    """
    places = groups.split([each.symbol for each in functions], options)
    # All archs get the same content, whatever is written meanwhile.
    read = functools.cache(link_files.read)
    count = 0

    def compiled(arch: Arch, group: range) -> groups.Done:
        nonlocal count
        count += 1
        own = [functions[place] for place in group]
        names = tuple(each.symbol for each in own)
        if (arch, names) in done:
            return done[arch, names]
        part = groups.compile_group(own, arch, options)
        progress(count, len(places) * len(archs), groups.title(arch, names))
        return part

    result = []
    for arch in archs:
        parts = each_of(functools.partial(compiled, arch), places)
        whole = tuple(each for part in parts for each in part.lowered)
        ptx = tuple(part.ptx for part in parts)
        result.append(Compiled(functions[0].front_end, arch, whole, read_links(whole, read), ptx))
    return result


def read_links(
    lowered: Sequence[Lowering], read: Callable[[Any], LinkFile] = link_files.read
) -> tuple[LinkFile, ...]:
    """
    Read the files that functions link, each once, in the working directory of this process.

    Args:
        lowered: What each function was lowered to.
        read: Reads one.

    Raises:
        ExportError: One cannot be read. Names the function.
    """
    found: dict[LinkFile, None] = {}
    for each in lowered:
        try:
            found.update(dict.fromkeys(map(read, each.links)))
        except ExportError as error:
            raise ExportError(f"Function {each.title}: {error}", inputs=error.inputs) from error
    return tuple(found)


def build(
    compiled: Compiled,
    kinds: Collection[str],
    options: CompileOptions,
    *,
    dispensable: Collection[str] = (),
    consumer: Consumer | None = None,
) -> Built:
    """
    Return the artifacts of *kinds*, with the link files merged in where they can be linked.

    Args:
        compiled: The functions.
        kinds: The kinds of artifact: "ptx", "ltoir", "cubin".
        options: The options of the export.
        dispensable: Those of *kinds* that are left out, with a warning, where the toolkit cannot make them.
        consumer: The toolkit and driver that the code is for; None for those of this environment.

    Raises:
        ExportError: A compiler refused the code, or a prototype differs from the one C++ declares.
        AssembleError: The PTX could not be assembled.
    """
    arch, front_end, lowered = compiled.arch, compiled.front_end, compiled.lowered
    names = [signature.name for signature in compiled.signatures]
    members = [tuple(lowered[place] for place in places) for places in groups.split(names, options)]
    texts = compiled.ptx or [groups.compile_ptx(front_end, group, arch, options) for group in members]
    ptx = groups.join_ptx([groups.Done(*each) for each in zip(members, texts, strict=True)])
    if ptx is None:
        ptx = groups.compile_ptx(front_end, lowered, arch, options)
    read = parse(ptx.decode())
    missing = externs.undefined(read)
    declared = tuple(dict.fromkeys(each for one in lowered for each in one.declarations))
    externs.check_declarations(lowered)
    externs.check_types(lowered, compiled.links)
    linked, private = link_files.compile_files(
        compiled.links,
        missing,
        arch,
        tag(names),
        callers(compiled),
    )
    ltoir = b""
    if linked or LTOIR in kinds:
        modules = link_files.renamed(groups.program(lowered), private)
        ltoir = groups.compile_program(front_end, lowered, modules, arch, options, lto=True)
    if linked:
        ptx = externs.merge_ptx(
            ltoir,
            linked,
            compiled.arch,
            [signature.name for signature in compiled.signatures if not signature.kernel],
            kernels=[signature.name for signature in compiled.signatures if signature.kernel],
            lineinfo=options.lineinfo,
            opt=options.opt,
        ).encode()
        read = parse(ptx.decode())
        missing = externs.undefined(read)
        if LTOIR in kinds:
            try:
                ltoir = externs.merge_ltoir(ltoir, linked, compiled.arch)
                if consumer:
                    consumer.check_ltoir(ltoir, arch)
            except ExportError as error:
                if LTOIR not in dispensable:
                    raise
                log.warning("no LTO-IR for %s: %s", arch.sm, error)
                ltoir = b""
    if consumer:
        ptx = consumer.lowered(ptx, compiled.arch)
        read = parse(ptx.decode())
    _verify(read, compiled.signatures, compiled.arch)
    artifacts, made_by = {PTX: ptx, LTOIR: ltoir}, ""
    if CUBIN in kinds:
        assembled = AssembleOptions(relocatable=True, opt_level=options.level, lineinfo=options.lineinfo)
        artifacts[CUBIN], made_by = single_ptx.compile_ptx(
            ptx, arch, assembled, consumer.release if consumer else None
        )
    kept = {kind: code for kind, code in artifacts.items() if kind in kinds and code}
    return Built(
        kept,
        *_with_signatures(missing, declared),
        made_by,
        merged=bool(linked),
        variables=read.undefined_variables,
    )


def _with_signatures(
    missing: Mapping[str, Prototype], declared: Sequence[tuple[str, abi.Signature | None]]
) -> tuple[dict[str, tuple[Prototype, abi.Signature | None]], tuple[str, ...]]:
    """Return the functions *missing* with their C signatures, and those *declared* that have none."""
    declarations: dict[str, list[abi.Signature | None]] = {}
    for name, plain in declared:
        if name in missing:
            declarations.setdefault(name, []).append(externs.matching(plain, missing[name]))
    known = {
        name: (prototype, next(filter(None, declarations.get(name, ())), None))
        for name, prototype in missing.items()
    }
    return known, tuple(
        name for name, (_, signature) in known.items() if signature is None and name in declarations
    )


def callers(compiled: Compiled) -> dict[str, str]:
    """Return "name (file.py:line)" of the first caller of each that `cuda.declare_device` declares."""
    return {name: each.title for each in reversed(compiled.lowered) for name, _ in each.declarations}


def _verify(ptx: Module, signatures: Sequence[abi.Signature], arch: Arch) -> None:
    visible = {f.name: f.prototype for f in ptx.functions if f.defined and f.linkage == "visible"}
    for signature in signatures:
        expected = signature.prototype_for(modern=llvm_ir.is_modern(arch))
        if visible.get(signature.name) != expected:
            raise ExportError(
                f"NVVM gave {signature.name} the prototype {visible.get(signature.name)} where C++ has "
                f"{expected}; please report this with the function's signature."
            )


def tag(names: Sequence[str]) -> str:
    """Return the suffix of private names in the code of the symbols *names*."""
    return f"{zlib.crc32(' '.join(names).encode()):08x}"
