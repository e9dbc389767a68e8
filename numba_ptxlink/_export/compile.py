"""
Compile the LLVM IR of functions to PTX, LTO-IR and relocatable cubins for one arch.

PTX is made of groups of functions, at a time and anywhere: what compiles the LLVM IR finds it in the cache by
its text, so that an edit costs no more than a group. What the groups are depends on the functions' names
alone. LTO-IR is made of all functions at once.
"""

from __future__ import annotations

import functools
import logging
import re
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from numba_ptxlink._artifacts.target_release import LeftOut, ltoir_tool
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink._formats.ptx import Prototype, parse
from numba_ptxlink._fusion import NotCombinedError
from numba_ptxlink._fusion.combine import combine
from numba_ptxlink._link.backends import Target
from numba_ptxlink._link.run import compile_ptx
from numba_ptxlink._tools import nvrtc, nvvm
from numba_ptxlink.errors import ExportError, LinkError, PtxlinkError

from . import externs, link_files
from .lower import lower
from .signatures import map_collecting_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numba_ptxlink import abi
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._artifacts.target_release import TargetRelease
    from numba_ptxlink._formats.ptx import Module
    from numba_ptxlink._front_end.protocol import FrontEnd, LinkFile, LoweredFunction
    from numba_ptxlink._tools.nvvm import Nvvm
    from numba_ptxlink._tools.options import Options

    from .signatures import ResolvedFunction

log = logging.getLogger(__name__)

# NVVM and the assembler take as long for a program of one function as for the next six.
_USUAL, _MOST = 8, 16
_SHARED = re.compile(r"^@.* addrspace\(3\) global ", re.MULTILINE)


GroupKey = tuple["Arch", tuple[str, ...]]
"""A group: the architecture, and the C names of its functions."""


@dataclass(frozen=True)
class Group:
    """
    Functions of one front end, compiled to PTX for one arch.

    Args:
        front_end: What compiled them.
        arch: The GPU.
        functions: The LLVM IR of each, in order.
        ptx: The PTX of all.
    """

    front_end: FrontEnd
    arch: Arch
    functions: tuple[LoweredFunction, ...]
    ptx: bytes

    @property
    def links(self) -> tuple[LinkFile, ...]:
        """The files that they link."""
        return tuple(dict.fromkeys(link for each in self.functions for link in each.links))

    @property
    def signatures(self) -> tuple[abi.Signature, ...]:
        """The C signature of each function."""
        return tuple(each.signature for each in self.functions)


@dataclass(frozen=True)
class Code:
    """
    The code of an export for one arch.

    Args:
        arch: The GPU.
        artifacts: Code by kind: "ptx", "ltoir", "cubin".
        externs: The undefined symbols of the code by name: PTX prototype, and C signature if it is known.
        made_by: Name and release of the tools that made the LTO-IR and the cubin, by kind.
        merged: Whether nvJitLink merged link files into the code.
        undefined: The names of *externs* and of undefined variables.
        left_out: The kinds that could not be made.
    """

    arch: Arch
    artifacts: dict[str, bytes]
    externs: dict[str, tuple[Prototype, abi.Signature | None]]
    made_by: dict[str, str]
    merged: bool
    undefined: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()


def split(units: Sequence[ResolvedFunction], options: Options) -> list[Sequence[ResolvedFunction]]:
    """
    Return *units* in groups.

    A name says whether a group ends with it, so that a function that is added or removed changes one group.
    """
    if len(units) <= _MOST or options.lineinfo:
        # Line numbers refer to a table of files that a program has one of.
        return [units]
    groups, start = [], 0
    for end, unit in enumerate(units, start=1):
        if zlib.crc32(unit.symbol.encode()) % _USUAL == 0 or end - start == _MOST or end == len(units):
            groups.append(units[start:end])
            start = end
    return groups


def symbols(units: Iterable[ResolvedFunction]) -> tuple[str, ...]:
    """Return the C names of *units*."""
    return tuple(each.symbol for each in units)


def compile_group(units: Sequence[ResolvedFunction], arch: Arch, options: Options) -> Group:
    """
    Lower *units*, which are of one front end, and compile them to PTX.

    Raises:
        PtxlinkError: A compiler refused functions. Names all of them.
    """
    functions = tuple(map_collecting_errors(lambda unit: lower(unit, arch, options), units))
    return compile_functions(units[0].front_end, arch, functions, options)


def compile_units(
    units: Sequence[ResolvedFunction],
    archs: Sequence[Arch],
    options: Options,
    done: Mapping[GroupKey, Group],
) -> list[Group]:
    """
    Lower *units*, which are of one front end, and compile them in groups, which are one for each of *archs*.

    Args:
        units: The functions.
        archs: The GPUs.
        options: The options of the export.
        done: What groups of them have become elsewhere, by architecture and C names.

    Raises:
        PtxlinkError: A compiler refused functions. Names all of them.
    """
    parts = split(units, options)

    def group(arch: Arch, part: Sequence[ResolvedFunction]) -> Group:
        return done.get((arch, symbols(part))) or compile_group(part, arch, options)

    return [_joined(map_collecting_errors(functools.partial(group, arch), parts), options) for arch in archs]


def build(
    group: Group,
    kinds: Collection[str],
    options: Options,
    *,
    dispensable: Collection[str] = (),
    target_release: TargetRelease | None = None,
) -> Code:
    """
    Return the artifacts of *kinds*, with the link files merged in where they can be linked.

    Args:
        group: The functions.
        kinds: The kinds of artifact: "ptx", "ltoir", "cubin".
        options: The options of the export.
        dispensable: Those of *kinds* that are left out where the toolkit cannot make them.
        target_release: The toolkit and driver that the code is for; None for those of this environment.

    Raises:
        ExportError: A compiler refused the code, or a prototype differs from the one C++ declares.
        AssembleError: The PTX could not be assembled.
    """
    arch, functions, signatures, ptx = group.arch, group.functions, group.signatures, group.ptx
    read = parse(ptx.decode())
    missing = externs.undefined(read)
    ltoir, made_by = b"", {}
    left_out: tuple[LeftOut, ...] = ()
    with link_files.as_export_errors(functions):
        externs.check_declarations(functions, group.links)
        linked, private = link_files.compile_files(
            group.links,
            missing,
            arch,
            f"{zlib.crc32(' '.join(each.name for each in signatures).encode()):08x}",
            externs.callers(functions),
        )
        modules = link_files.renamed(_modules(functions), private)
        if linked:
            plain = _compile_ir(group, modules, options, lto=True)
            ptx = link_files.merge_ptx(plain, linked, arch, signatures, options)
            read = parse(ptx.decode())
            missing = externs.undefined(read)
        if LTOIR in kinds:
            toolkit = target_release.toolkit(arch) if target_release and not linked else None
            try:
                if linked:
                    ltoir = link_files.merge_ltoir(plain, linked, arch, functions)
                    if target_release:
                        target_release.check_merged(arch)
                else:
                    ltoir = _compile_ir(group, modules, options, lto=True, toolkit=toolkit)
                made_by[LTOIR] = str(toolkit) if toolkit else ltoir_tool(arch, merged=bool(linked))
            except PtxlinkError as error:
                # What this environment's compiler refuses is an error, as it is for PTX.
                if LTOIR not in dispensable or not (linked or toolkit):
                    raise
                ltoir, left_out = b"", (LeftOut(LTOIR, str(error)),)
    if target_release:
        ptx = target_release.lowered(ptx, arch)
        read = parse(ptx.decode())
    _verify(read, signatures, arch)
    artifacts = {PTX: ptx, LTOIR: ltoir}
    if CUBIN in kinds:
        assembled = options._replace(relocatable=True)
        target = Target(arch, target_release.release if target_release else None)
        artifacts[CUBIN], made_by[CUBIN] = compile_ptx(ptx, target, assembled)
    called = externs.with_signatures(missing, functions)
    return Code(
        arch,
        {kind: code for kind, code in artifacts.items() if kind in kinds and code},
        called,
        made_by,
        bool(linked),
        (*called, *read.undefined_variables),
        left_out,
    )


def _modules(functions: Iterable[LoweredFunction]) -> list[str]:
    """Return the LLVM IR of functions and of all that they call, each once, callers before callees."""
    modules = [module for each in functions for module in each.modules]
    return list(dict.fromkeys(reversed(modules)))[::-1]


def compile_functions(
    front_end: FrontEnd, arch: Arch, functions: tuple[LoweredFunction, ...], options: Options
) -> Group:
    """Return *functions* with their PTX, made in one module."""
    group = Group(front_end, arch, functions, b"")
    ptx = _compile_ir(group, _modules(functions), options, lto=False)
    return replace(group, ptx=ptx.rstrip(b"\0").strip() + b"\n")


def _joined(groups: Sequence[Group], options: Options) -> Group:
    """Return all groups as one, whose PTX is theirs, or is made of all functions at once."""
    if len(groups) == 1:
        return groups[0]
    functions = tuple(each for group in groups for each in group.functions)
    modules = Counter(text for group in groups for text in _modules(group.functions))
    if any(count > 1 and _SHARED.search(text) for text, count in modules.items()):
        # Functions that call it share its memory.
        log.debug("a function with shared memory is called in several groups")
    else:
        try:
            ptx = combine([parse(group.ptx.decode()) for group in groups]).text.encode()
            return replace(groups[0], functions=functions, ptx=ptx)
        except NotCombinedError as error:
            log.debug("the PTX of groups is not combined: %s", error)
    return compile_functions(groups[0].front_end, groups[0].arch, functions, options)


def _compile_ir(
    group: Group,
    modules: Sequence[str],
    options: Options,
    *,
    lto: bool,
    toolkit: Nvvm | None = None,
) -> bytes:
    """
    Compile the LLVM IR *modules*, which define *group*, to PTX or LTO-IR, with NVVM or that of *toolkit*.

    Raises:
        ExportError: NVVM refused it, or is missing.
    """
    arch = group.arch
    try:
        return group.front_end.compile_ir(modules, arch, options, lto=lto, toolkit=toolkit)
    except Exception as error:
        listed = ", ".join(each.name for each in group.signatures)
        if toolkit:
            raise ExportError(
                f"{toolkit}, {toolkit.path}, could not compile {listed} for {arch.sm}: {error}; leave ltoir "
                "out, export for a later release of CUDA, or export them one by one to see which it refuses."
            ) from error
        try:
            nvrtc.version()  # a front end may load it to find libdevice
            known = nvvm.emitted_isa(arch)
        except LinkError as missing:
            raise ExportError(f"{listed} cannot be compiled for {arch.sm}: {missing}") from error
        if known is None:
            raise ExportError(
                f"NVVM generates no code for {arch.sm}; `--arch all` stands for what it knows."
            ) from error
        raise ExportError(
            f"NVVM could not compile {listed} for {arch.sm}: {error}; take a newer NVVM, or export "
            "them one by one to see which one it refuses."
        ) from error


def _verify(ptx: Module, signatures: Sequence[abi.Signature], arch: Arch) -> None:
    visible = {f.name: f.prototype for f in ptx.functions if f.defined and f.linkage == "visible"}
    for signature in signatures:
        expected = signature.prototype_for(llvm_ir.NvvmDialect.of(arch))
        if visible.get(signature.name) != expected:
            raise ExportError(
                f"NVVM gave {signature.name} the prototype {visible.get(signature.name)} where C++ has "
                f"{expected}; please report this with the function's signature."
            )
