"""The artifacts of an export: the code for each architecture, and what holds code for all of them."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._artifacts import executables
from numba_ptxlink._artifacts.consumer import LeftOut, of_artifacts
from numba_ptxlink._cabi import launcher
from numba_ptxlink._cabi.signatures import check_ptx
from numba_ptxlink._formats.kinds import ARTIFACTS, CUBIN, FATBIN, KERNELS, LAUNCHER, LTOIR, OBJECT, PTX
from numba_ptxlink._tools import nvfatbin
from numba_ptxlink.errors import ExportError

from .compile import build
from .signatures import each_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._artifacts.consumer import Consumer, Oldest
    from numba_ptxlink._cabi.header import Declaration
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._front_end.protocol import IR, CompileOptions

    from .compile import Code, Program

log = logging.getLogger(__name__)

EMIT = (*ARTIFACTS, KERNELS, LAUNCHER, OBJECT)
"""The kinds of artifact that an export can write."""

_ENDINGS = {KERNELS: "kernels.fatbin", LAUNCHER: "launch.h", OBJECT: "o"}
# What fat binaries and objects hold for each architecture.
_PACKED = (PTX, LTOIR, CUBIN)

ArtifactKey = tuple[str, str]
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


class Artifacts(NamedTuple):
    """
    All artifacts of an export.

    Args:
        files: The artifacts.
        needs: The oldest toolkit and driver that each artifact is for.
        compilers: Name and release of what compiled the LTO-IR, the cubins, the host code of an object, and
            machine code that a driver loads, by "ltoir", "cubin", "object" and "kernels".
        cooperative: The kernels that synchronise their grid, and are launched so that all of it runs at once.
        left_out: What could not be made: the kinds of code that it or what holds several kinds lacks, and
            "kernels".
    """

    files: dict[ArtifactKey, bytes]
    needs: dict[ArtifactKey, Oldest]
    compilers: dict[str, str]
    cooperative: frozenset[str]
    left_out: tuple[LeftOut, ...]


def compile_each(programs: Sequence[Program], request: Request) -> list[Code]:
    """
    Compile the functions for each architecture, to the kinds of code that artifacts are made of.

    Raises:
        AbiError: A struct cannot be passed by value in what is asked for.
        ExportError: A compiler refused the code, or a kind cannot be made for the consumer.
        AssembleError: The PTX could not be assembled.
    """
    kinds, consumer = request.asked, request.consumer
    check_passing(programs[0].functions, kinds)
    wanted = {kind for kind in kinds if kind in ARTIFACTS}
    if _packs(kinds):
        wanted.update(_PACKED)
    if {KERNELS, LAUNCHER}.intersection(kinds):
        wanted.add(PTX)
    dispensable = wanted if request.kinds is None else wanted.difference(kinds)
    left_out = consumer.impossible(wanted, request.archs) if consumer else []
    for each in left_out:
        if consumer and each.kind not in dispensable:
            raise ExportError(f"No {each.kind} for {consumer.asked}: {each}.")
    wanted -= {each.kind for each in left_out}
    codes = [
        build(each, wanted, request.options, dispensable=dispensable, consumer=consumer) for each in programs
    ]
    return [replace(code, left_out=(*left_out, *code.left_out)) for code in codes]


def check_passing(functions: Iterable[IR], kinds: Sequence[str]) -> None:
    """Refuse what cannot be passed where one of *kinds* is, or holds, PTX or machine code made of it."""
    if any(kind != LTOIR for kind in kinds):
        each_of(lambda each: check_ptx(each.signature), functions)


def _packs(kinds: Collection[str]) -> bool:
    """Return whether one of *kinds* holds code of several kinds."""
    return FATBIN in kinds or OBJECT in kinds


def pack(
    codes: Sequence[Code], request: Request, header: str, declarations: Sequence[Declaration]
) -> Artifacts:
    """
    Return the artifacts: the code for each architecture, and what holds code for all of them.

    Args:
        codes: The code of each.
        request: What the export is to write.
        header: The text of its C header.
        declarations: Its functions.

    Raises:
        ExportError: A tool refused the code, or is not installed.
        AssembleError: The PTX could not be assembled.
    """
    consumer, signatures = request.consumer, [each.signature for each in declarations]
    parts = [
        (kind, code.arch, f"{request.stem}.{code.arch.sm}.{kind}", content)
        for code in codes
        for kind, content in code.artifacts.items()
    ]
    kinds, left_out = _with_kernels(codes, request, signatures)
    for each in left_out:
        log.warning("left out: %s, %s", each.kind, each)
    text = codes[0].artifacts.get(PTX, b"").decode()
    cooperative = executables.cooperative(text, [each.name for each in signatures if each.kernel])
    files = {(kind, arch.sm): content for kind, arch, _, content in parts if kind in kinds}
    made_by = {(kind, code.arch.sm): tool for code in codes for kind, tool in code.made_by.items()}
    # The package's own compiler is among the packages.
    others = {key: tool for key, tool in made_by.items() if not tool.startswith("nvPTXCompiler")}
    compilers = {
        kind: ", ".join(dict.fromkeys(tool for (made, _), tool in others.items() if made == kind))
        for kind in (LTOIR, CUBIN)
    }
    executable = None
    if FATBIN in kinds:
        zstd = consumer is None or consumer.reads_zstd
        files[FATBIN, ""] = nvfatbin.pack(parts, zstd=zstd, lineinfo=request.options.lineinfo)
    if {KERNELS, LAUNCHER}.intersection(kinds):
        executable = _executable(codes, request, signatures)
        compilers["kernels"] = ", ".join(executable.tools)
    if executable and KERNELS in kinds:
        files[KERNELS, ""] = executable.code
    if executable and LAUNCHER in kinds:
        launches = launcher.render(request.stem, declarations, executable.code, cooperative)
        files[LAUNCHER, ""] = launches.encode()
    if OBJECT in kinds:
        files[OBJECT, ""], compilers["object"] = _object(codes, request, header, signatures, parts)
    needs = of_artifacts(files, parts, made_by, executable and executable.needs)
    return Artifacts(files, needs, compilers, cooperative, left_out)


def _with_kernels(
    codes: Sequence[Code], request: Request, signatures: Sequence[Signature]
) -> tuple[tuple[str, ...], tuple[LeftOut, ...]]:
    """Return the kinds to make, with "kernels" where there are some and nobody said, and what is left out."""
    kinds = request.asked
    left_out = [*dict.fromkeys(each for code in codes for each in code.left_out)]
    if request.kinds is None and any(each.kernel for each in signatures):
        why = executables.obstacle({name for code in codes for name in code.undefined}, request.consumer)
        if why:
            left_out.append(LeftOut(KERNELS, why, "link what defines it, and load the result"))
        else:
            kinds += (KERNELS,)
    return kinds, tuple(left_out)


def _executable(
    codes: Sequence[Code], request: Request, signatures: Sequence[Signature]
) -> executables.Executable:
    """Return what a driver loads."""
    return executables.pack(
        request.stem,
        [(code.arch, code.artifacts.get(PTX, b""), code.undefined) for code in codes],
        signatures,
        options=request.options.tools,
        consumer=request.consumer,
    )


def _object(
    codes: Sequence[Code],
    request: Request,
    header: str,
    signatures: Sequence[Signature],
    parts: Sequence[executables.Member],
) -> tuple[bytes, str]:
    """Return what nvcc links, and name and release of the compiler of its host code."""
    return executables.build_object(
        request.stem,
        header,
        [each for each in signatures if each.kernel],
        parts,
        None if any(code.undefined for code in codes) else request.options.tools,
        consumer=request.consumer,
        include_dirs=request.include_dirs,
        lineinfo=request.options.lineinfo,
    )


def file_name(stem: str, key: ArtifactKey) -> str:
    """Return the name of the artifact *key* of the export *stem*."""
    kind, arch = key
    return ".".join(filter(None, (stem, arch, _ENDINGS.get(kind, kind))))
