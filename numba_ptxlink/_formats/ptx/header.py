"""Read the directives at the head of a PTX module, and which release of CUDA reads its version."""

from __future__ import annotations

from typing import NamedTuple

from numba_ptxlink._arch import PtxVersion

from .lexer import token_at

HEADER = (".version", ".target", ".address_size")
_LEAVES = ("word", "number", "string")
OLDEST = PtxVersion(7, 0)
"""The version that is needed at least; what is older is not told apart."""
_NEWEST_KNOWN = (13, 5)
_LAST_MINORS = {11: 8, 12: 9, 13: 99}

# Which version introduced a target, from the release notes in the PTX ISA manual; to sm_80 they are as old as
# `OLDEST`.
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


class Header(NamedTuple):
    """
    What a module says about itself before anything else.

    Args:
        version: The PTX ISA version, None where none is declared.
        target: What `.target` lists, such as ("sm_90", "debug").
        address_size: Bits of an address, 0 where it is not declared.
    """

    version: PtxVersion | None = None
    target: tuple[str, ...] = ()
    address_size: int = 0


def read_header(text: str) -> Header:
    """Return the directives at the head of the PTX *text*, without parsing the rest. Never raises."""
    values: dict[str, list[str]] = {}
    token = token_at(text, 0)
    while token.kind == "line" or token.text in HEADER:
        end = token.end
        if token.text in HEADER:
            found, end = listed(text, end)
            values.setdefault(token.text, found)
        token = token_at(text, end)
    version, target, size = (values.get(directive, []) for directive in HEADER)
    major, _, minor = "".join(version[:1]).partition(".")
    return Header(
        version=PtxVersion(int(major), int(minor)) if _is_decimal(major) and _is_decimal(minor) else None,
        target=tuple(target),
        address_size=int(size[0]) if size and _is_decimal(size[0]) else 0,
    )


def listed(text: str, start: int) -> tuple[list[str], int]:
    """Return the values at *start* with commas between them, and their end."""
    texts: list[str] = []
    while (token := token_at(text, start)).kind in _LEAVES:
        texts.append(token.text)
        start = token.end
        comma = token_at(text, start)
        if comma.text != "," or token_at(text, comma.end).kind not in _LEAVES:
            break
        start = comma.end
    return texts, start


def _is_decimal(text: str) -> bool:
    """Return whether *text* is a number of a few decimal digits."""
    return text.isascii() and text.isdigit() and len(text) < 10


def newest_isa(release: tuple[int, int]) -> PtxVersion | None:
    """
    Return the newest PTX ISA that a CUDA *release* reads, None for a release this package does not know.

    The release notes in the PTX ISA manual name the release that introduced each version.

    Args:
        release: (major, minor) of a toolkit, or the CUDA version of a driver.
    """
    major, minor = release
    if minor > _LAST_MINORS.get(major, -1):
        return None
    # CUDA 12.5 and 12.6 have the same.
    return PtxVersion(major - 4, minor - (major == 12 and minor > 5))


def sure_isa(release: tuple[int, int]) -> PtxVersion | None:
    """Return the same for a release that was tested, None for a release it is only expected of."""
    return newest_isa(release) if release <= _NEWEST_KNOWN else None


def first_release(isa: PtxVersion) -> tuple[int, int]:
    """Return the oldest CUDA release that reads PTX of version *isa*, 11.0 at least."""
    if isa < OLDEST:
        return (OLDEST.major + 4, OLDEST.minor)
    return (isa.major + 4, isa.minor + (isa.major == 8 and isa.minor > 5))


def release_of(isa: PtxVersion) -> tuple[int, int] | None:
    """Return the newest CUDA release whose PTX is of version *isa*, None where none is known."""
    major, minor = first_release(isa)
    return next((each for each in ((major, minor + 1), (major, minor)) if newest_isa(each) == isa), None)


def arch_since(target: str) -> PtxVersion | None:
    """Return the version that introduced *target*, such as "sm_90a", None for one that no table has."""
    number = target.removeprefix("sm_").rstrip("af")
    if number.isdigit() and int(number) <= 80:
        return OLDEST
    return next(
        (PtxVersion(*since) for since, targets in _TARGETS.items() if target in targets.split()), None
    )
