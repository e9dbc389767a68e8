"""The artifacts of an export: the code for each architecture, and what holds code for all of them."""

from __future__ import annotations

import functools
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._artifacts import executables
from numba_ptxlink._artifacts.target_release import LeftOut, of_artifacts
from numba_ptxlink._cabi import launcher
from numba_ptxlink._cabi.signatures import check_ptx
from numba_ptxlink._formats.kinds import ARTIFACTS, CUBIN, FATBIN, KERNELS, LAUNCHER, LTOIR, OBJECT, PTX
from numba_ptxlink._tools import nvfatbin
from numba_ptxlink.errors import ExportError

from .compile import build
from .signatures import map_collecting_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._artifacts.target_release import MinimumRelease, TargetRelease
    from numba_ptxlink._cabi.header import CFunction
    from numba_ptxlink._front_end.protocol import LoweredFunction
    from numba_ptxlink._tools.options import Options

    from .compile import Code, Group

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
        target_release: What the artifacts are for, None for the tools of this environment.
        include_dirs: Where the headers are that define structs of the functions.
        front_end: What compiles functions whose decorator names none.
        threads: For how many GPUs code is made at a time.
    """

    stem: str
    archs: tuple[Arch, ...]
    kinds: tuple[str, ...] | None
    options: Options
    target_release: TargetRelease | None = None
    include_dirs: tuple[Path, ...] = ()
    front_end: str | None = None
    threads: int = 1

    @property
    def requested_kinds(self) -> tuple[str, ...]:
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
    needs: dict[ArtifactKey, MinimumRelease]
    compilers: dict[str, str]
    cooperative: frozenset[str]
    left_out: tuple[LeftOut, ...]


def compile_each(groups: Sequence[Group], request: Request) -> tuple[list[Code], list[LeftOut]]:
    """
    Return the code for each architecture, of the kinds that artifacts are made of, and what is left out.

    Raises:
        AbiError: A struct cannot be passed by value in what is asked for.
        ExportError: A compiler refused the code, or a kind cannot be made for the target release.
        AssembleError: The PTX could not be assembled.
    """
    kinds, target_release = request.requested_kinds, request.target_release
    check_passing(groups[0].functions, kinds)
    required = {kind for kind in kinds if kind in ARTIFACTS}
    # What holds code of several kinds.
    if FATBIN in kinds or OBJECT in kinds:
        required.update(_PACKED)
    if {KERNELS, LAUNCHER}.intersection(kinds):
        required.add(PTX)
    dispensable = required if request.kinds is None else required.difference(kinds)
    left_out = target_release.impossible(required, request.archs) if target_release else []
    for each in left_out:
        if target_release and each.kind not in dispensable:
            raise ExportError(f"No {each.kind} for {target_release.description}: {each}.")
    required -= {each.kind for each in left_out}
    made = functools.partial(
        build, kinds=required, options=request.options, dispensable=dispensable, target_release=target_release
    )
    with ThreadPoolExecutor(request.threads) as threads:
        # A thread may have less stack than the process, which is enough for one at a time.
        codes = list((threads.map if request.threads > 1 else map)(made, groups))
    return codes, [*dict.fromkeys((*left_out, *(each for code in codes for each in code.left_out)))]


def check_passing(functions: Iterable[LoweredFunction], kinds: Sequence[str]) -> None:
    """Refuse what cannot be passed where one of *kinds* is, or holds, PTX or machine code made of it."""
    if any(kind != LTOIR for kind in kinds):
        map_collecting_errors(lambda each: check_ptx(each.signature), functions)


def pack(
    codes: Sequence[Code],
    left_out: Sequence[LeftOut],
    request: Request,
    header: str,
    declarations: Sequence[CFunction],
) -> Artifacts:
    """
    Return the artifacts: the code for each architecture, and what holds code for all of them.

    Args:
        codes: The code of each.
        left_out: The kinds of code that could not be made.
        request: What the export is to write.
        header: The text of its C header.
        declarations: Its functions.

    Raises:
        ExportError: A tool refused the code, or is not installed.
        AssembleError: The PTX could not be assembled.
    """
    target_release, options, kinds = request.target_release, request.options, request.requested_kinds
    kernels = [each.signature for each in declarations if each.signature.kernel]
    undefined = {name for code in codes for name in code.undefined}
    if request.kinds is None and kernels:
        if why := executables.obstacle(undefined, target_release):
            left_out = (*left_out, LeftOut(KERNELS, why, "link what defines it, and load the result"))
        else:
            kinds += (KERNELS,)
    parts = [
        (kind, code.arch, f"{request.stem}.{code.arch.sm}.{kind}", content)
        for code in codes
        for kind, content in code.artifacts.items()
    ]
    text = codes[0].artifacts.get(PTX, b"").decode()
    cooperative = executables.cooperative(text, [each.name for each in kernels])
    files = {(kind, arch.sm): content for kind, arch, _, content in parts if kind in kinds}
    made_by = {(kind, code.arch.sm): tool for code in codes for kind, tool in code.made_by.items()}
    # The package's own compiler is among the packages.
    others = {key: tool for key, tool in made_by.items() if not tool.startswith("nvPTXCompiler")}
    compilers = {
        kind: ", ".join(dict.fromkeys(tool for (made, _), tool in others.items() if made == kind))
        for kind in (LTOIR, CUBIN)
    }
    linkable, executable = b"", None
    if {FATBIN, OBJECT}.intersection(kinds):
        zstd = target_release is None or target_release.reads_zstd
        linkable = nvfatbin.pack(parts, zstd=zstd, lineinfo=options.lineinfo)
    if FATBIN in kinds:
        files[FATBIN, ""] = linkable
    # An object has it, too, unless C++ defines what the kernels call.
    launched = {KERNELS, LAUNCHER}.intersection(kinds)
    if launched or (OBJECT in kinds and kernels and not undefined):
        executable = executables.pack(
            request.stem,
            [(code.arch, code.artifacts.get(PTX, b""), code.undefined) for code in codes],
            kernels,
            options=options,
            target_release=target_release,
        )
        if launched:
            compilers["kernels"] = ", ".join(executable.tools)
        if KERNELS in kinds:
            files[KERNELS, ""] = executable.code
        if LAUNCHER in kinds:
            launches = launcher.render(request.stem, declarations, executable.code, cooperative)
            files[LAUNCHER, ""] = launches.encode()
    if OBJECT in kinds:
        files[OBJECT, ""], compilers["object"] = executables.build_object(
            request.stem,
            header,
            kernels,
            linkable=linkable,
            whole=executable.code if executable and not undefined else None,
            include_dirs=request.include_dirs,
        )
    needs = of_artifacts(files, parts, made_by, executable and executable.needs)
    return Artifacts(files, needs, compilers, cooperative, tuple(left_out))


def file_name(stem: str, key: ArtifactKey) -> str:
    """Return the name of the artifact *key* of the export *stem*."""
    kind, arch = key
    return ".".join(filter(None, (stem, arch, _ENDINGS.get(kind, kind))))
