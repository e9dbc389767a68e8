"""
Lower the version of PTX for a CUDA release, and find the oldest releases that accept an artifact.

PTX gets the lowest version that its text allows, which a compiler confirms. LTO-IR and machine code need a
compiler that is not too new for the target release. A linker reads PTX, LTO-IR and machine code of its own
release and of older ones. A driver compiles PTX of its own release and of older ones, and loads machine code
of all releases of its major version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink import assembler
from numba_ptxlink._arch import (
    OLDEST_ISA,
    Arch,
    PtxVersion,
    dotted,
    first_release_reading,
    isa_introducing,
    last_release_emitting,
    newest_isa,
)
from numba_ptxlink._formats.kinds import CUBIN, HOST, KERNELS, LAUNCHER, LTOIR, PTX
from numba_ptxlink._formats.ptx import (
    Directive,
    Instruction,
    Module,
    Span,
    UnparsedItem,
    format_body,
    parse,
    read_header,
)
from numba_ptxlink._link.backends import CURRENT_ENVIRONMENT
from numba_ptxlink._link.plan import unavailable_reason
from numba_ptxlink._tools import find, nvvm
from numba_ptxlink._tools.options import Options
from numba_ptxlink.errors import AssembleError, ConfigError, ExportError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    Release = tuple[int, int]

# The release of PTX 7.0, the oldest version that `_arch` knows.
_OLDEST_RELEASE = (11, 0)
_RELEASE = re.compile(r"(\d+)\.(\d+)", re.ASCII)
# nvPTXCompiler writes "line 9; error   : Feature '.cluster_dim' requires PTX ISA .version 7.8 or later".
_VERSION_REQUIREMENT = re.compile(
    r"line (\d+); error\s*: (?:Feature )?'?(.*?)'? requires PTX ISA \.version (\d+)\.(\d+)"
)
# The first release whose libNVVM reads version 2.0 of NVVM IR, which 11.8 refuses.
_NVVM_IR_2_SINCE = (12, 0)
# The first releases whose driver and whose nvlink read fat binaries compressed by zstd, as tools write them
# by default. nvJitLink 12.3 and nvlink 12.4 refuse them; nvlink 12.5 to 12.8, which were not measured,
# are taken to refuse them as well.
_ZSTD_LOADED_SINCE = (12, 4)
_ZSTD_LINKED_SINCE = (12, 9)
# The first bytes of compressed content ("Zstandard frames" in RFC 8878).
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class LeftOut(NamedTuple):
    """
    An artifact that was not written, or code that a fat binary or object does not contain.

    Args:
        kind: The kind of artifact or code; or a title for messages, such as "host version of f".
        why: The reason.
        cure: The cure; "" if *why* contains it.
    """

    kind: str
    why: str
    cure: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.why, self.cure)))


class MinimumRelease(NamedTuple):
    """
    The oldest toolkit that links an artifact, and the oldest driver that loads it.

    Args:
        toolkit: The release of the linker; None if no linker reads the artifact, or the release is unknown.
        driver: The CUDA version of the driver; for relocatable code, of the driver that loads the cubin
            linked from this code alone. None for LTO-IR, for files without device code, or if the release is
            unknown.
    """

    toolkit: Release | None
    driver: Release | None

    def entry(self) -> dict[str, str | None]:
        """Return the manifest's entry, in which a release is text such as "12.4"."""
        return {name: release and dotted(release) for name, release in self._asdict().items()}


def minimum_of_code(kind: str, arch: Arch, code: bytes, tool: str) -> MinimumRelease:
    """
    Return the oldest releases that accept a piece of code.

    Args:
        kind: "ptx", "ltoir" or "cubin".
        arch: The GPU architecture of the code.
        code: The code.
        tool: Name and release of the compiler of LTO-IR or a cubin, such as "ptxas 13.0"; the release may be
            missing for LTO-IR. Not read for PTX.
    """
    if kind == PTX:
        version = read_header(code.decode(errors="replace")).version
        release = first_release_reading(version or OLDEST_ISA)
        return MinimumRelease(release, release)
    release_of_tool = _parse_release(tool.rpartition(" ")[2])
    if kind == LTOIR or release_of_tool is None:
        return MinimumRelease(release_of_tool, None)
    isa = isa_introducing(arch.sm)
    # A driver loads cubins of its major version, but none for GPUs newer than itself.
    gpu_release = first_release_reading(isa) if isa else release_of_tool
    return MinimumRelease(release_of_tool, max((release_of_tool[0], 0), gpu_release))


def ltoir_tool(arch: Arch, *, merged: bool) -> str:
    """
    Return name and release of the compiler of LTO-IR in this environment.

    Args:
        arch: The GPU architecture.
        merged: Whether the linker merges the LTO-IR of functions with that of their link files (`link=`), and
            so writes it anew.
    """
    return f"{'nvJitLink' if merged else 'NVVM'} {dotted(_ltoir_release(arch, merged=merged))}"


def _ltoir_release(arch: Arch, *, merged: bool = False) -> Release | None:
    """Return the release of the LTO-IR of this environment, as in `ltoir_tool`; None if it is unknown."""
    linker = CURRENT_ENVIRONMENT.linker() if merged else None
    if linker is not None:
        return linker[1]
    emitted = nvvm.emitted_isa(arch)
    return None if emitted is None else last_release_emitting(emitted)


def minimum_of_fatbin(
    members: Sequence[tuple[str, MinimumRelease]], code: bytes, *, linkable: bool = True
) -> MinimumRelease:
    """
    Return the oldest releases that link a fat binary, or load it on all its architectures.

    Args:
        members: The kind of each member, and the oldest releases that accept it.
        code: The fat binary, or a file that contains it.
        linkable: Whether the code in the fat binary is relocatable.
    """
    is_compressed = _ZSTD_MAGIC in code
    # Drivers use PTX only if there is no machine code for the device.
    loaded_kind = CUBIN if any(kind == CUBIN for kind, _ in members) else PTX
    drivers = [minimum.driver for kind, minimum in members if kind == loaded_kind]
    toolkits = [minimum.toolkit for _, minimum in members]
    driver = _latest([*drivers, _ZSTD_LOADED_SINCE if is_compressed else None])
    toolkit = _latest([*toolkits, _ZSTD_LINKED_SINCE if is_compressed else None])
    return MinimumRelease(toolkit if linkable else None, driver)


def minimums_of_artifacts(
    files: Mapping[tuple[str, str], bytes],
    codes: Iterable[tuple[str, Arch, str, bytes]],
    compilers: Mapping[tuple[str, str], str],
    minimum_of_kernels: MinimumRelease | None,
) -> dict[tuple[str, str], MinimumRelease]:
    """
    Return the oldest releases that accept each artifact of an export, by kind and architecture.

    Args:
        files: The artifacts, by kind and architecture.
        codes: The code for each architecture, as (kind, arch, name, code).
        compilers: Name and release of the compilers of LTO-IR and cubins, by kind and architecture.
        minimum_of_kernels: The oldest releases for kernels that a driver loads; None if there are none.
    """
    minimums = {
        (kind, arch.sm): minimum_of_code(kind, arch, code, compilers.get((kind, arch.sm), ""))
        for kind, arch, _, code in codes
    }
    members = [(kind, minimum) for (kind, _), minimum in minimums.items()]
    for key, code in files.items():
        if minimum_of_kernels and key[0] in (KERNELS, LAUNCHER):
            minimums[key] = minimum_of_kernels
        elif key[0] == HOST:
            minimums[key] = MinimumRelease(None, None)
        elif key not in minimums:  # A fat binary or an object.
            minimums[key] = minimum_of_fatbin(members, code)
    return minimums


def _latest(releases: Sequence[Release | None]) -> Release | None:
    """Return the latest of *releases*, of which some may be unknown (None); None if all are."""
    return max((release for release in releases if release), default=None)


@dataclass(frozen=True)
class TargetRelease:
    """
    The CUDA release that the artifacts of an export are for.

    Args:
        release: The release of the toolkit and driver.
        isa: The newest PTX version that this release reads.
        description: The release or version that the caller passed, for messages.
    """

    release: tuple[int, int]
    isa: PtxVersion
    description: str

    @classmethod
    def of(
        cls, cuda: str | tuple[int, int] | None, ptx_isa: str | tuple[int, int] | None
    ) -> TargetRelease | None:
        """
        Return CUDA release *cuda*, or the oldest release that reads PTX *ptx_isa*; None if neither is given.

        Raises:
            ConfigError: The release or version is unknown, or both are passed.
        """
        if cuda is None and ptx_isa is None:
            return None
        if cuda is not None and ptx_isa is not None:
            raise ConfigError("cuda and ptx_isa both set the target release; leave one of them out.")
        version = _parse_release(ptx_isa if cuda is None else cuda)
        release = first_release_reading(PtxVersion(*version)) if version and cuda is None else version
        isa = newest_isa(release) if release else None
        # PTX before 7.0 is not supported: `first_release_reading` returns 11.0 for it, whose PTX is 7.0.
        is_unknown_isa = cuda is None and isa != version
        if release is None or isa is None or release < _OLDEST_RELEASE or is_unknown_isa:
            raise ConfigError(
                f"{cuda or ptx_isa!r} is not a known CUDA release or PTX ISA version; write "
                'cuda="12.4", from 11.0 on, or ptx_isa="8.4", from 7.0 on.'
            )
        return cls(release, isa, f"PTX {isa}" if cuda is None else f"CUDA {dotted(release)}")

    @property
    def reads_zstd(self) -> bool:
        """Whether both the driver and nvlink of the release read fat binaries that are compressed by zstd."""
        return self.release >= _ZSTD_LINKED_SINCE

    def reduce_version(self, ptx: bytes, arch: Arch) -> bytes:
        """
        Return *ptx* with the lowest version with which nvPTXCompiler assembles it.

        PTX for an architecture that the compiler does not know keeps its version.

        Raises:
            ExportError: The text needs a newer version than the target release reads. The message names the
                instruction.
        """
        module = parse(ptx.decode(errors="surrogateescape"))
        declared_version = module.header.version or OLDEST_ISA
        # Without the suffix "a" or "f", which the list lacks.
        if Arch(*arch.cc) not in assembler.supported_archs():
            if declared_version > self.isa:
                reason = (
                    f"is PTX {declared_version}: nvPTXCompiler, which does not know {arch.sm}, cannot lower "
                    "it"
                )
                raise self._too_new_error(declared_version, reason, arch, "or for another architecture")
            return ptx
        try:
            return self._lower_to_minimum(module, arch)
        except ExportError:
            # An optional feature may be what needs the newer version.
            return self._lower_to_minimum(parse(_without_optional_features(module)), arch)

    def _lower_to_minimum(self, module: Module, arch: Arch) -> bytes:
        """Return *module* with the lowest version; raise an error if that is newer than the release reads."""
        declared_version = module.header.version or OLDEST_ISA
        # Begin with the version that introduced the architecture. If the compiler refuses it, try the version
        # that its message requires.
        needed_version, cause = isa_introducing(arch.sm) or declared_version, f".target {arch.sm}"
        while needed_version <= self.isa:
            version = min(needed_version, declared_version)
            text = _with_version(module, version)
            # If an error names no version, the version may still be too low: then try the declared one.
            fallback_version = declared_version if version < declared_version else None
            requirement = _requirement(text, arch, fallback_version)
            if requirement is None:
                return text.encode(errors="surrogateescape")
            needed_version, cause = requirement
        cure = "for another architecture, or without the code that needs it"
        raise self._too_new_error(
            needed_version, f"has {cause}, which is new in PTX {needed_version}", arch, cure
        )

    def impossible_kinds(self, kinds: Collection[str], archs: Collection[Arch]) -> list[LeftOut]:
        """
        Return the members of *kinds* that cannot be made for the target release, with the reasons.

        Args:
            kinds: The kinds of artifact.
            archs: The architectures.
        """
        left_out = []
        needs_older_nvvm = any(self._is_newer(_ltoir_release(arch)) for arch in archs)
        if LTOIR in kinds and needs_older_nvvm and nvvm.newest(self.release) is None:
            left_out.append(self._missing_nvvm())
        # Cubins of exports are relocatable, so that C++ programs can link them.
        if CUBIN in kinds and (reason := unavailable_reason(self.release, Options(relocatable=True))):
            left_out.append(LeftOut(CUBIN, reason))
        return left_out

    def nvvm_for(self, arch: Arch) -> nvvm.Nvvm | None:
        """
        Return the older libNVVM that has to compile LTO-IR; None if this environment's can do it.

        If one is needed and none is installed, `impossible_kinds` lists LTO-IR, and this is not called.
        """
        return nvvm.newest(self.release) if self._is_newer(_ltoir_release(arch)) else None

    def check_ltoir_merge(self, arch: Arch) -> None:
        """
        Refuse to merge LTO-IR with its link files (`link=`) if the linker is newer than the target release.

        Raises:
            ExportError: The target release does not read the LTO-IR. The message names the cure.
        """
        # To compile the link files to LTO-IR by the NVRTC of the target release would not help: a fat binary
        # would have two pieces of LTO-IR for one architecture. nvlink reads only one of them, and nvJitLink
        # merges two from 13.4 on.
        release = _ltoir_release(arch, merged=True)
        if self._is_newer(release):
            raise ExportError(
                f"No ltoir for {self.description}: nvJitLink {dotted(release)} merges link files into it, "
                "and linkers read LTO-IR of their own release or of older ones; declare the functions of "
                f"these files without link=, compile and link them with CUDA {dotted(self.release)}, and "
                "export functions that use half precision, which needs a link file, from a separate file, so "
                "that the others have LTO-IR."
            )

    def _is_newer(self, release: Release | None) -> bool:
        """Return whether LTO-IR of *release* is newer than the target release reads."""
        return release is not None and release > self.release

    def _missing_nvvm(self) -> LeftOut:
        """Return the reason why there is no LTO-IR: no installed libNVVM is old enough."""
        if self.release < _NVVM_IR_2_SINCE:
            return LeftOut(
                LTOIR,
                f"before CUDA {dotted(_NVVM_IR_2_SINCE)}, libNVVM does not read the LLVM IR of functions",
                "leave ltoir out, or link by a later release",
            )
        # Recommend 12.4 for 12.5: libNVVM of 12.5 emits the PTX version of 12.6, and would be taken for 12.6.
        wheel = find.install_nvvm_command((12, 4) if self.release == (12, 5) else self.release)
        return LeftOut(
            LTOIR,
            "linkers read LTO-IR of their own release or of older ones, and there is no libNVVM of CUDA "
            f"{dotted(self.release)} or older",
            f"set CUDA_HOME to a toolkit that has nvvm/lib64/libnvvm.so, or install one: {wheel}",
        )

    def _too_new_error(self, needed: PtxVersion, reason: str, arch: Arch, cure: str) -> ExportError:
        return ExportError(
            f"{self.description} reads PTX {self.isa} at most, and the code for {arch.sm} {reason}; export "
            f"for CUDA {dotted(first_release_reading(needed))} or later, {cure}."
        )


def _requirement(text: str, arch: Arch, fallback_version: PtxVersion | None) -> tuple[PtxVersion, str] | None:
    """
    Return the version that nvPTXCompiler requires for *text*, and the reason; None if it accepts *text*.

    Args:
        text: PTX.
        arch: The GPU.
        fallback_version: The version to return if the compiler names none; None to raise its error.
    """
    try:
        assembler.assemble(text, arch, relocatable=True)
    except AssembleError as error:
        requirements = [
            (PtxVersion(int(match[3]), int(match[4])), f"{match[2]} in line {match[1]}")
            for match in _VERSION_REQUIREMENT.finditer(error.log)
        ]
        if fallback_version and not requirements:
            return fallback_version, "an instruction or directive"
        if not requirements:
            raise
        return max(requirements)
    return None


def _with_version(module: Module, version: PtxVersion) -> str:
    """Return the text of *module* with another `.version`."""
    return module.replace(
        {
            Span(item.start, item.end): f".version {version}"
            for item in module.items
            if isinstance(item, UnparsedItem) and item.keyword == "version"
        }
    )


def _without_optional_features(module: Module) -> str:
    """
    Return the text of *module* without new features that change no result.

    Two features are removed: `volatile` at accesses to local memory, which no other thread sees, so that
    compilers before PTX 9.1 omit it; and the pragma for the used bytes of a load.
    """
    edits = {}
    for function in module.functions:
        body = [
            statement._replace(mnemonic=statement.mnemonic.replace(".volatile.local", ".local"))
            if isinstance(statement, Instruction)
            else statement
            for statement in function.body
            if not (isinstance(statement, Directive) and statement.is_hint)
        ]
        if body != list(function.body):
            edits[function.body_span] = format_body(body)
    return module.replace(edits)


def _parse_release(value: object) -> tuple[int, int] | None:
    """Return "12.4" or (12, 4) as two numbers; None for anything else."""
    if isinstance(value, tuple) and len(value) == 2 and all(type(number) is int for number in value):
        return (value[0], value[1])
    match = _RELEASE.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]), int(match[2])) if match else None
