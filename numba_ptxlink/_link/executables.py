"""
Make what is loaded of an export: fat binaries for a driver, and object files for a C++ build.

A fat binary has machine code, and PTX for later devices. An object holds the fat binary for device links of
every architecture, the host functions that launch kernels, and their registration with the CUDA runtime.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._arch import dotted
from numba_ptxlink._cabi import existing, launcher
from numba_ptxlink._formats import ptx as ptx_format
from numba_ptxlink._formats.kinds import CUBIN, OBJECT, PTX
from numba_ptxlink._tools import host_compiler, nvfatbin, nvrtc
from numba_ptxlink._tools.options import AssembleOptions
from numba_ptxlink.errors import ExportError, LinkError

from . import backends, single_ptx
from .consumer import Oldest, of_code, of_fatbin
from .plan import LinkOptions
from .read import Input
from .run import link

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.signatures import Signature

    from .consumer import Consumer

    Part = tuple[Arch, bytes, Sequence[str]]
    """What is there for one architecture: its PTX, and the symbols that this does not define."""

log = logging.getLogger(__name__)

LIBRARY = "library"
EXTENSIONS = {OBJECT: "o", LIBRARY: "a"}
"""The kinds of artifact that hold host code, and the extensions of their files."""
_GRID = "cudaCG"


class Executable(NamedTuple):
    """
    What a driver loads.

    Args:
        code: The fat binary.
        needs: The oldest driver that loads it.
        tools: Name and release of what compiled machine code in it.
    """

    code: bytes
    needs: Oldest
    tools: tuple[str, ...]


def obstacle(undefined: Iterable[str], consumer: Consumer | None) -> str:
    """Return why code with *undefined* symbols cannot be made complete for *consumer*, "" where it can."""
    names = list(undefined)
    if not all(map(_is_grid_call, names)):
        return _not_defined(names)
    if names and consumer is not None and not _has_runtime_for(consumer):
        return f"the device runtime, which synchronises a grid, is not for {consumer.asked}"
    return ""


def pack(
    stem: str,
    parts: Sequence[Part],
    signatures: Sequence[Signature],
    *,
    level: int,
    lineinfo: bool,
    consumer: Consumer | None = None,
) -> Executable:
    """
    Make the fat binary of *parts*. Needs no driver.

    Where no compiler for the consumer is installed, the driver compiles the PTX.

    Args:
        stem: What its members are called.
        parts: The code.
        signatures: The functions of the export.
        level: How much is optimised, 0 or 3.
        lineinfo: Whether to keep line numbers.
        consumer: The toolkit and driver it is for; None for those of this environment.

    Raises:
        ExportError: There is no kernel, or what the kernels call is not defined.
        AssembleError: The PTX could not be assembled.
    """
    if not any(signature.kernel for signature in signatures):
        raise ExportError("The export has no kernel to launch; mark one with @kernel(signature).")
    members: list[tuple[str, Arch, str, bytes]] = []
    needs: list[tuple[str, Oldest]] = []
    tools: dict[str, None] = {}
    release = consumer.release if consumer else None
    cause = single_ptx.unavailable(release, relocatable=False) if release else ""
    if consumer and cause:
        log.warning("no machine code of kernels for %s: %s", consumer.asked, cause)

    def add(kind: str, arch: Arch, code: bytes, tool: str) -> None:
        members.append((kind, arch, f"{stem}.{arch.sm}.{kind}", code))
        needs.append((kind, of_code(kind, arch, code, tool)))

    for arch, ptx, undefined in parts:
        cubin, tool = b"", ""
        if undefined:
            if not all(map(_is_grid_call, undefined)):
                raise ExportError(
                    f"{_not_defined(undefined)}, and code that a driver loads has to be complete; name the "
                    "file that defines it by link= of cuda.declare_device, or link() a cubin."
                )
            cubin, tool = _with_runtime(stem, arch, ptx, level=level, lineinfo=lineinfo, consumer=consumer)
        elif not cause:
            options = AssembleOptions(relocatable=False, opt_level=level, lineinfo=lineinfo)
            cubin, tool = single_ptx.compile_ptx(ptx, arch, options, release)
        if cubin:
            add(CUBIN, arch, cubin, tool)
            tools[tool] = None
        if not undefined:
            # A device of a later generation compiles it when the kernel is loaded. The driver has no device
            # runtime to link it with.
            add(PTX, arch, ptx, "")
    code = nvfatbin.pack(members, relocatable=False, zstd=consumer is None or consumer.reads_zstd)
    return Executable(code, of_fatbin(needs, code, linkable=False), tuple(tools))


def _with_runtime(
    stem: str, arch: Arch, ptx: bytes, *, level: int, lineinfo: bool, consumer: Consumer | None
) -> tuple[bytes, str]:
    """Return *ptx* linked with the device runtime, and name and release of the linker."""
    what = "A kernel that synchronises its whole grid is linked with the device runtime"
    if consumer is not None and not _has_runtime_for(consumer):
        raise ExportError(
            f"{what}, which is of this environment and not for {consumer.asked}; leave kernels and launcher "
            "out, and let that toolkit link the exported PTX."
        )
    library = backends.device_runtime()
    if library is None:
        raise ExportError(f"{what}, which is not found; {backends.RUNTIME_CURE}.")
    options = LinkOptions(lineinfo=lineinfo, opt_level=level)
    try:
        linked = link([Input(PTX, f"{stem}.ptx", ptx), library], arch, options)
    except LinkError as error:
        raise ExportError(str(error), flags=error.flags, inputs=error.inputs, log=error.log) from error
    release = dotted(backends.linker(linked.backend).version())
    return linked.cubin, f"nvJitLink {release}"


def _has_runtime_for(consumer: Consumer | None) -> bool:
    """Return whether drivers of *consumer* load what this environment links: that of their major version."""
    linker = backends.installed()
    return consumer is None or (linker is not None and linker[1][0] == consumer.release[0])


def _not_defined(undefined: Sequence[str]) -> str:
    # The device runtime is linked with what synchronises a grid.
    names = sorted(name for name in undefined if not _is_grid_call(name))
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not defined"


def _is_grid_call(name: str) -> bool:
    """Return whether the function *name* of the device runtime synchronises a grid."""
    return name.startswith(_GRID)


def cooperative(text: str, kernels: Collection[str]) -> frozenset[str]:
    """
    Return those of *kernels* that synchronise their grid, which wants all of its blocks to run at once.

    Args:
        text: The PTX of the kernels.
        kernels: Their names.

    Raises:
        LinkError: The body of a function is malformed.
    """
    if _GRID not in text:
        return frozenset()
    module = ptx_format.parse(text)
    calls = {
        function.name: {
            ptx_format.called(statement).callee
            for statement in function.body
            if isinstance(statement, ptx_format.Instruction) and statement.opcode == "call"
        }
        for function in module.functions
        if function.defined
    }
    return frozenset(name for name in kernels if any(map(_is_grid_call, _reached(name, calls))))


def _reached(name: str, calls: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    pending = [name]
    while pending:
        new = calls.get(pending.pop(), set()) - reached
        reached |= new
        pending += new
    return reached


def build_object(
    stem: str,
    header: str,
    kernels: Sequence[Signature],
    packed: Sequence[tuple[str, Arch, str, bytes]],
    options: AssembleOptions | None,
    *,
    consumer: Consumer | None = None,
    include_dirs: Sequence[Path] = (),
) -> tuple[bytes, str]:
    """
    Return the object `STEM.o`, and name and release of the compiler of its host code. Needs no driver.

    Args:
        stem: The stem of the export's files.
        header: The text of its header.
        kernels: The kernels that it declares.
        packed: Its code, each (kind, arch, name, code).
        options: How to compile the kernels as a whole program too, so that they can be launched without a
            device link; None where they call what C++ defines, and cannot.
        consumer: The toolkit and driver it is for; None for those of this environment.
        include_dirs: Where headers are that the header includes.

    Raises:
        AssembleError: The PTX could not be assembled.
        ExportError: There is no compiler, or it failed. Carries its log.
        LinkError: nvFatbin is missing or refused an entry.
    """
    zstd = consumer is None or consumer.reads_zstd
    linkable = nvfatbin.pack(packed, zstd=zstd)
    files = {"linkable.fatbin": linkable}
    if kernels:
        files["declared.h"] = header.encode()
    if kernels and options is not None:
        files["whole.fatbin"] = nvfatbin.pack(_whole(packed, options, consumer), relocatable=False, zstd=zstd)
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:16]
    source = launcher.host_code(
        launcher.module_name(stem, digest),
        kernels,
        header="declared.h",
        like_cuda=existing.is_in(header),
        linkable="linkable.fatbin",
        whole="whole.fatbin" if "whole.fatbin" in files else None,
    )
    searched = (*include_dirs, nvrtc.INCLUDE_DIR, *nvrtc.toolkit_include_dirs()) if kernels else ()
    return host_compiler.compile_object(source, f"{stem}.cpp", files, searched)


def as_kinds(stem: str, code: bytes, kinds: Collection[str]) -> dict[str, bytes]:
    """
    Return the object *code* of the export *stem* as each of *kinds* that is one of `EXTENSIONS`.

    Raises:
        ExportError: There is no ar to make a library, or it failed.
    """
    files = {OBJECT: code} if OBJECT in kinds else {}
    return files | ({LIBRARY: host_compiler.archive(f"{stem}.o", code)} if LIBRARY in kinds else {})


def _whole(
    packed: Sequence[tuple[str, Arch, str, bytes]], options: AssembleOptions, consumer: Consumer | None
) -> list[tuple[str, Arch, str, bytes]]:
    release = consumer.release if consumer else None
    # Without such a compiler the driver compiles the PTX.
    compiles = release is None or not single_ptx.unavailable(release, relocatable=False)
    entries = []
    for kind, arch, name, code in packed:
        if kind == PTX:
            if compiles:
                cubin, _ = single_ptx.compile_ptx(code, arch, options, release)
                entries.append((CUBIN, arch, f"{name}.cubin", cubin))
            entries.append((PTX, arch, name, code))
    return entries
