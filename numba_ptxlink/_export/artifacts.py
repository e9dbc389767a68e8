"""Make the artifacts of an export: code for each architecture, and containers of code for all of them."""

from __future__ import annotations

import functools
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._artifacts import executables
from numba_ptxlink._artifacts.target_release import LeftOut, minimums_of_artifacts
from numba_ptxlink._cabi import launcher
from numba_ptxlink._cabi.signatures import check_ptx
from numba_ptxlink._formats.kinds import ARTIFACTS, CUBIN, FATBIN, HOST, KERNELS, LAUNCHER, LTOIR, OBJECT, PTX
from numba_ptxlink._tools import nvfatbin
from numba_ptxlink.errors import ExportError

from .compile import build
from .signatures import map_collecting_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._artifacts.executables import Executable
    from numba_ptxlink._artifacts.target_release import MinimumRelease, TargetRelease
    from numba_ptxlink._cabi.header import CFunction
    from numba_ptxlink._front_end.lowered import LoweredFunction
    from numba_ptxlink._tools.options import Options

    from .compile import Code, Group

log = logging.getLogger(__name__)

EMIT = (*ARTIFACTS, KERNELS, LAUNCHER, OBJECT, HOST)
"""The kinds of artifact that an export can write."""

ArtifactKey = tuple[str, str]
"""Kind and architecture of an artifact; the architecture is "" if it holds code for all of them."""


@dataclass(frozen=True)
class Request:
    """
    The arguments of an export.

    Args:
        stem: The beginning of the file names; "" stands for the name of the exported module or function.
        archs: The GPU architectures.
        kinds: The kinds of artifact; None for the default kinds, as far as they can be made: `ARTIFACTS`,
            and "kernels" if the export has kernels.
        options: The options of the compilers.
        target_release: The CUDA release that the artifacts are for; None for that of the installed tools.
        include_dirs: The folders of headers that define structs of the functions.
        front_end: The front end of functions whose decorator names none; None to choose it for each.
        threads: The number of architectures that code is compiled for concurrently.
        writes_files: Whether the artifacts become files, now or later, rather than stay in this process. Only
            then may nvcc be called to check the header.
    """

    stem: str
    archs: tuple[Arch, ...]
    kinds: tuple[str, ...] | None
    options: Options
    target_release: TargetRelease | None = None
    include_dirs: tuple[Path, ...] = ()
    front_end: str | None = None
    threads: int = 1
    writes_files: bool = False

    @property
    def requested_kinds(self) -> tuple[str, ...]:
        """The requested kinds, or `ARTIFACTS`, to which `pack` adds "kernels" if the export has kernels."""
        return ARTIFACTS if self.kinds is None else self.kinds


class Artifacts(NamedTuple):
    """
    All artifacts of an export.

    Args:
        files: The content of each artifact.
        minimums: The oldest toolkit and driver that accept each artifact.
        compilers: Name and release of the compilers, by the code that they make: "ltoir", "cubin", "kernels"
            (the machine code that a driver loads) and "object" (the host code of an object file).
        cooperative: The kernels that synchronise their grid, so that all their blocks have to run at once.
        left_out: The default kinds that could not be made, the kinds of code that containers lack, and the
            functions without a host version.
    """

    files: dict[ArtifactKey, bytes]
    minimums: dict[ArtifactKey, MinimumRelease]
    compilers: dict[str, str]
    cooperative: frozenset[str]
    left_out: tuple[LeftOut, ...]


def compile_code(groups: Sequence[Group], request: Request) -> tuple[list[Code], list[LeftOut]]:
    """
    Return the code for each architecture, and the kinds of code that could not be made.

    The code is of the requested kinds, and of those that the requested containers hold.

    Args:
        groups: For each architecture, all functions of the export, compiled to PTX.
        request: The arguments of the export.

    Raises:
        AbiError: A struct cannot be passed by value in a requested kind.
        ExportError: A compiler refused the code, or a kind cannot be made for the target release.
        AssembleError: The PTX could not be assembled.
    """
    kinds, target_release = request.requested_kinds, request.target_release
    check_struct_passing(groups[0].functions, kinds)
    required = {kind for kind in kinds if kind in ARTIFACTS}
    required.update(*(_CONTAINERS[kind].code_kinds for kind in kinds if kind in _CONTAINERS))
    # A kind that was requested by its name must be made. Default kinds, and kinds that only containers hold,
    # are left out if they cannot be.
    dispensable = required if request.kinds is None else required.difference(kinds)
    left_out = target_release.impossible_kinds(required, request.archs) if target_release else []
    for missing_code in left_out:
        if target_release and missing_code.kind not in dispensable:
            raise ExportError(f"No {missing_code.kind} for {target_release.description}: {missing_code}.")
    required -= {missing_code.kind for missing_code in left_out}
    build_group = functools.partial(
        build, kinds=required, options=request.options, dispensable=dispensable, target_release=target_release
    )
    with ThreadPoolExecutor(request.threads) as executor:
        # The main thread compiles if one thread suffices, since other threads may have a smaller stack.
        if request.threads > 1:
            codes = list(executor.map(build_group, groups))
        else:
            codes = list(map(build_group, groups))
    for code in codes:
        left_out += code.left_out
    # Each once: several architectures may lack the same kind.
    return codes, list(dict.fromkeys(left_out))


def check_struct_passing(functions: Iterable[LoweredFunction], kinds: Sequence[str]) -> None:
    """Refuse structs that PTX cannot pass by value; allow all structs if *kinds* is LTO-IR alone."""
    if any(kind != LTOIR for kind in kinds):
        map_collecting_errors(lambda function: check_ptx(function.signature), functions)


def pack(
    codes: Sequence[Code],
    left_out: Sequence[LeftOut],
    request: Request,
    header: str,
    declarations: Sequence[CFunction],
    *,
    host_file: bytes,
) -> Artifacts:
    """
    Return the artifacts: the code for each architecture, and the containers.

    Args:
        codes: The code for each architecture.
        left_out: The kinds of code that could not be made.
        request: The arguments of the export.
        header: The text of the export's C header.
        declarations: The exported functions.
        host_file: The C++ of the functions' host versions; empty if they are not requested.

    Raises:
        ExportError: A tool refused the code, or is not installed.
        AssembleError: The PTX could not be assembled.
    """
    packing = _Packing(codes, request, header, declarations, host_file=host_file)
    kinds = request.requested_kinds
    if request.kinds is None and packing.kernels:
        if reason := executables.missing_definition_reason(packing.undefined_symbols, request.target_release):
            cure = "link the file that defines it, and load the result"
            left_out = (*left_out, LeftOut(KERNELS, reason, cure))
        else:
            kinds += (KERNELS,)
    files = {(kind, arch.sm): content for kind, arch, _, content in packing.members if kind in kinds}
    for kind, container in _CONTAINERS.items():
        if kind in kinds:
            files[kind, ""] = container.make(packing)
    minimum_of_kernels = None if {KERNELS, LAUNCHER}.isdisjoint(kinds) else packing.executable.minimum
    minimums = minimums_of_artifacts(files, packing.members, packing.compiler_of, minimum_of_kernels)
    return Artifacts(files, minimums, packing.compilers, packing.cooperative, tuple(left_out))


class _Packing:
    """
    The arguments of `pack`, and what several containers share, made once.

    A member is a kind of code, its architecture, its file name and its content.
    """

    def __init__(
        self,
        codes: Sequence[Code],
        request: Request,
        header: str,
        declarations: Sequence[CFunction],
        *,
        host_file: bytes,
    ) -> None:
        self.codes = codes
        self.request = request
        self.header = header
        self.declarations = declarations
        self.host_file = host_file
        self.kernels = [function.signature for function in declarations if function.signature.kernel]
        self.undefined_symbols = {name for code in codes for name in code.undefined}
        self.members = [
            (kind, code.arch, f"{request.stem}.{code.arch.sm}.{kind}", content)
            for code in codes
            for kind, content in code.artifacts.items()
        ]
        # By kind and architecture; `compilers` has all compilers of a kind in one text.
        self.compiler_of = {
            (kind, code.arch.sm): tool for code in codes for kind, tool in code.compilers.items()
        }
        # The manifest has the release of nvPTXCompiler, a part of this package, in another entry.
        self.compilers = {
            kind: ", ".join(
                dict.fromkeys(
                    tool
                    for (compiled_kind, _), tool in self.compiler_of.items()
                    if compiled_kind == kind and not tool.startswith("nvPTXCompiler")
                )
            )
            for kind in (LTOIR, CUBIN)
        }
        # The kernels that synchronise their grid are the same for each architecture. Without PTX, the set is
        # empty, which nothing depends on: artifacts that launch kernels are made of PTX.
        ptx = codes[0].artifacts.get(PTX, b"").decode()
        self.cooperative = executables.cooperative_kernels(ptx, [kernel.name for kernel in self.kernels])
        # Not cached properties: before Python 3.12, their lock could stay locked in a forked child.
        self._linkable_fatbin = b""
        self._executable: Executable | None = None

    @property
    def linkable_fatbin(self) -> bytes:
        """The fat binary of relocatable code."""
        if not self._linkable_fatbin:
            target_release, lineinfo = self.request.target_release, self.request.options.lineinfo
            zstd = target_release is None or target_release.reads_zstd
            self._linkable_fatbin = nvfatbin.pack(self.members, zstd=zstd, lineinfo=lineinfo)
        return self._linkable_fatbin

    @property
    def executable(self) -> Executable:
        """The fat binary that a driver loads."""
        if self._executable is None:
            self._executable = executables.pack(
                self.request.stem,
                [(code.arch, code.artifacts.get(PTX, b""), code.undefined) for code in self.codes],
                self.kernels,
                options=self.request.options,
                target_release=self.request.target_release,
            )
        return self._executable

    def pack_fatbin(self) -> bytes:
        return self.linkable_fatbin

    def pack_kernels(self) -> bytes:
        self.compilers["kernels"] = ", ".join(self.executable.tools)
        return self.executable.code

    def pack_launcher(self) -> bytes:
        code = self.pack_kernels()
        return launcher.render(self.request.stem, self.declarations, code, self.cooperative).encode()

    def pack_host(self) -> bytes:
        return self.host_file

    def pack_object(self) -> bytes:
        # If no symbol is undefined, programs may launch the kernels without a device link.
        is_complete = self.kernels and not self.undefined_symbols
        code, self.compilers["object"] = executables.build_object(
            self.request.stem,
            self.header,
            self.kernels,
            linkable=self.linkable_fatbin,
            loadable=self.executable.code if is_complete else None,
            include_dirs=self.request.include_dirs,
        )
        return code


class _Container(NamedTuple):
    """
    A kind of artifact that holds code for all architectures.

    Args:
        ending: The end of the file name, after the stem and a dot.
        code_kinds: The kinds of code that the container is made of.
        make: Returns the content of the container.
    """

    ending: str
    code_kinds: tuple[str, ...]
    make: Callable[[_Packing], bytes]


_CONTAINERS = {
    FATBIN: _Container("fatbin", (PTX, LTOIR, CUBIN), _Packing.pack_fatbin),
    KERNELS: _Container("kernels.fatbin", (PTX,), _Packing.pack_kernels),
    LAUNCHER: _Container("launch.h", (PTX,), _Packing.pack_launcher),
    HOST: _Container("host.cpp", (PTX,), _Packing.pack_host),
    OBJECT: _Container("o", (PTX, LTOIR, CUBIN), _Packing.pack_object),
}


def file_name(stem: str, key: ArtifactKey) -> str:
    """Return the name of the artifact *key* of the export *stem*."""
    kind, arch = key
    ending = _CONTAINERS[kind].ending if kind in _CONTAINERS else kind
    return ".".join(filter(None, (stem, arch, ending)))
