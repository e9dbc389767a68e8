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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink._formats.ptx import Prototype, parse
from numba_ptxlink._link import single_ptx
from numba_ptxlink._tools import nvjitlink
from numba_ptxlink.errors import ExportError, PtxlinkError

from . import constants, externs, groups, link_files, linkable, lowering
from .lowering import Lowering, declared, portable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numba_ptxlink import abi
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Module
    from numba_ptxlink._front_end.protocol import CompileOptions, FrontEnd, LinkFile
    from numba_ptxlink._link.consumer import Consumer

    from .signatures import Typed

__all__ = ["Built", "Compiled", "build", "callers", "declared", "lower", "portable", "tag"]

log = logging.getLogger(__name__)

# What is in the names of Numba's functions of a type.
_TYPES = {"__half": "float16", "__nv_bfloat16": "bfloat16"}


@dataclass(frozen=True)
class Compiled:
    """
    All functions of an export for one arch, lowered and with their C functions.

    Args:
        front_end: What compiled them.
        arch: The GPU.
        functions: The Python functions.
        lowered: What each of them was lowered to.
        links: The files that they link.
        code: The code of groups of them, in order; None where it is not made yet.
    """

    front_end: FrontEnd
    arch: Arch
    functions: tuple[Any, ...]
    lowered: tuple[Lowering, ...]
    links: tuple[LinkFile, ...] = ()
    code: tuple[groups.GroupCode, ...] | None = None

    @property
    def signatures(self) -> tuple[abi.Signature, ...]:
        """The C signature of each function."""
        return tuple(lowered.signature for lowered in self.lowered)

    @property
    def raises(self) -> tuple[tuple[str, ...], ...]:
        """The source lines where each function or its callees raise, as "file.py:line"."""
        return tuple(lowered.raises for lowered in self.lowered)

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
        partial_ltoir: Whether the LTO-IR lacks functions.
    """

    artifacts: dict[str, bytes]
    externs: dict[str, tuple[Prototype, abi.Signature | None]]
    undeclared: tuple[str, ...] = ()
    cubin_by: str = ""
    merged: bool = False
    variables: tuple[str, ...] = ()
    partial_ltoir: bool = False


def lower(functions: Sequence[Typed], arch: Arch, options: CompileOptions) -> Compiled:
    """
    Lower *functions*, which are of one front end.

    Raises:
        AbiError: A function's name or types have no counterpart in C.
        ExportError: The front end refused a function.
    """
    front_end = functions[0].front_end
    lowered = lowering.lower_each(functions, arch, options)
    python = tuple(function.udf.function for function in functions)
    return Compiled(front_end, arch, python, lowered, read_links(functions, lowered))


def compile_archs(
    functions: Sequence[Typed],
    archs: Sequence[Arch],
    options: CompileOptions,
    *,
    cubins: bool,
    done: Mapping[tuple[Arch, tuple[str, ...]], groups.Done],
    progress: Callable[[int, int, str], object],
) -> list[Compiled]:
    """
    Lower and compile *functions*, which are of one front end, for each of *archs*.

    Args:
        functions: The functions.
        archs: The GPUs.
        options: The options of the export.
        cubins: Whether relocatable machine code is made, too.
        done: What groups of them have become elsewhere, by architecture and C names.
        progress: Called after each group.

    Raises:
        PtxlinkError: A compiler refused functions. Names all of them.
    """
    names = [each.symbol for each in functions]
    places = groups.split(names, options)
    cubin = cubins and len(places) > 1 and groups.joins_cubins()
    # All archs get the same content, whatever is written meanwhile.
    read = functools.cache(linkable.read)
    python = tuple(function.udf.function for function in functions)
    compiled = []
    for number, arch in enumerate(archs):
        parts: list[groups.Done] = []
        errors: list[PtxlinkError] = []
        for count, group in enumerate(places, start=1 + number * len(places)):
            own = tuple(names[place] for place in group)
            part = done.get((arch, own))
            if part is None:
                try:
                    lowered = lowering.lower_each([functions[place] for place in group], arch, options)
                except PtxlinkError as error:
                    errors.append(error)
                    continue
                code = groups.compile_group(functions[0].front_end, lowered, arch, options, cubin=cubin)
                part = groups.Done(lowered, code)
                more = f" and {len(own) - 1} more" if len(own) > 1 else ""
                progress(count, len(places) * len(archs), f"{arch.sm}: {own[0]}{more}")
            parts.append(part)
        lowering.raise_all(errors)
        whole = tuple(each for part in parts for each in part.lowered)
        links = read_links(functions, whole, read)
        codes = tuple(part.code for part in parts)
        compiled.append(Compiled(functions[0].front_end, arch, python, whole, links, codes))
    return compiled


def read_links(
    functions: Sequence[Typed], lowered: Sequence[Lowering], read: Callable[[Any], LinkFile] = linkable.read
) -> tuple[LinkFile, ...]:
    """
    Read the files that *functions* link, each once, in the working directory of this process.

    Args:
        functions: The functions.
        lowered: What each of them was lowered to.
        read: Reads one.

    Raises:
        ExportError: One cannot be read. Names the function.
    """
    found: dict[LinkFile, None] = {}
    for function, each in zip(functions, lowered, strict=True):
        try:
            found.update(dict.fromkeys(map(read, each.links)))
        except ExportError as error:
            where = f"Function {function.udf.name} ({function.udf.source})"
            raise ExportError(f"{where}: {error}", inputs=error.inputs) from error
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
    members = [[lowered[place] for place in places] for places in groups.split(names, options)]
    codes = compiled.code or tuple(
        groups.compile_group(
            front_end, group, arch, options, cubin=joinable_cubins(kinds, consumer, len(members))
        )
        for group in members
    )
    modules = groups.program(lowered)
    compile_program = partial(groups.compile_program, front_end, names=names, arch=arch, options=options)
    ptx = groups.join_ptx(members, codes)
    whole = ptx is None
    if ptx is None:
        ptx = compile_program(modules, lto=False).rstrip(b"\0").strip() + b"\n"
    read = parse(ptx.decode())
    missing = externs.undefined(read)
    declared = tuple(dict.fromkeys(each for one in lowered for each in one.declarations))
    linkable.check_declarations(_declaring(compiled))
    linkable.check_types(_calls(compiled), compiled.links, compiled.signatures)
    linked = link_files.compile_files(
        compiled.links,
        missing,
        arch,
        tag(names),
        callers(compiled),
    )
    ltoir, partial_ltoir = b"", False
    if linked.code or LTOIR in kinds:
        ltoir = compile_program(linked.renamed(modules), lto=True)
    if linked.code:
        ptx = externs.merge_ptx(
            ltoir,
            linked.code,
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
                ltoir = externs.merge_ltoir(ltoir, linked.code, compiled.arch)
                if consumer:
                    consumer.check_ltoir(ltoir, arch)
            except ExportError as error:
                if consumer is None and nvjitlink.merges_ltoir():
                    raise
                rest = _without_merge(compiled, linked, error, dispensable=LTOIR in dispensable)
                partial_ltoir = bool(rest)
                ltoir = compile_program(groups.program(rest), lto=True) if rest else b""
    if consumer:
        ptx = consumer.lowered(ptx, compiled.arch)
        read = parse(ptx.decode())
    _verify(read, compiled.signatures, compiled.arch)
    constants.check(read, compiled.functions)
    artifacts, made_by = {PTX: ptx, LTOIR: ltoir}, ""
    if CUBIN in kinds:
        joined = None if whole or linked.code or consumer else groups.join_cubins(codes, arch)
        artifacts[CUBIN], made_by = joined or single_ptx.compile_ptx(
            ptx, arch, groups.cubin_options(options), consumer.release if consumer else None
        )
    kept = {kind: code for kind, code in artifacts.items() if kind in kinds and code}
    return Built(
        kept,
        *_with_signatures(missing, declared),
        made_by,
        merged=bool(linked.code),
        variables=read.undefined_variables,
        partial_ltoir=partial_ltoir,
    )


def _without_merge(
    compiled: Compiled, linked: link_files.LinkFiles, error: ExportError, *, dispensable: bool
) -> list[Lowering]:
    """
    Return the functions that call nothing that *linked* defines, and so are LTO-IR without a merge.

    Raises:
        ExportError: There is none, and the LTO-IR is not *dispensable*. Names the functions, and their types.
    """
    rest, calling = [], []
    for function, lowered in zip(compiled.functions, compiled.lowered, strict=True):
        text = "\n".join(lowered.modules)
        called = [name for name in linked.names if f'@"{name}"' in text]
        if not called:
            rest.append(lowered)
            continue
        uses = (next((ty for mark, ty in _TYPES.items() if mark in name), name) for name in called)
        place = f"{lowered.signature.name} ({_place(function)})"
        calling.append(f"{place}, which uses {', '.join(dict.fromkeys(uses))}")
    told = "; ".join(calling)
    if rest:
        log.warning("the LTO-IR for %s is without %s. %s", compiled.arch.sm, told, error)
    elif not dispensable:
        raise ExportError(f"No LTO-IR of {told}. {error}", inputs=error.inputs) from error
    else:
        log.warning("no LTO-IR for %s, of %s. %s", compiled.arch.sm, told, error)
    return rest


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


def _declaring(compiled: Compiled) -> Iterator[tuple[str, tuple[str, ...], set[str]]]:
    """Yield "name (file.py:line)", LLVM IR, and what `cuda.declare_device` declares, of each function."""
    for function, lowered in zip(compiled.functions, compiled.lowered, strict=True):
        names = {name for name, _ in lowered.declarations}
        yield f"{lowered.signature.name} ({_place(function)})", lowered.modules, names


def _calls(compiled: Compiled) -> Iterator[tuple[str, abi.Signature]]:
    """Yield "name (file.py:line)" of each function with what `cuda.declare_device` declares for it."""
    for function, lowered in zip(compiled.functions, compiled.lowered, strict=True):
        for _, plain in lowered.declarations:
            if plain is not None:
                yield f"{lowered.signature.name} ({_place(function)})", plain


def callers(compiled: Compiled) -> dict[str, str]:
    """Return "name (file.py:line)" of the first caller of each that `cuda.declare_device` declares."""
    return {name: caller for caller, _, names in reversed([*_declaring(compiled)]) for name in names}


def _place(function: Any) -> str:
    """Return the file and line of a Python function."""
    return f"{Path(function.__code__.co_filename).name}:{function.__code__.co_firstlineno}"


def _verify(ptx: Module, signatures: Sequence[abi.Signature], arch: Arch) -> None:
    visible = {f.name: f.prototype for f in ptx.functions if f.defined and f.linkage == "visible"}
    for signature in signatures:
        expected = signature.prototype_for(modern=llvm_ir.is_modern(arch))
        if visible.get(signature.name) != expected:
            raise ExportError(
                f"NVVM gave {signature.name} the prototype {visible.get(signature.name)} where C++ has "
                f"{expected}; please report this with the function's signature."
            )


def joinable_cubins(kinds: Collection[str], consumer: Consumer | None, count: int) -> bool:
    """Return whether the machine code of *count* groups is made group by group."""
    return CUBIN in kinds and consumer is None and count > 1 and groups.joins_cubins()


def tag(names: Sequence[str]) -> str:
    """Return the suffix of private names in the code of the symbols *names*."""
    return f"{zlib.crc32(' '.join(names).encode()):08x}"
