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
from numba_ptxlink._tools.options import AssembleOptions

from . import build

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
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
class Artifacts:
    """
    All artifacts of an export.

    Args:
        files: The artifacts.
        parts: The code for each architecture, of kinds that are not asked for too, as (kind, arch, file name,
            code).
        launchable: The PTX of each architecture with its undefined symbols.
        externs: The undefined functions of the code by name: PTX prototype, and C signature if it is known.
        undeclared: Those that Python declares and C++ cannot, by name.
        cubin_by: Name and release of the tool that compiled the cubins, "" without one.
        merged: Whether nvJitLink merged link files into the code.
        needs: The oldest toolkit and driver that each artifact is for.
        host_compiler: Name and release of what compiled the host code of an object, "" without one.
        kernels_by: Name and release of what compiled machine code that a driver loads.
        cooperative: The kernels that synchronise their grid, and are launched so that all of it runs at once.
        left_out: What could not be made, and why, "" where the log tells it: the kinds of code that what
            holds several kinds lacks, and "kernels".
    """

    files: dict[Key, bytes] = field(default_factory=dict)
    parts: list[tuple[str, Arch, str, bytes]] = field(default_factory=list)
    launchable: list[executables.Part] = field(default_factory=list)
    externs: dict[str, tuple[Prototype, Signature | None]] = field(default_factory=dict)
    undeclared: dict[str, None] = field(default_factory=dict)
    cubin_by: str = ""
    merged: bool = False
    needs: dict[Key, Oldest] = field(default_factory=dict)
    host_compiler: str = ""
    kernels_by: tuple[str, ...] = ()
    cooperative: frozenset[str] = frozenset()
    left_out: dict[str, str] = field(default_factory=dict)


def _parts_wanted(request: Request) -> tuple[set[str], set[str]]:
    """Return the kinds of code that are made for each architecture, and those that may be left out."""
    kinds, consumer = request.asked, request.consumer
    wanted = {kind for kind in kinds if kind in ARTIFACTS}
    if _packs(kinds):
        wanted.update(_PACKED)
    if {KERNELS, LAUNCHER}.intersection(kinds):
        wanted.add(PTX)
    dispensable = wanted if request.kinds is None else wanted.difference(kinds)
    if consumer:
        wanted = set(consumer.without_impossible(wanted, request.archs, dispensable))
    return wanted, set(dispensable)


def _packs(kinds: Collection[str]) -> bool:
    """Return whether one of *kinds* holds code of several kinds."""
    return FATBIN in kinds or any(kind in executables.EXTENSIONS for kind in kinds)


def compile_each(compiled: Sequence[build.Compiled], request: Request) -> Artifacts:
    """
    Compile the lowered functions for each architecture.

    Raises:
        ExportError: A compiler refused the code, or a kind cannot be made for the consumer.
        AssembleError: The PTX could not be assembled.
    """
    wanted, dispensable = _parts_wanted(request)
    made = Artifacts()
    for lowered in compiled:
        arch = lowered.arch
        built = build.build(
            lowered, wanted, request.options, dispensable=dispensable, consumer=request.consumer
        )
        made.externs.update(built.externs)
        made.undeclared.update(dict.fromkeys(built.undeclared))
        made.cubin_by, made.merged = built.cubin_by, built.merged
        made.launchable.append((arch, built.artifacts.get(PTX, b""), [*built.externs, *built.variables]))
        for kind, content in built.artifacts.items():
            made.parts.append((kind, arch, f"{request.stem}.{arch.sm}.{kind}", content))
            if kind in request.asked:
                made.files[kind, arch.sm] = content
    return made


def join(made: Artifacts, request: Request, header: str, declarations: Sequence[Declaration]) -> None:
    """
    Add to *made* what holds code for all architectures.

    Args:
        made: The code of each.
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
    undefined = {name for _, _, names in made.launchable for name in names}
    if _packs(kinds):
        there = {kind for kind, *_ in made.parts}
        made.left_out = {kind: "" for kind in _PACKED if kind not in there}
    if request.kinds is None and kernels:
        why = executables.obstacle(undefined, consumer)
        if why:
            log.info("no kernels for a driver: %s", why)
            made.left_out[KERNELS] = why
        else:
            kinds += (KERNELS,)
    names = [kernel.name for kernel in kernels]
    made.cooperative = executables.cooperative(made.launchable[0][1].decode(), names)
    if FATBIN in kinds:
        zstd = consumer is None or consumer.reads_zstd
        made.files[FATBIN, ""] = nvfatbin.pack(made.parts, zstd=zstd)
    executable = None
    if {KERNELS, LAUNCHER}.intersection(kinds):
        executable = executables.pack(
            request.stem,
            made.launchable,
            signatures,
            level=options.level,
            lineinfo=options.lineinfo,
            consumer=consumer,
        )
        made.kernels_by = executable.tools
        if KERNELS in kinds:
            made.files[KERNELS, ""] = executable.code
        if LAUNCHER in kinds:
            text = launcher.render(request.stem, declarations, executable.code, made.cooperative)
            made.files[LAUNCHER, ""] = text.encode()
    with_host_code = [kind for kind in kinds if kind in executables.EXTENSIONS]
    if with_host_code:
        whole = AssembleOptions(opt_level=options.level, lineinfo=options.lineinfo)
        built, made.host_compiler = executables.build_object(
            request.stem,
            header,
            kernels,
            made.parts,
            None if undefined else whole,
            consumer=consumer,
            include_dirs=request.include_dirs,
        )
        forms = executables.as_kinds(request.stem, built, with_host_code)
        made.files |= {(kind, ""): content for kind, content in forms.items()}
    made.needs = of_artifacts(made.files, made.parts, made.cubin_by, executable and executable.needs)


def file_name(stem: str, key: Key) -> str:
    """Return the name of the artifact *key* of the export *stem*."""
    kind, arch = key
    return ".".join(filter(None, (stem, arch, _ENDINGS.get(kind, kind))))
