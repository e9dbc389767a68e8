"""
The toolkit and the driver that an export is for, where they are older than the compilers that make it.

PTX is brought down to the lowest version that its text allows, and a compiler proves it. LTO-IR cannot be
brought down, and machine code needs a compiler of that toolkit.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink import assembler
from numba_ptxlink._arch import Arch, PtxVersion, dotted
from numba_ptxlink._formats.kinds import CUBIN, LTOIR
from numba_ptxlink._formats.ptx import features, parse
from numba_ptxlink._formats.ptx.isa import first_release, newest_isa
from numba_ptxlink.errors import AssembleError, ConfigError, ExportError

from . import oldest, single_ptx

if TYPE_CHECKING:
    from collections.abc import Collection

log = logging.getLogger(__name__)

_OLDEST = (11, 0)
_RELEASE = re.compile(r"(\d+)\.(\d+)", re.ASCII)
_ASKED = re.compile(r"line (\d+); error\s*: (.*?) requires PTX ISA \.version (\d+)\.(\d+)")


@dataclass(frozen=True)
class Consumer:
    """
    What reads the artifacts of an export.

    Args:
        release: The CUDA release of its toolkit and driver.
        isa: The newest PTX that it reads.
        asked: What the caller wrote, for messages.
    """

    release: tuple[int, int]
    isa: PtxVersion
    asked: str

    @classmethod
    def of(cls, cuda: str | tuple[int, int] | None, ptx_isa: str | tuple[int, int] | None) -> Consumer | None:
        """
        Return the consumer of CUDA release *cuda*, or the oldest that reads PTX *ptx_isa*; None for neither.

        Raises:
            ConfigError: It is not a release or version that is known, or both are there.
        """
        if cuda is None and ptx_isa is None:
            return None
        if cuda is not None and ptx_isa is not None:
            raise ConfigError("cuda and ptx_isa say the same thing; leave one of them out.")
        if cuda is not None:
            release = _numbers(cuda)
            isa = newest_isa(release) if release else None
            if release is None or isa is None or release < _OLDEST:
                raise ConfigError(
                    f'{cuda!r} is no CUDA release whose PTX is known; write it like "12.4", from 11.0 on.'
                )
            return cls(release, isa, f"CUDA {dotted(release)}")
        version = _numbers(ptx_isa)
        isa = PtxVersion(*version) if version else None
        release = first_release(isa) if isa else None
        if isa is None or release is None or release < _OLDEST or newest_isa(release) != isa:
            raise ConfigError(
                f'{ptx_isa!r} is no version of PTX that is known; write it like "8.4", from 7.0 on.'
            )
        return cls(release, isa, f"PTX {isa}")

    @property
    def reads_zstd(self) -> bool:
        """Whether it reads fat binaries that are compressed by zstd."""
        return self.release >= oldest.ZSTD_SINCE

    def lowered(self, ptx: bytes, arch: Arch) -> bytes:
        """
        Return *ptx* with the lowest version that its text allows.

        nvPTXCompiler, where it knows the architecture, assembles the text as proof.

        Raises:
            ExportError: The text needs a newer version than the consumer reads. Names what needs it.
        """
        module = parse(ptx.decode())
        needed = features.newest_feature(module)
        if needed.version > self.isa:
            module = parse(features.without_hints(module))
            needed = features.newest_feature(module)
        while True:
            version = min(needed.version, module.version or needed.version)
            if version > self.isa:
                raise self._too_new(needed, arch)
            text = features.relabelled(module, version)
            demanded = _demanded(text, arch)
            if demanded is None or demanded.version <= version:
                return text.encode()
            needed = demanded

    def without_impossible(
        self, kinds: Collection[str], archs: Collection[Arch], dispensable: Collection[str]
    ) -> set[str]:
        """
        Return *kinds* without those of *dispensable* that cannot be made for the consumer; log these.

        Args:
            kinds: The kinds of artifact.
            archs: The architectures.
            dispensable: Those of *kinds* that may be left out.

        Raises:
            ExportError: Another kind cannot be made. Names the cure.
        """
        causes = {LTOIR: self._without_ltoir(archs), CUBIN: single_ptx.unavailable(self.release)}
        for kind, cause in causes.items():
            if kind in kinds and cause:
                if kind not in dispensable:
                    raise ExportError(f"No {kind} for {self.asked}: {cause}.")
                # Another toolkit's ptxas can be installed; LTO-IR cannot be had in this environment.
                level = logging.INFO if kind == LTOIR else logging.WARNING
                log.log(level, "no %s for %s: %s", kind, self.asked, cause)
        return {kind for kind in kinds if not causes.get(kind)}

    def _without_ltoir(self, archs: Collection[Arch]) -> str:
        release = max(filter(None, map(oldest.ltoir_release, archs)), default=self.release)
        if release <= self.release:
            return ""
        return (
            f"LTO-IR is read by linkers of its own release or later, and that of CUDA {dotted(release)} "
            f"cannot be made older; leave ltoir out, or export in an environment with the tools of "
            f"CUDA {dotted(self.release)}"
        )

    def _too_new(self, needed: features.Feature, arch: Arch) -> ExportError:
        return ExportError(
            f"{self.asked} reads PTX {self.isa} at most, and the code for {arch.sm} has {needed}. Export for "
            f"CUDA {dotted(first_release(needed.version))} or later, for another architecture, or without "
            "what is compiled to it."
        )


def _demanded(text: str, arch: Arch) -> features.Feature | None:
    """Return what nvPTXCompiler finds too new in *text*; None for nothing, or where it cannot tell."""
    if Arch(*arch.cc) not in assembler.supported_archs():
        return None
    try:
        assembler.assemble(text, arch, relocatable=True)
    except AssembleError as error:
        demands = [
            features.Feature(PtxVersion(int(match[3]), int(match[4])), match[2], int(match[1]))
            for match in _ASKED.finditer(error.log)
        ]
        if not demands:
            raise
        return max(demands, key=lambda feature: feature.version)
    return None


def _numbers(text: object) -> tuple[int, int] | None:
    if isinstance(text, tuple) and len(text) == 2 and all(type(number) is int for number in text):
        return (text[0], text[1])
    match = _RELEASE.fullmatch(text) if isinstance(text, str) else None
    return (int(match[1]), int(match[2])) if match else None
