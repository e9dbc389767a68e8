"""The artifacts of an export: the code for each architecture, and what holds code for all of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink._cabi import launcher
from numba_ptxlink._formats.kinds import ARTIFACTS, CUBIN, FATBIN, KERNELS, LAUNCHER, LTOIR, PTX
from numba_ptxlink._link import executables
from numba_ptxlink._link.consumer import of_artifacts
from numba_ptxlink._tools import nvfatbin
from numba_ptxlink._tools.host_compiler import release_of
from numba_ptxlink._tools.options import AssembleOptions

from . import build

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.header import Declaration
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._formats.ptx import Prototype
    from numba_ptxlink._front_end.protocol import CompileOptions
    from numba_ptxlink._link.consumer import Consumer, Oldest

log = logging.getLogger(__name__)

EMIT = (*ARTIFACTS, KERNELS, LAUNCHER, *executables.EXTENSIONS)
"""The kinds of artifact that an export can write."""

_ENDINGS = {KERNELS: "kernels.fatbin", LAUNCHER: "launch.h", **executables.EXTENSIONS}
# What fat binaries, objects and libraries hold for each architecture.
_PACKED = (PTX, LTOIR, CUBIN)

Key = tuple[str, str]
"""Kind and architecture of an artifact, "" for what holds code for all of them."""


@dataclass(frozen=True)
class Request:
    """
    What an export is to write.

    Args:
        stem: What the names of its files begin with, "" for the name of what is exported.
        archs: The GPUs.
        kinds: The kinds of artifact, None for those that can be made of the usual ones.
        options: The options of the compilers.
        consumer: What the artifacts are for, None for the tools of this environment.
        include_dirs: Where the headers are that define structs of the functions.
        front_end: What compiles functions whose decorator names none.
    """

    stem: str
    archs: tuple[Arch, ...]
    kinds: tuple[str, ...] | None
    options: CompileOptions
    consumer: Consumer | None = None
    include_dirs: tuple[Path, ...] = ()
    front_end: str | None = None

    @property
    def asked(self) -> tuple[str, ...]:
        """The kinds that are asked for before it is known whether there are kernels."""
        return ARTIFACTS if self.kinds is None else self.kinds


@dataclass
class Code:
    """
    The code for each architecture.

    Args:
        files: The artifacts of one architecture each.
        parts: All code, of kinds that are not asked for too, as (kind, arch, file name, code).
        launchable: The PTX of each architecture with its undefined symbols.
        externs: The undefined functions of the code by name: PTX prototype, and C signature if it is known.
        undeclared: Those that Python declares and C++ cannot, by name.
        cubin_by: Name and release of the tool that compiled the cubins, "" without one.
        merged: Whether nvJitLink merged link files into it.
    """

    files: dict[Key, bytes] = field(default_factory=dict)
    parts: list[tuple[str, Arch, str, bytes]] = field(default_factory=list)
    launchable: list[executables.Part] = field(default_factory=list)
    externs: dict[str, tuple[Prototype, Signature | None]] = field(default_factory=dict)
    undeclared: dict[str, None] = field(default_factory=dict)
    cubin_by: str = ""
    merged: bool = False

    @property
    def undefined(self) -> set[str]:
        """The undefined functions and variables of the code."""
        return {name for _, _, names in self.launchable for name in names}


@dataclass(frozen=True)
class Artifacts:
    """
    All artifacts of an export.

    Args:
        header: The text of its C header.
        code: The code for each architecture.
        files: The artifacts.
        needs: The oldest toolkit and driver that each of them is for.
        host_compiler: Name and release of what compiled the host code of an object, "" without one.
        kernels_by: Name and release of what compiled machine code that a driver loads.
        cooperative: The kernels that synchronise their grid, and are launched so that all of it runs at once.
        left_out: What could not be made, and why, "" where the log tells it: the kinds of code that what
            holds several kinds lacks, and "kernels".
    """

    header: str
    code: Code
    files: dict[Key, bytes]
    needs: dict[Key, Oldest]
    host_compiler: str = ""
    kernels_by: tuple[str, ...] = ()
    cooperative: frozenset[str] = frozenset()
    left_out: Mapping[str, str] = field(default_factory=dict)


def parts_wanted(request: Request) -> tuple[set[str], set[str]]:
    """Return the kinds of code that are made for each architecture, and those that may be left out."""
    kinds, consumer = request.asked, request.consumer
    wanted = {kind for kind in kinds if kind in ARTIFACTS}
    if _packs(kinds):
        wanted.update(_PACKED)
    if {KERNELS, LAUNCHER}.intersection(kinds):
        wanted.add(PTX)
    dispensable = wanted if consumer and request.kinds is None else wanted.difference(kinds)
    if consumer:
        wanted = consumer.without_impossible(wanted, request.archs, dispensable)
    return set(wanted), set(dispensable)


def _packs(kinds: Collection[str]) -> bool:
    """Return whether one of *kinds* holds code of several kinds."""
    return FATBIN in kinds or any(kind in executables.EXTENSIONS for kind in kinds)


def compile_each(compiled: Sequence[build.Compiled], request: Request) -> Code:
    """
    Compile the lowered functions for each architecture.

    Raises:
        ExportError: A compiler refused the code, or a kind cannot be made for the consumer.
        AssembleError: The PTX could not be assembled.
    """
    kinds, consumer = request.asked, request.consumer
    wanted, dispensable = parts_wanted(request)
    code = Code()
    for lowered in compiled:
        arch = lowered.arch
        built = build.build(lowered, wanted, request.options, dispensable=dispensable, consumer=consumer)
        code.externs.update(built.externs)
        code.undeclared.update(dict.fromkeys(built.undeclared))
        code.cubin_by, code.merged = built.cubin_by, built.merged
        code.launchable.append((arch, built.artifacts.get(PTX, b""), [*built.externs, *built.variables]))
        for kind, content in built.artifacts.items():
            # A linker would take a fat binary's LTO-IR, and miss in it what the cubin beside it has.
            if not (kind == LTOIR and built.partial_ltoir):
                code.parts.append((kind, arch, f"{request.stem}.{arch.sm}.{kind}", content))
            if kind in kinds:
                code.files[kind, arch.sm] = content
    return code


def join(code: Code, request: Request, header: str, declarations: Sequence[Declaration]) -> Artifacts:
    """
    Make what holds code for all architectures.

    Args:
        code: The code.
        request: What the export is to write.
        header: The text of its C header.
        declarations: Its functions.

    Raises:
        ExportError: A tool refused the code, or is not installed.
        AssembleError: The PTX could not be assembled.
    """
    kinds, consumer, options = request.asked, request.consumer, request.options
    signatures = [declaration.signature for declaration in declarations]
    kernels = [signature for signature in signatures if signature.kernel]
    why = ""
    if request.kinds is None and kernels:
        why = executables.obstacle(code.undefined, consumer)
        kinds += () if why else (KERNELS,)
    names = [kernel.name for kernel in kernels]
    cooperative = executables.cooperative(code.launchable[0][1].decode(), names)
    files = dict(code.files)
    if FATBIN in kinds:
        files[FATBIN, ""] = nvfatbin.pack(code.parts, zstd=consumer is None or consumer.reads_zstd)
    executable, host_compiler = None, ""
    if {KERNELS, LAUNCHER}.intersection(kinds):
        executable = executables.pack(
            request.stem,
            code.launchable,
            signatures,
            level=options.level,
            lineinfo=options.lineinfo,
            consumer=consumer,
        )
        if KERNELS in kinds:
            files[KERNELS, ""] = executable.code
        if LAUNCHER in kinds:
            files[LAUNCHER, ""] = launcher.render(
                request.stem, declarations, executable.code, cooperative
            ).encode()
    with_host_code = [kind for kind in kinds if kind in executables.EXTENSIONS]
    if with_host_code:
        whole = AssembleOptions(opt_level=options.level, lineinfo=options.lineinfo)
        built, host_compiler = executables.build_object(
            request.stem,
            header,
            kernels,
            code.parts,
            None if code.undefined else whole,
            consumer=consumer,
            include_dirs=request.include_dirs,
        )
        forms = executables.as_kinds(request.stem, built, with_host_code)
        files |= {(kind, ""): content for kind, content in forms.items()}
    needs = of_artifacts(files, code.parts, code.cubin_by, executable and executable.needs)
    for kind in with_host_code:
        _warn_of_older_nvcc(file_name(request.stem, (kind, "")), host_compiler, needs[kind, ""].toolkit)
    kernels_by = executable.tools if executable else ()
    made = {kind for kind, *_ in code.parts}
    left_out = {kind: "" for kind in _PACKED if kind not in made} if _packs(kinds) else {}
    if why:
        log.info("no kernels for a driver: %s", why)
        left_out[KERNELS] = why
    return Artifacts(header, code, files, needs, host_compiler, kernels_by, cooperative, left_out)


def _warn_of_older_nvcc(name: str, host_compiler: str, needed: tuple[int, int] | None) -> None:
    """Warn of an nvcc that has compiled host code and cannot link the device code beside it."""
    release = release_of(host_compiler)
    if release and needed and release < needed:
        own = f"{release[0]}.{release[1]}"
        log.warning(
            "%s holds device code that linkers read from CUDA %d.%d on, and the nvcc that is found is of %s: "
            "where it is to link, export for it by cuda=%r or --cuda %s",
            name,
            *needed,
            own,
            own,
            own,
        )


def file_name(stem: str, key: Key) -> str:
    """Return the name of the artifact *key* of the export *stem*."""
    kind, arch = key
    return ".".join(filter(None, (stem, arch, _ENDINGS.get(kind, kind))))
