"""
Compile the LLVM IR of functions to PTX, LTO-IR and relocatable cubins for one GPU architecture.

PTX is compiled in groups of functions, perhaps in parallel and on other machines. The cache finds the PTX of
a group by its LLVM IR, so that an edit recompiles one group. The functions' names alone determine the groups.
LTO-IR is compiled from all functions at once.
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
from numba_ptxlink._link.run import compile_one_ptx
from numba_ptxlink._tools import nvrtc, nvvm
from numba_ptxlink.errors import ExportError, LinkError, PtxlinkError

from . import externs, link_files, progress
from .lower import lower
from .signatures import map_collecting_errors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numba_ptxlink import abi
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._artifacts.target_release import TargetRelease
    from numba_ptxlink._formats.ptx import Module
    from numba_ptxlink._front_end.base import FrontEnd
    from numba_ptxlink._front_end.lowered import LinkFile, LoweredFunction
    from numba_ptxlink._tools.nvvm import Nvvm
    from numba_ptxlink._tools.options import Options

    from .signatures import ResolvedFunction

log = logging.getLogger(__name__)

# Functions are compiled in groups, since each call of NVVM and the assembler costs as much as six functions.
_MEAN_GROUP_SIZE, _MAX_GROUP_SIZE = 8, 16
# A variable in shared memory, such as `@"cache" = internal addrspace(3) global [8 x float] undef`.
_SHARED_VARIABLE = re.compile(r"^@.* addrspace\(3\) global ", re.MULTILINE)


GroupKey = tuple["Arch", tuple[str, ...]]
"""A group of one export, before it is compiled: its architecture, and the C names of its functions."""


@dataclass(frozen=True)
class Group:
    """
    Functions of one front end, compiled to PTX for one architecture.

    Args:
        front_end: The front end that lowered the functions to LLVM IR.
        arch: The GPU architecture.
        functions: The functions as LLVM IR.
        ptx: One PTX module of all functions.
    """

    front_end: FrontEnd
    arch: Arch
    functions: tuple[LoweredFunction, ...]
    ptx: bytes

    @property
    def links(self) -> tuple[LinkFile, ...]:
        """The files that the functions link."""
        return tuple(dict.fromkeys(link for function in self.functions for link in function.links))

    @property
    def signatures(self) -> tuple[abi.Signature, ...]:
        """The C signature of each function."""
        return tuple(function.signature for function in self.functions)


@dataclass(frozen=True)
class Code:
    """
    The code of an export for one architecture.

    Args:
        arch: The GPU architecture.
        artifacts: The code by kind: "ptx", "ltoir", "cubin".
        externs: The undefined functions by name: the PTX prototype, and the C signature, None if unknown.
        compilers: Name and release of the compilers, by the kind that they made: "ltoir", "cubin".
        merged: Whether nvJitLink merged link files into the code.
        undefined: The names of the undefined functions and variables.
        left_out: The kinds of code that could not be made.
    """

    arch: Arch
    artifacts: dict[str, bytes]
    externs: dict[str, tuple[Prototype, abi.Signature | None]]
    compilers: dict[str, str]
    merged: bool
    undefined: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()


def split(functions: Sequence[ResolvedFunction], options: Options) -> list[Sequence[ResolvedFunction]]:
    """
    Divide *functions* into groups.

    The hash of a function's name decides whether a group ends with it, so that adding or removing a function
    changes one group.
    """
    if len(functions) <= _MAX_GROUP_SIZE or options.lineinfo:
        # Joined PTX lacks the lines where functions were inlined (`inlined_at`), so with line numbers all
        # functions are compiled at once.
        return [functions]
    groups = []
    start = 0
    for end, function in enumerate(functions, start=1):
        if (
            zlib.crc32(function.symbol.encode()) % _MEAN_GROUP_SIZE == 0
            or end - start == _MAX_GROUP_SIZE
            or end == len(functions)
        ):
            groups.append(functions[start:end])
            start = end
    return groups


def symbols(functions: Iterable[ResolvedFunction]) -> tuple[str, ...]:
    """Return the C names of *functions*."""
    return tuple(function.symbol for function in functions)


def compile_group(functions: Sequence[ResolvedFunction], arch: Arch, options: Options) -> Group:
    """
    Lower *functions*, which are of one front end, and compile them to PTX.

    Raises:
        PtxlinkError: A compiler refused functions. The message names all of them.
    """

    def lower_one(function: ResolvedFunction) -> LoweredFunction:
        # Counted as completed when it begins: the count then is the number of the function in progress.
        progress.step(f"compile {function.symbol} for {arch.sm}", completed=1)
        return lower(function, arch, options)

    lowered_functions = tuple(map_collecting_errors(lower_one, functions))
    progress.step(f"optimise {', '.join(function.symbol for function in functions)} for {arch.sm}")
    return compile_lowered(functions[0].front_end, arch, lowered_functions, options)


def compile_in_groups(
    functions: Sequence[ResolvedFunction],
    archs: Sequence[Arch],
    options: Options,
    compiled_elsewhere: Mapping[GroupKey, Group],
) -> list[Group]:
    """
    Lower *functions*, which are of one front end, compile them in groups, and join these for each of *archs*.

    Args:
        functions: The functions.
        archs: The GPU architectures.
        options: The options of the export.
        compiled_elsewhere: Groups that workers have compiled, by architecture and C names.

    Raises:
        PtxlinkError: A compiler refused functions. The message names all of them.
    """
    members_of_groups = split(functions, options)

    def compile_members(arch: Arch, members: Sequence[ResolvedFunction]) -> Group:
        return compiled_elsewhere.get((arch, symbols(members))) or compile_group(members, arch, options)

    uncompiled_groups = (
        members
        for arch in archs
        for members in members_of_groups
        if (arch, symbols(members)) not in compiled_elsewhere
    )
    progress.step(expected=sum(map(len, uncompiled_groups)))
    return [
        _join(map_collecting_errors(functools.partial(compile_members, arch), members_of_groups), options)
        for arch in archs
    ]


def build(
    group: Group,
    kinds: Collection[str],
    options: Options,
    *,
    dispensable: Collection[str] = (),
    target_release: TargetRelease | None = None,
) -> Code:
    """
    Return the code of *kinds* for one architecture, with the link files of the functions merged in.

    Args:
        group: All functions of the export, compiled to PTX.
        kinds: The kinds of code: "ptx", "ltoir", "cubin".
        options: The options of the export.
        dispensable: The members of *kinds* that are left out if the toolkit cannot make them.
        target_release: The CUDA release that the code is for; None for that of the installed tools.

    Raises:
        ExportError: A compiler refused the code, or a function's PTX prototype differs from that in C++.
        AssembleError: The PTX could not be assembled.
    """
    arch, functions, signatures = group.arch, group.functions, group.signatures
    ptx = group.ptx
    # A suffix for the symbols of link files. Two exports that link the same file each contain its functions:
    # the suffix makes their names differ, so that both exports can be linked to one program.
    tag = f"{zlib.crc32(' '.join(signature.name for signature in signatures).encode()):08x}"
    progress.step(f"make {', '.join(sorted(kinds))} for {arch.sm}")
    module = parse(ptx.decode())
    undefined_functions = externs.undefined_functions(module)
    artifacts: dict[str, bytes] = {}
    compilers: dict[str, str] = {}
    left_out: tuple[LeftOut, ...] = ()
    with link_files.as_export_errors(functions):
        externs.check_declarations(functions, group.links)
        # The private names, which have the suffix, by the symbols in the link files.
        linked_files, private_names = link_files.compile_files(
            group.links, undefined_functions, arch, tag, externs.callers(functions)
        )
        modules = link_files.rename_functions(_llvm_modules(functions), private_names)
        # LTO-IR of the functions alone, into which the link files are merged.
        functions_ltoir = _compile_ir(group, modules, options, lto=True) if linked_files else b""
        if linked_files:
            ptx = link_files.merge_ptx(functions_ltoir, linked_files, arch, signatures, options)
            module = parse(ptx.decode())
            undefined_functions = externs.undefined_functions(module)
        if LTOIR in kinds:
            # The target release may read only LTO-IR of a libNVVM older than this environment's. For link
            # files, an older libNVVM is no help: nvJitLink merges them, and writes LTO-IR of its own release.
            older_nvvm = target_release.nvvm_for(arch) if target_release and not linked_files else None
            try:
                if linked_files:
                    ltoir = _merge_ltoir(group, functions_ltoir, linked_files, target_release)
                else:
                    ltoir = _compile_ir(group, modules, options, lto=True, older_nvvm=older_nvvm)
                ltoir_compiler = (
                    str(older_nvvm) if older_nvvm else ltoir_tool(arch, merged=bool(linked_files))
                )
            except PtxlinkError as error:
                # LTO-IR is left out if link files cannot be merged into it, or if an older libNVVM rejects
                # the functions. Errors of this environment's libNVVM, which has compiled the same LLVM IR to
                # PTX, are raised.
                if LTOIR not in dispensable or not (linked_files or older_nvvm):
                    raise
                left_out = (LeftOut(LTOIR, str(error)),)
            else:
                artifacts[LTOIR], compilers[LTOIR] = ltoir, ltoir_compiler
    if target_release:
        ptx = target_release.reduce_version(ptx, arch)
        module = parse(ptx.decode())
    _check_prototypes(module, signatures, arch)
    if PTX in kinds:
        artifacts = {PTX: ptx, **artifacts}  # PTX first, as in the manifest.
    if CUBIN in kinds:
        target = Target(arch, target_release.release if target_release else None)
        artifacts[CUBIN], compilers[CUBIN] = compile_one_ptx(ptx, target, options._replace(relocatable=True))
    externs_by_name = externs.with_signatures(undefined_functions, functions)
    return Code(
        arch,
        artifacts,
        externs_by_name,
        compilers,
        bool(linked_files),
        (*externs_by_name, *module.undefined_variables),
        left_out,
    )


def _merge_ltoir(
    group: Group,
    ltoir: bytes,
    linked_files: Sequence[tuple[str, bytes]],
    target_release: TargetRelease | None,
) -> bytes:
    """
    Merge link files into the LTO-IR of *group*.

    Raises:
        ExportError: Linkers of *target_release* could not read the result.
        LinkError: The merge failed.
    """
    if target_release:
        target_release.check_ltoir_merge(group.arch)
    return link_files.merge_ltoir(ltoir, linked_files, group.arch, group.functions)


def _llvm_modules(functions: Iterable[LoweredFunction]) -> list[str]:
    """Return the LLVM IR of functions and their callees, each module once, callers first."""
    modules = [module for function in functions for module in function.modules]
    # The last occurrence of a module follows all its callers.
    return list(dict.fromkeys(reversed(modules)))[::-1]


def compile_lowered(
    front_end: FrontEnd, arch: Arch, functions: tuple[LoweredFunction, ...], options: Options
) -> Group:
    """Compile the LLVM IR of *functions* to one PTX module."""
    group = Group(front_end, arch, functions, b"")
    ptx = _compile_ir(group, _llvm_modules(functions), options, lto=False)
    # libNVVM returns text that ends with a null byte.
    return replace(group, ptx=ptx.rstrip(b"\0").strip() + b"\n")


def _join(groups: Sequence[Group], options: Options) -> Group:
    """Join groups: combine their PTX if possible, else compile all functions at once."""
    if len(groups) == 1:
        return groups[0]
    functions = tuple(function for group in groups for function in group.functions)
    groups_per_module = Counter(module for group in groups for module in _llvm_modules(group.functions))
    if any(count > 1 and _SHARED_VARIABLE.search(module) for module, count in groups_per_module.items()):
        # All callers of a function share its `__shared__` memory, which separate groups would duplicate.
        log.debug("a function with shared memory is called in several groups")
    else:
        try:
            ptx = combine([parse(group.ptx.decode()) for group in groups]).text.encode()
            return replace(groups[0], functions=functions, ptx=ptx)
        except NotCombinedError as error:
            log.debug("the PTX of groups is not combined: %s", error)
    return compile_lowered(groups[0].front_end, groups[0].arch, functions, options)


def _compile_ir(
    group: Group,
    modules: Sequence[str],
    options: Options,
    *,
    lto: bool,
    older_nvvm: Nvvm | None = None,
) -> bytes:
    """
    Compile *modules*, the LLVM IR of *group*, to PTX or LTO-IR, by libNVVM or by *older_nvvm*.

    Raises:
        ExportError: libNVVM refused the modules, or is missing.
    """
    arch = group.arch
    try:
        return group.front_end.compile_ir(modules, arch, options, lto=lto, older_nvvm=older_nvvm)
    except Exception as error:
        names = ", ".join(signature.name for signature in group.signatures)
        if older_nvvm:
            raise ExportError(
                f"{older_nvvm}, {older_nvvm.path}, could not compile {names} for {arch.sm}: {error}; leave "
                "ltoir out, export for a later release of CUDA, or export the functions one by one to see "
                "which of them it refuses."
            ) from error
        try:
            # The cause may be a missing library, which the front end's error does not name: libNVVM, or
            # NVRTC, which the front end loads to find libdevice. These calls load both libraries, and raise
            # LinkError if one is missing.
            nvrtc.version()
            isa = nvvm.emitted_isa(arch)
        except LinkError as missing_library:
            message = f"{names} cannot be compiled for {arch.sm}: {missing_library}"
            raise ExportError(message) from error
        if isa is None:
            raise ExportError(
                f"NVVM does not support {arch.sm}; choose another GPU, or all GPUs that NVVM supports by "
                "`--arch all`."
            ) from error
        raise ExportError(
            f"NVVM could not compile {names} for {arch.sm}: {error}; upgrade NVVM, or export "
            "the functions one by one to see which of them it refuses."
        ) from error


def _check_prototypes(ptx: Module, signatures: Sequence[abi.Signature], arch: Arch) -> None:
    """Raise an error if *ptx* does not define the functions with the prototypes of the C header."""
    prototypes = {
        function.name: function.prototype
        for function in ptx.functions
        if function.defined and function.linkage == "visible"
    }
    for signature in signatures:
        # The alignment of large structs depends on the release of LLVM in NVVM, which differs by *arch*.
        expected = signature.prototype_for(llvm_ir.NvvmDialect.of(arch))
        if prototypes.get(signature.name) != expected:
            raise ExportError(
                f"{signature.name} has the prototype {prototypes.get(signature.name)} in PTX, and {expected} "
                "in C++; please report this with the function's signature."
            )
