"""
The toolkit and the driver that an export is for, and those that its artifacts need at least.

PTX is brought down to the lowest version that its text allows, and a compiler proves it. LTO-IR and machine
code need a compiler of that toolkit. A linker reads PTX, LTO-IR and machine code
of its own release and of older ones. A driver compiles PTX of its own release and of older ones, and loads
machine code of all releases of its major version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink import assembler
from numba_ptxlink._arch import (
    OLDEST,
    Arch,
    PtxVersion,
    arch_since,
    dotted,
    first_release,
    newest_isa,
    release_of,
)
from numba_ptxlink._formats.kinds import CUBIN, KERNELS, LAUNCHER, LTOIR, PTX
from numba_ptxlink._formats.ptx import (
    Directive,
    Instruction,
    Module,
    Span,
    UnparsedItem,
    block,
    parse,
    read_header,
)
from numba_ptxlink._link.backends import CURRENT_ENVIRONMENT
from numba_ptxlink._link.plan import unavailable
from numba_ptxlink._tools import find, nvvm
from numba_ptxlink._tools.options import Options
from numba_ptxlink.errors import AssembleError, ConfigError, ExportError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    Release = tuple[int, int]

_OLDEST = (11, 0)
_RELEASE = re.compile(r"(\d+)\.(\d+)", re.ASCII)
_ASKED = re.compile(r"line (\d+); error\s*: (?:Feature )?'?(.*?)'? requires PTX ISA \.version (\d+)\.(\d+)")
# The first release whose libNVVM reads version 2.0 of NVVM IR: that of 11.8 refuses it.
_IR_SINCE = (12, 0)
# The first release whose driver reads fat binaries with zstd in them: nvJitLink 12.3 refuses them.
_ZSTD_LOADED_SINCE = (12, 4)
# nvlink 12.4 refuses them. The tools of this release write them by default, so its nvlink reads them.
_ZSTD_LINKED_SINCE = (12, 9)
# What compressed content begins with ("Zstandard frames" in RFC 8878).
_ZSTD = b"\x28\xb5\x2f\xfd"


class LeftOut(NamedTuple):
    """
    A kind of artifact that an export does not have, or that what holds several kinds lacks.

    Args:
        kind: The kind.
        why: Why it could not be made.
        cure: What helps, "" where *why* says it.
    """

    kind: str
    why: str
    cure: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.why, self.cure)))


class MinimumRelease(NamedTuple):
    """
    The oldest CUDA releases that an artifact can be used with; None where it is not used with one.

    Args:
        toolkit: The release of the linker.
        driver: The CUDA version of the driver that loads it, or what is linked of it alone.
    """

    toolkit: Release | None
    driver: Release | None

    def described(self) -> dict[str, str | None]:
        """Return it as manifests have it."""
        return {name: release and dotted(release) for name, release in self._asdict().items()}


def of_code(kind: str, arch: Arch, code: bytes, tool: str) -> MinimumRelease:
    """
    Return what one piece of code needs.

    Args:
        kind: "ptx", "ltoir" or "cubin".
        arch: The GPU it is for.
        code: The code.
        tool: Name and release of what made LTO-IR or a cubin; LTO-IR may have no release.
    """
    if kind == PTX:
        version = read_header(code.decode(errors="replace")).version
        release = first_release(version or OLDEST)
        return MinimumRelease(release, release)
    made = _numbers(tool.rpartition(" ")[2])
    if kind == LTOIR or made is None:
        return MinimumRelease(made, None)
    known = arch_since(arch.sm)
    return MinimumRelease(made, max((made[0], 0), first_release(known) if known else made))


def ltoir_tool(arch: Arch, *, merged: bool) -> str:
    """Return name and release of what writes the LTO-IR of this environment, as `_ltoir_release`."""
    return f"{'nvJitLink' if merged else 'NVVM'} {dotted(_ltoir_release(arch, merged=merged))}"


def _ltoir_release(arch: Arch, *, merged: bool = False) -> Release | None:
    """Return the CUDA release of LTO-IR that NVVM writes, or the linker has *merged*; None for unknown."""
    linker = CURRENT_ENVIRONMENT.linker() if merged else None
    if linker is not None:
        return linker[1]
    emitted = nvvm.emitted_isa(arch)
    return None if emitted is None else release_of(emitted)


def of_fatbin(
    members: Sequence[tuple[str, MinimumRelease]], code: bytes, *, linkable: bool = True
) -> MinimumRelease:
    """
    Return what a fat binary needs, so that it is linked or loaded for the architectures it is for.

    Args:
        members: The kind of each member, and what this needs.
        code: The fat binary, or what has one in it.
        linkable: Whether its code is relocatable.
    """
    loads, links = (([since] if _ZSTD in code else []) for since in (_ZSTD_LOADED_SINCE, _ZSTD_LINKED_SINCE))
    # PTX is compiled where there is no machine code for the device.
    loaded = CUBIN if any(kind == CUBIN for kind, _ in members) else PTX
    driver = _newest([*loads, *(minimum.driver for kind, minimum in members if kind == loaded)])
    toolkit = _newest([*links, *(minimum.toolkit for _, minimum in members)])
    return MinimumRelease(toolkit if linkable else None, driver)


def of_artifacts(
    files: Mapping[tuple[str, str], bytes],
    packed: Iterable[tuple[str, Arch, str, bytes]],
    made_by: Mapping[tuple[str, str], str],
    executable: MinimumRelease | None,
) -> dict[tuple[str, str], MinimumRelease]:
    """
    Return what each artifact of an export needs, by kind and architecture.

    Args:
        files: The artifacts.
        packed: The code for each architecture, as (kind, arch, name, code).
        made_by: Name and release of what made LTO-IR and cubins, by kind and architecture.
        executable: What the code that a driver loads needs, None without such.
    """
    needs = {
        (kind, arch.sm): of_code(kind, arch, code, made_by.get((kind, arch.sm), ""))
        for kind, arch, _, code in packed
    }
    members = [(kind, need) for (kind, _), need in needs.items()]
    for key, code in files.items():
        if executable and key[0] in (KERNELS, LAUNCHER):
            needs[key] = executable
        elif key not in needs:
            needs[key] = of_fatbin(members, code)
    return needs


def _newest(releases: Sequence[Release | None]) -> Release | None:
    return max((release for release in releases if release), default=None)


@dataclass(frozen=True)
class TargetRelease:
    """
    What reads the artifacts of an export.

    Args:
        release: The CUDA release of its toolkit and driver.
        isa: The newest PTX that it reads.
        description: What the caller wrote, for messages.
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
            ConfigError: It is not a release or version that is known, or both are there.
        """
        if cuda is None and ptx_isa is None:
            return None
        if cuda is not None and ptx_isa is not None:
            raise ConfigError("cuda and ptx_isa say the same thing; leave one of them out.")
        version = _numbers(ptx_isa if cuda is None else cuda)
        release = version if cuda is not None or version is None else first_release(PtxVersion(*version))
        isa = newest_isa(release) if release else None
        if release is None or isa is None or release < _OLDEST or (cuda is None and isa != version):
            raise ConfigError(
                f"{cuda or ptx_isa!r} is not a known CUDA release or PTX ISA version; write "
                'cuda="12.4", from 11.0 on, or ptx_isa="8.4", from 7.0 on.'
            )
        return cls(release, isa, f"PTX {isa}" if cuda is None else f"CUDA {dotted(release)}")

    @property
    def reads_zstd(self) -> bool:
        """Whether its driver and its nvlink read fat binaries that are compressed by zstd."""
        return self.release >= _ZSTD_LINKED_SINCE

    def lowered(self, ptx: bytes, arch: Arch) -> bytes:
        """
        Return *ptx* with the lowest version with which nvPTXCompiler assembles it.

        Text for an architecture that the compiler does not know keeps its version.

        Raises:
            ExportError: The text needs a newer version than the target release reads. Names what needs it.
        """
        module = parse(ptx.decode(errors="surrogateescape"))
        declared = module.header.version or OLDEST
        if Arch(*arch.cc) not in assembler.supported_archs():
            if declared > self.isa:
                raise self._too_new(declared, "no older version", arch)
            return ptx
        try:
            return self._lowest(module, arch)
        except ExportError:
            return self._lowest(parse(_without_hints(module)), arch)

    def _lowest(self, module: Module, arch: Arch) -> bytes:
        """Return *module* with the lowest version, or raise what needs a newer one than is read."""
        declared = module.header.version or OLDEST
        needed, cause = arch_since(arch.sm) or declared, f".target {arch.sm}"
        while needed <= self.isa:
            version = min(needed, declared)
            text = _relabelled(module, version)
            demanded = _demanded(text, arch, declared if version < declared else None)
            if demanded is None:
                return text.encode(errors="surrogateescape")
            needed, cause = demanded
        raise self._too_new(needed, cause, arch)

    def impossible(self, kinds: Collection[str], archs: Collection[Arch]) -> list[LeftOut]:
        """
        Return those of *kinds* that cannot be made for the target release, with the reasons.

        Args:
            kinds: The kinds of artifact.
            archs: The architectures.
        """
        found = [LeftOut(CUBIN, unavailable(self.release, Options(relocatable=True)))]
        newer = any(map(self._is_newer, map(_ltoir_release, archs)))
        if LTOIR in kinds and newer and nvvm.newest(self.release) is None:
            found.insert(0, self._without_nvvm())
        return [each for each in found if each.kind in kinds and each.why]

    def toolkit(self, arch: Arch) -> nvvm.Nvvm | None:
        """Return the libNVVM of a toolkit that is to write LTO-IR, None where that of this environment is."""
        return nvvm.newest(self.release) if self._is_newer(_ltoir_release(arch)) else None

    def check_merged(self, arch: Arch) -> None:
        """
        Refuse LTO-IR into which link files are merged where the linker is newer.

        Raises:
            ExportError: The target release does not read it. Names the cure.
        """
        # LTO-IR of link files by that toolkit's NVRTC would not help: nvlink reads one for each architecture
        # out of an object or fat binary, and only nvJitLink makes one of two, from 13.4 on.
        release = _ltoir_release(arch, merged=True)
        if self._is_newer(release):
            raise ExportError(
                f"No ltoir for {self.description}: nvJitLink {dotted(release)} merges link files into it, "
                "and linkers read LTO-IR of their own release or of older ones; declare the functions of "
                "link files without link=, for that toolkit to compile and link, and export what uses half "
                "precision from a file of its own: the other functions have LTO-IR."
            )

    def _is_newer(self, release: Release | None) -> bool:
        """Return whether LTO-IR of *release* is newer than the target release reads."""
        return release is not None and release > self.release

    def _without_nvvm(self) -> LeftOut:
        """Return that no libNVVM is found whose LTO-IR the target release reads."""
        if self.release < _IR_SINCE:
            return LeftOut(
                LTOIR,
                f"libNVVM does not read the LLVM IR of functions before CUDA {dotted(_IR_SINCE)}",
                "leave ltoir out, or link by a later release",
            )
        major, minor = self.release
        # The PTX of CUDA 12.5 has the version of 12.6, as which its libNVVM counts.
        wheel = find.install_nvvm((major, minor - (release_of(self.isa) != self.release)))
        return LeftOut(
            LTOIR,
            "linkers read LTO-IR of their own release or of older ones, and there is no libNVVM of CUDA "
            f"{dotted(self.release)} or older",
            f"let CUDA_HOME lead to a toolkit that has nvvm/lib64/libnvvm.so, or install one: {wheel}",
        )

    def _too_new(self, needed: PtxVersion, cause: str, arch: Arch) -> ExportError:
        return ExportError(
            f"{self.description} reads PTX {self.isa} at most, and the code for {arch.sm} has {cause}, which "
            f"is new in PTX {needed}. Export for CUDA {dotted(first_release(needed))} or later, for another "
            "architecture, or without what is compiled to it."
        )


def _demanded(text: str, arch: Arch, newest: PtxVersion | None) -> tuple[PtxVersion, str] | None:
    """
    Return the version that nvPTXCompiler asks for, and what needs it; None where it takes *text*.

    Args:
        text: PTX.
        arch: The GPU.
        newest: What text needs that it refuses without a reason; None to raise that.
    """
    try:
        assembler.assemble(text, arch, relocatable=True)
    except AssembleError as error:
        demands = [
            (PtxVersion(int(match[3]), int(match[4])), f"{match[2]} in line {match[1]}")
            for match in _ASKED.finditer(error.log)
        ]
        if newest and not demands:
            return newest, "text that no older version has"
        if not demands:
            raise
        return max(demands)
    return None


def _relabelled(module: Module, version: PtxVersion) -> str:
    """Return the text of *module* with another `.version`."""
    return module.replace(
        {
            Span(item.start, item.end): f".version {version}"
            for item in module.items
            if isinstance(item, UnparsedItem) and item.keyword == "version"
        }
    )


def _without_hints(module: Module) -> str:
    """
    Return the text of *module* without what is new in it and changes no result.

    That is the `volatile` of accesses to local memory, which no other thread sees and which compilers left
    out before PTX 9.1, and the pragma that tells which bytes of a load are used.
    """
    edits = {}
    for function in module.functions:
        body = [
            each._replace(mnemonic=each.mnemonic.replace(".volatile.local", ".local"))
            if isinstance(each, Instruction)
            else each
            for each in function.body
            if not (isinstance(each, Directive) and each.is_hint)
        ]
        if body != list(function.body):
            edits[function.body_span] = block(body)
    return module.replace(edits)


def _numbers(text: object) -> tuple[int, int] | None:
    if isinstance(text, tuple) and len(text) == 2 and all(type(number) is int for number in text):
        return (text[0], text[1])
    match = _RELEASE.fullmatch(text) if isinstance(text, str) else None
    return (int(match[1]), int(match[2])) if match else None
