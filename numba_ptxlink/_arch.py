"""Represent GPU architectures and PTX ISA versions as values; write versions as people do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, Union

from .errors import ConfigError

_ARCH = re.compile(r"(?:sm_|compute_)?(\d+)(\d)([af]?)", re.ASCII)
_DOTTED = re.compile(r"(\d+)\.(\d)([af]?)", re.ASCII)

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
            ConfigError: *value* is not one of them.
        """
        if isinstance(value, Arch):
            return value
        if isinstance(value, str):
            match = _ARCH.fullmatch(value) or _DOTTED.fullmatch(value)
            if match:
                return cls(int(match[1]), int(match[2]), match[3])
        elif isinstance(value, tuple) and len(value) in (2, 3):
            major, minor, *rest = value
            variant = rest[0] if rest else ""
            numbers = type(major) is int and type(minor) is int
            if numbers and major > 0 and 0 <= minor <= 9 and variant in ("", "a", "f"):
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
