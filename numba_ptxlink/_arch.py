"""Define GPU architectures and PTX versions, and map PTX versions to releases of CUDA."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, Union

from .errors import ConfigError

# "sm_90a", "compute_90" or "90": the last digit is the minor number.
_NAMED_ARCH = re.compile(r"(?:sm_|compute_)?(\d+)(\d)([af]?)", re.ASCII)
# "9.0" or "9.0a".
_DOTTED_ARCH = re.compile(r"(\d+)\.(\d)([af]?)", re.ASCII)

ArchLike = Union["Arch", str, tuple[int, int], tuple[int, int, str]]
"""The spellings that `Arch.of` accepts: "sm_90a", "90", "9.0", (9, 0), (9, 0, "a") or an `Arch`."""


@dataclass(frozen=True, order=True)
class Arch:
    """
    A GPU architecture: compute capability and variant.

    Args:
        major: Compute capability, first number.
        minor: Compute capability, second number, one digit.
        variant: "" portable, "a" architecture-specific, "f" family-specific.
    """

    major: int
    minor: int
    variant: str = ""

    @classmethod
    def of(cls, value: ArchLike) -> Arch:
        """
        Parse an architecture from any of its spellings.

        Raises:
            ConfigError: *value* does not spell an architecture.
        """
        if isinstance(value, Arch):
            return value
        if isinstance(value, str):
            match = _NAMED_ARCH.fullmatch(value) or _DOTTED_ARCH.fullmatch(value)
            if match:
                return cls(int(match[1]), int(match[2]), match[3])
        elif isinstance(value, tuple) and len(value) in (2, 3):
            major, minor, *rest = value
            variant = rest[0] if rest else ""
            # Not isinstance: True is an int, too.
            are_integers = type(major) is int and type(minor) is int
            if are_integers and major > 0 and 0 <= minor <= 9 and variant in ("", "a", "f"):
                return cls(major, minor, variant)
        raise ConfigError(
            f'{value!r} is not a GPU architecture; write it like "sm_90", "sm_90a", (9, 0) or (9, 0, "a").'
        )

    @property
    def number(self) -> int:
        """The compute capability as one number: 90 for 9.0."""
        return self.major * 10 + self.minor

    @property
    def cc(self) -> tuple[int, int]:
        """The compute capability as (major, minor)."""
        return (self.major, self.minor)

    @property
    def sm(self) -> str:
        """The name of the machine code target, such as "sm_90a"."""
        return f"sm_{self}"

    @property
    def compute(self) -> str:
        """The name of the virtual target, such as "compute_90a"."""
        return f"compute_{self}"

    def __str__(self) -> str:
        return f"{self.number}{self.variant}"


class PtxVersion(NamedTuple):
    """A version of the PTX instruction set architecture, such as 9.0."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def dotted(version: tuple[int, ...] | None) -> str:
    """Return *version* as it is written, such as "13.0"; "" for None."""
    return ".".join(map(str, version or ()))


OLDEST_ISA = PtxVersion(7, 0)
"""The PTX ISA of CUDA 11.0. Older versions, and those that introduced targets up to sm_80, count as 7.0."""
# The newest CUDA release with whose tools this package was tested.
_NEWEST_TESTED_RELEASE = (13, 5)
# The last minor release of each major release of CUDA. That of 13 is not known yet: 99 allows any.
_LAST_MINORS = {11: 8, 12: 9, 13: 99}

# The targets by the PTX version that introduced them, from the release notes in the PTX ISA manual.
_TARGETS = {
    (7, 1): "sm_86",
    (7, 4): "sm_87",
    (7, 8): "sm_89 sm_90",
    (8, 0): "sm_90a",
    (8, 6): "sm_100 sm_101 sm_100a sm_101a",
    (8, 7): "sm_120 sm_120a",
    (8, 8): "sm_100f sm_101f sm_103 sm_103a sm_103f sm_120f sm_121 sm_121a sm_121f",
    (9, 0): "sm_88 sm_110 sm_110a sm_110f",
}


def newest_isa(release: tuple[int, int]) -> PtxVersion | None:
    """
    Return the newest PTX ISA that a CUDA *release* reads; None for an unknown release.

    The release notes in the PTX ISA manual name the release that introduced each version. A future release
    13.x is expected to read PTX 9.x.

    Args:
        release: (major, minor) of a toolkit, or the CUDA version of a driver.
    """
    major, minor = release
    if minor > _LAST_MINORS.get(major, -1):
        return None
    # CUDA 11.1 reads PTX 7.1, and so on. CUDA 12.5 and 12.6 both read PTX 8.5, and CUDA 12.7 reads PTX 8.6.
    if major == 12 and minor > 5:
        minor -= 1
    return PtxVersion(major - 4, minor)


def newest_tested_isa(release: tuple[int, int]) -> PtxVersion | None:
    """Return the newest PTX ISA that CUDA *release* reads; None if it is unknown or newer than all tested."""
    return newest_isa(release) if release <= _NEWEST_TESTED_RELEASE else None


def first_release_reading(isa: PtxVersion) -> tuple[int, int]:
    """Return the oldest CUDA release that reads PTX of version *isa*, from 11.0 on."""
    if isa < OLDEST_ISA:
        return (OLDEST_ISA.major + 4, OLDEST_ISA.minor)
    # As in `newest_isa`: PTX 7.1 is of CUDA 11.1, and PTX 8.6 of CUDA 12.7.
    minor = isa.minor + 1 if isa.major == 8 and isa.minor > 5 else isa.minor
    return (isa.major + 4, minor)


def last_release_emitting(isa: PtxVersion) -> tuple[int, int] | None:
    """Return the newest CUDA release that emits PTX of version *isa*; None if it is unknown."""
    major, minor = first_release_reading(isa)
    # At most two releases emit the same version: try the later one first.
    candidates = ((major, minor + 1), (major, minor))
    return next((release for release in candidates if newest_isa(release) == isa), None)


def isa_introducing(target: str) -> PtxVersion | None:
    """Return the PTX version that introduced *target*, such as "sm_90a"; None for an unknown target."""
    compute_capability = target.removeprefix("sm_").rstrip("af")
    if compute_capability.isdigit() and int(compute_capability) <= 80:
        return OLDEST_ISA
    return next((PtxVersion(*isa) for isa, targets in _TARGETS.items() if target in targets.split()), None)
