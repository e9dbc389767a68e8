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
from numba_ptxlink._formats.ptx import Directive, Instruction, Module, Part, Span, block, parse
from numba_ptxlink._formats.ptx.header import OLDEST, arch_since, first_release, newest_isa
from numba_ptxlink.errors import AssembleError, ConfigError, ExportError

from . import oldest, single_ptx

if TYPE_CHECKING:
    from collections.abc import Collection

log = logging.getLogger(__name__)

_OLDEST = (11, 0)
_RELEASE = re.compile(r"(\d+)\.(\d+)", re.ASCII)
_ASKED = re.compile(r"line (\d+); error\s*: (?:Feature )?'?(.*?)'? requires PTX ISA \.version (\d+)\.(\d+)")


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
        Return *ptx* with the lowest version with which nvPTXCompiler assembles it.

        Text for an architecture that the compiler does not know keeps its version.

        Raises:
            ExportError: The text needs a newer version than the consumer reads. Names what needs it.
        """
        module = parse(ptx.decode())
        declared = module.header.version or OLDEST
        if Arch(*arch.cc) not in assembler.supported_archs():
            if declared > self.isa:
                raise self._too_new(_Demand(declared, "no older version"), arch)
            return ptx
        try:
            return self._lowest(module, arch).encode()
        except _TooNewError:
            plain = parse(_without_hints(module))
        try:
            return self._lowest(plain, arch).encode()
        except _TooNewError as error:
            raise self._too_new(error.needed, arch) from None

    def _lowest(self, module: Module, arch: Arch) -> str:
        """Return the text of *module* with the lowest version."""
        declared = module.header.version or OLDEST
        needed = _Demand(arch_since(arch.sm) or declared, f".target {arch.sm}")
        while needed.version <= self.isa:
            version = min(needed.version, declared)
            text = _relabelled(module, version)
            demanded = _demanded(text, arch, declared if version < declared else None)
            if demanded is None:
                return text
            needed = demanded
        raise _TooNewError(needed)

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

    def check_ltoir(self, ltoir: bytes, arch: Arch) -> None:
        """
        Refuse *ltoir*, which holds code of link files, where a newer tool has written it.

        Raises:
            ExportError: The consumer does not read it. Names the cure.
        """
        if cause := self._unread(oldest.of_code(LTOIR, arch, ltoir, "").toolkit):
            raise ExportError(f"No ltoir for {self.asked}: {cause}.")

    def _without_ltoir(self, archs: Collection[Arch]) -> str:
        return self._unread(max(filter(None, map(oldest.ltoir_release, archs)), default=None))

    def _unread(self, release: tuple[int, int] | None) -> str:
        """Return why the consumer does not read LTO-IR of *release*, "" where it does."""
        if release is None or release <= self.release:
            return ""
        return (
            f"LTO-IR is read by linkers of its own release or later, and that of CUDA {dotted(release)} "
            f"cannot be made older; leave ltoir out, or export in an environment with the tools of "
            f"CUDA {dotted(self.release)}"
        )

    def _too_new(self, needed: _Demand, arch: Arch) -> ExportError:
        return ExportError(
            f"{self.asked} reads PTX {self.isa} at most, and the code for {arch.sm} has {needed}. Export for "
            f"CUDA {dotted(first_release(needed.version))} or later, for another architecture, or without "
            "what is compiled to it."
        )


@dataclass(frozen=True)
class _Demand:
    """What needs a version of PTX: its name, as nvPTXCompiler says it, and its line, 0 for no line."""

    version: PtxVersion
    name: str
    line: int = 0

    def __str__(self) -> str:
        line = f" in line {self.line}" if self.line else ""
        return f"{self.name}{line}, which is new in PTX {self.version}"


class _TooNewError(Exception):
    """PTX needs a newer version than the consumer reads."""

    def __init__(self, needed: _Demand) -> None:
        super().__init__(needed)
        self.needed = needed


def _demanded(text: str, arch: Arch, newest: PtxVersion | None) -> _Demand | None:
    """Return what nvPTXCompiler finds too new in *text*; *newest* has what it refuses without a reason."""
    try:
        assembler.assemble(text, arch, relocatable=True)
    except AssembleError as error:
        demands = [
            _Demand(PtxVersion(int(match[3]), int(match[4])), match[2], int(match[1]))
            for match in _ASKED.finditer(error.log)
        ]
        if newest and not demands:
            demands = [_Demand(newest, "text that no older version has")]
        if not demands:
            raise
        return max(demands, key=lambda demand: demand.version)
    return None


def _relabelled(module: Module, version: PtxVersion) -> str:
    """Return the text of *module* with another `.version`."""
    spans = [
        Span(item.start, item.end)
        for item in module.items
        if isinstance(item, Part) and item.keyword == "version"
    ]
    return module.replace(dict.fromkeys(spans[:1], f".version {version}"))


def _without_hints(module: Module) -> str:
    """
    Return the text of *module* without what is new in it and changes no result.

    That is the `volatile` of accesses to local memory, which no other thread sees and which compilers left
    out before PTX 9.1, and the pragma that tells which bytes of a load are used.
    """
    edits = {}
    for function in module.functions:
        body = [
            each._replace(word=each.word.replace(".volatile.local", ".local"))
            if isinstance(each, Instruction)
            else each
            for each in function.body
            if not (isinstance(each, Directive) and each.text.startswith('.pragma "used_bytes_mask'))
        ]
        if body != list(function.body):
            edits[function.body_span] = block(body)
    return module.replace(edits)


def _numbers(text: object) -> tuple[int, int] | None:
    if isinstance(text, tuple) and len(text) == 2 and all(type(number) is int for number in text):
        return (text[0], text[1])
    match = _RELEASE.fullmatch(text) if isinstance(text, str) else None
    return (int(match[1]), int(match[2])) if match else None
