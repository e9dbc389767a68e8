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
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._artifacts.consumer import LeftOut, ltoir_tool
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.kinds import CUBIN, LTOIR, PTX
from numba_ptxlink._formats.ptx import Prototype, parse
from numba_ptxlink._fusion.combine import NotCombinedError, combine
from numba_ptxlink._link.backends import Target
from numba_ptxlink._link.run import compile_ptx
from numba_ptxlink._tools import nvrtc, nvvm
from numba_ptxlink.errors import ExportError, LinkError, PtxlinkError

from . import externs, link_files
from .lower import lower
from .signatures import each_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numba_ptxlink import abi
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._artifacts.consumer import Consumer
    from numba_ptxlink._formats.ptx import Module
    from numba_ptxlink._front_end.protocol import IR, CompileOptions, FrontEnd, LinkFile
    from numba_ptxlink._tools.nvvm import Nvvm

    from .signatures import Unit

log = logging.getLogger(__name__)

# NVVM and the assembler take as long for a program of one function as for the next six.
_USUAL, _MOST = 8, 16
_SHARED = re.compile(r"^@.* addrspace\(3\) global ", re.MULTILINE)


GroupKey = tuple["Arch", tuple[str, ...]]
"""A group: the architecture, and the C names of its functions."""


@dataclass(frozen=True)
class Group:
    """
    A group of functions.

    Args:
        functions: The functions.
        ptx: The PTX of all, b"" where it is not made yet.
    """

    functions: tuple[IR, ...]
    ptx: bytes = b""

    @property
    def links(self) -> tuple[LinkFile, ...]:
        """The files that they link."""
        return tuple(dict.fromkeys(link for each in self.functions for link in each.links))


@dataclass(frozen=True)
class Program:
    """
    All functions of an export for one arch.

    Args:
        front_end: What compiled them.
        arch: The GPU.
        groups: The functions, in order.
        links: The files that they link.
    """

    front_end: FrontEnd
    arch: Arch
    groups: tuple[Group, ...]
    links: tuple[LinkFile, ...] = ()

    @property
    def functions(self) -> tuple[IR, ...]:
        """The LLVM IR of each function."""
        return tuple(each for group in self.groups for each in group.functions)

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


def split(names: Sequence[str], options: CompileOptions) -> list[range]:
    """
    Return the groups of the functions *names*, by their positions.

    A name says whether a group ends with it, so that a function that is added or removed changes one group.
    """
    if len(names) <= _MOST or options.lineinfo:
        # Line numbers refer to a table of files that a program has one of.
        return [range(len(names))]
    groups, start = [], 0
    for place, name in enumerate(names, start=1):
        if zlib.crc32(name.encode()) % _USUAL == 0 or place - start == _MOST or place == len(names):
            groups.append(range(start, place))
            start = place
    return groups


def compile_group(units: Sequence[Unit], arch: Arch, options: CompileOptions) -> Group:
    """
    Lower *units*, which are of one front end, and compile them to PTX.

    Raises:
        PtxlinkError: A compiler refused functions. Names all of them.
    """
    functions = tuple(each_of(lambda unit: lower(unit, arch, options), units))
    return Group(functions, _compile_ptx(units[0].front_end, functions, arch, options))


def programs(
    units: Sequence[Unit],
    archs: Sequence[Arch],
    options: CompileOptions,
    done: Mapping[GroupKey, Group],
) -> list[Program]:
    """
    Lower *units*, which are of one front end, and compile them in groups for each of *archs*.

    Args:
        units: The functions.
        archs: The GPUs.
        options: The options of the export.
        done: What groups of them have become elsewhere, by architecture and C names.

    Raises:
        PtxlinkError: A compiler refused functions. Names all of them.
    """
    groups = split([each.symbol for each in units], options)

    def compiled(arch: Arch, group: range) -> Group:
        own = units[group.start : group.stop]
        key = (arch, tuple(each.symbol for each in own))
        return done[key] if key in done else compile_group(own, arch, options)

    return [
        program(units[0].front_end, arch, each_of(functools.partial(compiled, arch), groups))
        for arch in archs
    ]


def program(front_end: FrontEnd, arch: Arch, groups: Iterable[Group]) -> Program:
    """Return *groups* with the files that their functions link."""
    groups = tuple(groups)
    links = dict.fromkeys(link for group in groups for link in group.links)
    return Program(front_end, arch, groups, tuple(links))


def build(
    program: Program,
    kinds: Collection[str],
    options: CompileOptions,
    *,
    dispensable: Collection[str] = (),
    consumer: Consumer | None = None,
) -> Code:
    """
    Return the artifacts of *kinds*, with the link files merged in where they can be linked.

    Args:
        program: The functions.
        kinds: The kinds of artifact: "ptx", "ltoir", "cubin".
        options: The options of the export.
        dispensable: Those of *kinds* that are left out where the toolkit cannot make them.
        consumer: The toolkit and driver that the code is for; None for those of this environment.

    Raises:
        ExportError: A compiler refused the code, or a prototype differs from the one C++ declares.
        AssembleError: The PTX could not be assembled.
    """
    arch, front_end, functions = program.arch, program.front_end, program.functions
    texts = [each.ptx or _compile_ptx(front_end, each.functions, arch, options) for each in program.groups]
    ptx = _joined(program.groups, texts) or _compile_ptx(front_end, functions, arch, options)
    read = parse(ptx.decode())
    missing = externs.undefined(read)
    with link_files.as_export_errors(functions):
        externs.check_declarations(functions, program.links)
        linked, private = link_files.compile_files(
            program.links,
            missing,
            arch,
            tag([each.name for each in program.signatures]),
            externs.callers(functions),
        )
        ltoir, left_out = b"", []
        toolkit = consumer.toolkit(arch) if consumer and LTOIR in kinds and not linked else None
        modules = link_files.renamed(_modules(functions), private)
        if linked or (LTOIR in kinds and toolkit is None):
            ltoir = compile_ir(front_end, functions, modules, arch, options, lto=True)
        if linked:
            ptx = link_files.merge_ptx(ltoir, linked, arch, program.signatures, options)
            read = parse(ptx.decode())
            missing = externs.undefined(read)
        if LTOIR in kinds and (linked or toolkit):
            try:
                ltoir = (
                    compile_ir(front_end, functions, modules, arch, options, lto=True, toolkit=toolkit)
                    if toolkit
                    else _merged(ltoir, linked, arch, functions, consumer)
                )
            except PtxlinkError as error:
                if LTOIR not in dispensable:
                    raise
                left_out.append(LeftOut(LTOIR, str(error)))
                ltoir = b""
    if consumer:
        ptx = consumer.lowered(ptx, arch)
        read = parse(ptx.decode())
    _verify(read, program.signatures, arch)
    artifacts, made_by = {PTX: ptx, LTOIR: ltoir}, {}
    if ltoir and LTOIR in kinds:
        made_by[LTOIR] = str(toolkit) if toolkit else ltoir_tool(arch, merged=bool(linked))
    if CUBIN in kinds:
        assembled = options.tools._replace(relocatable=True)
        target = Target(arch, consumer.release if consumer else None)
        artifacts[CUBIN], made_by[CUBIN] = compile_ptx(ptx, target, assembled)
    called = externs.with_signatures(missing, functions)
    return Code(
        arch,
        {kind: code for kind, code in artifacts.items() if kind in kinds and code},
        called,
        made_by,
        bool(linked),
        (*called, *read.undefined_variables),
        tuple(left_out),
    )


def _merged(
    ltoir: bytes,
    linked: Sequence[tuple[str, bytes]],
    arch: Arch,
    functions: Sequence[IR],
    consumer: Consumer | None,
) -> bytes:
    """Return *ltoir* with the link files in it, which *consumer* has to read."""
    merged = link_files.merge_ltoir(ltoir, linked, arch, functions)
    if consumer:
        consumer.check_merged(arch)
    return merged


def _modules(functions: Iterable[IR]) -> list[str]:
    """Return the LLVM IR of functions and of all that they call, each once, callers before callees."""
    modules = [module for each in functions for module in each.modules]
    return list(dict.fromkeys(reversed(modules)))[::-1]


def _compile_ptx(front_end: FrontEnd, functions: Sequence[IR], arch: Arch, options: CompileOptions) -> bytes:
    """Return the PTX of *functions* in one module."""
    ptx = compile_ir(front_end, functions, _modules(functions), arch, options, lto=False)
    return ptx.rstrip(b"\0").strip() + b"\n"


def _joined(groups: Sequence[Group], texts: Sequence[bytes]) -> bytes | None:
    """Return the PTX of all groups as one; None where it is to be made of all functions at once."""
    if len(groups) == 1:
        return texts[0]
    modules = Counter(text for group in groups for text in _modules(group.functions))
    if any(count > 1 and _SHARED.search(text) for text, count in modules.items()):
        # Functions that call it share its memory.
        log.debug("a function with shared memory is called in several groups")
        return None
    try:
        return combine([parse(text.decode()) for text in texts]).text.encode()
    except NotCombinedError as error:
        log.debug("the PTX of groups is not combined: %s", error)
        return None


def compile_ir(
    front_end: FrontEnd,
    functions: Sequence[IR],
    modules: Sequence[str],
    arch: Arch,
    options: CompileOptions,
    *,
    lto: bool,
    toolkit: Nvvm | None = None,
) -> bytes:
    """
    Compile the LLVM IR *modules*, which define *functions*, to PTX or LTO-IR, with NVVM or that of *toolkit*.

    Raises:
        ExportError: NVVM refused it, or is missing.
    """
    try:
        return front_end.compile_ir(modules, arch, options, lto=lto, toolkit=toolkit)
    except Exception as error:
        listed = ", ".join(each.signature.name for each in functions)
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


def tag(names: Sequence[str]) -> str:
    """Return the suffix of private names in the code of the symbols *names*."""
    return f"{zlib.crc32(' '.join(names).encode()):08x}"
