"""
Make executables of an export: fat binaries for a driver, and object files for a C++ build.

The fat binary for a driver contains machine code, and PTX for newer devices. An object contains a fat binary
for device links, the host functions that launch kernels, and their registration with the CUDA runtime.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._cabi import existing, launcher
from numba_ptxlink._formats import ptx as ptx_format
from numba_ptxlink._formats.kinds import CUBIN, PTX
from numba_ptxlink._fusion.graphs import reachable
from numba_ptxlink._link import backends
from numba_ptxlink._link.backends import CURRENT_ENVIRONMENT, Target
from numba_ptxlink._link.plan import unavailable_reason
from numba_ptxlink._link.read import Input
from numba_ptxlink._link.run import compile_one_ptx, link
from numba_ptxlink._tools import host_compiler, nvfatbin, nvrtc
from numba_ptxlink.errors import ExportError, LinkError, convert_error

from .target_release import MinimumRelease, minimum_of_code, minimum_of_fatbin

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._tools.options import Options

    from .target_release import TargetRelease

    ArchCode = tuple[Arch, bytes, Sequence[str]]
    """The code for one architecture: the PTX, and the symbols that it uses and does not define."""
    Member = tuple[str, Arch, str, bytes]
    """A member of a fat binary: the kind, the architecture, the name and the code."""

log = logging.getLogger(__name__)

# The prefix of the functions of the device runtime that synchronise a grid, such as cudaCGSynchronize.
_GRID_SYNC_PREFIX = "cudaCG"


class Executable(NamedTuple):
    """
    A fat binary that a driver loads.

    Args:
        code: The fat binary.
        minimum: The oldest driver that loads it.
        tools: Names and releases of the compilers of the machine code in the fat binary.
    """

    code: bytes
    minimum: MinimumRelease
    tools: tuple[str, ...]


def missing_definition_reason(undefined: Collection[str], target_release: TargetRelease | None) -> str:
    """
    Return why code with *undefined* symbols cannot be completed for a driver; "" if it can be.

    Args:
        undefined: The symbols.
        target_release: The CUDA release of the driver; None for that of the installed tools.
    """
    names = sorted(name for name in undefined if not name.startswith(_GRID_SYNC_PREFIX))
    if names:
        return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not defined"
    if not undefined or target_release is None:
        return ""
    linker = CURRENT_ENVIRONMENT.linker()
    linker_release = linker[1] if linker else None
    # A driver loads the code of all linkers of its own major version, but refuses code of newer ones.
    if linker_release is None or linker_release[0] != target_release.release[0]:
        return f"the device runtime, which synchronises a grid, is not for {target_release.description}"
    return ""


def pack(
    stem: str,
    arch_codes: Sequence[ArchCode],
    kernels: Sequence[Signature],
    *,
    options: Options,
    target_release: TargetRelease | None = None,
) -> Executable:
    """
    Make the fat binary of *arch_codes*. Needs no driver.

    If no compiler for the target release is installed, the driver compiles the PTX.

    Args:
        stem: The beginning of the members' names.
        arch_codes: The code for each architecture.
        kernels: The kernels of the export.
        options: The options of the compilers of the machine code.
        target_release: The CUDA release that the fat binary is for; None for that of the installed tools.

    Raises:
        ExportError: There is no kernel, or a called function is not defined.
        AssembleError: The PTX could not be assembled.
    """
    if not kernels:
        raise ExportError("The export has no kernel to launch; mark one with @kernel(signature).")
    undefined_symbols = {name for _, _, undefined in arch_codes for name in undefined}
    if cause := missing_definition_reason(undefined_symbols, target_release):
        raise ExportError(
            f"{cause}, and code that a driver loads has to be complete; name the file that defines it by "
            "link= of cuda.declare_device, link() a cubin, or leave kernels and launcher out, and let the "
            "toolkit of your C++ build link the exported PTX."
        )
    members: list[Member] = []
    minimums: list[tuple[str, MinimumRelease]] = []
    tools: dict[str, None] = {}
    for arch, ptx, undefined in arch_codes:
        if undefined:
            # The undefined functions are those of the device runtime, which a driver does not have: link them
            # here. The PTX is added for the CPU device of this package, which has these functions.
            cubin, tool = _link_runtime(stem, arch, ptx, options)
            new_members = [
                (kind, arch, f"{stem}.{arch.sm}.{kind}", code) for kind, code in ((CUBIN, cubin), (PTX, ptx))
            ]
        else:
            new_members, tool = _compile_complete(f"{stem}.{arch.sm}", arch, ptx, options, target_release)
        members += new_members
        minimums += ((kind, minimum_of_code(kind, arch, code, tool)) for kind, _, _, code in new_members)
        if tool:
            tools[tool] = None
    code = nvfatbin.pack(members, relocatable=False, zstd=target_release is None or target_release.reads_zstd)
    return Executable(code, minimum_of_fatbin(minimums, code, linkable=False), tuple(tools))


def _compile_complete(
    name: str, arch: Arch, ptx: bytes, options: Options, target_release: TargetRelease | None
) -> tuple[list[Member], str]:
    """Return the members (a cubin, and PTX for newer GPUs), and the cubin's compiler; "" without a cubin."""
    target = Target(arch, target_release.release if target_release else None)
    members = [(PTX, arch, f"{name}.{PTX}", ptx)]
    if target_release and (cause := unavailable_reason(target_release.release, options)):
        log.warning("no machine code of kernels for %s: %s", target_release.description, cause)
        return members, ""
    cubin, tool = compile_one_ptx(ptx, target, options)
    return [(CUBIN, arch, f"{name}.{CUBIN}", cubin), *members], tool


def _link_runtime(stem: str, arch: Arch, ptx: bytes, options: Options) -> tuple[bytes, str]:
    """Link *ptx* with the device runtime; return the cubin, and name and release of the linker."""
    library = backends.device_runtime()
    if library is None:
        raise ExportError(
            "A kernel that synchronises its whole grid is linked with the device runtime, which is not "
            f"found; {backends.RUNTIME_CURE}."
        )
    try:
        link_result = link([Input(PTX, f"{stem}.ptx", ptx), library], Target(arch), options)
    except LinkError as error:
        raise convert_error(error, ExportError) from error
    tool = next(candidate for candidate in backends.TOOLS if candidate.name == link_result.backend)
    return link_result.cubin, tool.title(tool.release())


def cooperative_kernels(ptx: str, kernels: Collection[str]) -> frozenset[str]:
    """
    Return the members of *kernels* that synchronise their grid, so that all blocks have to run at once.

    Args:
        ptx: The PTX of the kernels.
        kernels: The names of the kernels.

    Raises:
        LinkError: The body of a function is malformed.
    """
    if _GRID_SYNC_PREFIX not in ptx:
        return frozenset()
    module = ptx_format.parse(ptx)
    calls = {
        function.name: {
            ptx_format.parse_call(statement).callee
            for statement in function.body
            if isinstance(statement, ptx_format.Instruction) and statement.opcode == "call"
        }
        for function in module.functions
        if function.defined
    }
    synchronising_functions = {
        name
        for name, callees in calls.items()
        if any(callee.startswith(_GRID_SYNC_PREFIX) for callee in callees)
    }
    return frozenset(name for name in kernels if reachable([name], calls.get) & synchronising_functions)


def build_object(
    stem: str,
    header: str,
    kernels: Sequence[Signature],
    *,
    linkable: bytes,
    loadable: bytes | None,
    include_dirs: Sequence[Path],
) -> tuple[bytes, str]:
    """
    Return the object `STEM.o`, and name and release of the compiler of its host code. Needs no driver.

    Args:
        stem: The stem of the export's files.
        header: The text of the export's header.
        kernels: The kernels that the header declares.
        linkable: The code for a device link, as a fat binary.
        loadable: The fat binary that a driver loads, so that kernels can be launched without a device link;
            None if there are no kernels, or if they call functions that C++ defines.
        include_dirs: The folders of headers that the header includes.

    Raises:
        ExportError: There is no host compiler, or it failed. The message has its log.
    """
    # The files that the host code includes.
    files = {"linkable.fatbin": linkable}
    if kernels:
        files["declared.h"] = header.encode()
    if loadable is not None:
        files["whole.fatbin"] = loadable
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:16]
    source = launcher.host_code(
        launcher.module_name(stem, digest),
        kernels,
        whole=loadable is not None,
        include_cuda_runtime=existing.includes_existing_structs(header),
    )
    folders = (*include_dirs, nvrtc.INCLUDE_DIR, *nvrtc.toolkit_include_dirs()) if kernels else ()
    return host_compiler.compile_object(source, f"{stem}.cpp", files, folders)
