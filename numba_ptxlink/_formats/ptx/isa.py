"""The PTX ISA versions that a CUDA release reads, and that a target needs."""

from __future__ import annotations

from numba_ptxlink._arch import PtxVersion

# From the release notes in NVIDIA's PTX ISA manual, which name the CUDA release and the driver that
# introduced each version. From 13.0 on, the ISA has the release's own minor version.
_ISA_OF_RELEASE = {
    (9, 0): (6, 0),
    (9, 1): (6, 1),
    (9, 2): (6, 2),
    (10, 0): (6, 3),
    (10, 1): (6, 4),
    (10, 2): (6, 5),
    (11, 0): (7, 0),
    (11, 1): (7, 1),
    (11, 2): (7, 2),
    (11, 3): (7, 3),
    (11, 4): (7, 4),
    (11, 5): (7, 5),
    (11, 6): (7, 6),
    (11, 7): (7, 7),
    (11, 8): (7, 8),
    (12, 0): (8, 0),
    (12, 1): (8, 1),
    (12, 2): (8, 2),
    (12, 3): (8, 3),
    (12, 4): (8, 4),
    (12, 5): (8, 5),
    (12, 6): (8, 5),
    (12, 7): (8, 6),
    (12, 8): (8, 7),
    (12, 9): (8, 8),
}

# Which version introduced a target, from the same notes; those up to sm_70 are as old as `OLDEST`.
_TARGETS = {
    (6, 1): "sm_72",
    (6, 3): "sm_75",
    (7, 0): "sm_80",
    (7, 1): "sm_86",
    (7, 4): "sm_87",
    (7, 8): "sm_89 sm_90",
    (8, 0): "sm_90a",
    (8, 6): "sm_100 sm_101 sm_100a sm_101a",
    (8, 7): "sm_120 sm_120a",
    (8, 8): "sm_100f sm_101f sm_103 sm_103a sm_103f sm_120f sm_121 sm_121a sm_121f",
    (9, 0): "sm_88 sm_110 sm_110a sm_110f",
}

OLDEST = PtxVersion(6, 0)
"""The version that is needed at least; what is older is not told apart."""

_NEWEST_KNOWN = (13, 5)
_NEWEST_ISA_OF_TABLE = 8


def newest_isa(release: tuple[int, int]) -> PtxVersion | None:
    """
    Return the newest PTX ISA that a CUDA *release* reads, None for a release this package does not know.

    Args:
        release: (major, minor) of a toolkit, or the CUDA version of a driver.
    """
    if release[0] == _NEWEST_KNOWN[0]:
        return PtxVersion(9, release[1])
    known = _ISA_OF_RELEASE.get(release)
    return PtxVersion(*known) if known else None


def sure_isa(release: tuple[int, int]) -> PtxVersion | None:
    """Return the same for a release that was tested, None for a release it is only expected of."""
    return newest_isa(release) if release <= _NEWEST_KNOWN else None


def release_of(isa: PtxVersion) -> tuple[int, int] | None:
    """Return the newest CUDA release whose PTX is of version *isa*, None where none is known."""
    if isa.major == _NEWEST_KNOWN[0] - 4:  # 13.5 has PTX 9.5
        return (_NEWEST_KNOWN[0], isa.minor)
    releases = [release for release, known in _ISA_OF_RELEASE.items() if PtxVersion(*known) == isa]
    return max(releases, default=None)


def first_release(isa: PtxVersion) -> tuple[int, int]:
    """Return the oldest CUDA release that reads PTX of version *isa*."""
    if isa.major > _NEWEST_ISA_OF_TABLE:
        return (isa.major + 4, isa.minor)
    known = [release for release, newest in _ISA_OF_RELEASE.items() if PtxVersion(*newest) >= isa]
    return min(known, default=(_NEWEST_ISA_OF_TABLE + 5, 0))


def arch_since(target: str) -> PtxVersion | None:
    """Return the version that introduced *target*, such as "sm_90a", None for one that no table has."""
    number = target.removeprefix("sm_").rstrip("af")
    if number.isdigit() and int(number) <= 70:
        return OLDEST
    return next(
        (PtxVersion(*since) for since, targets in _TARGETS.items() if target in targets.split()), None
    )
