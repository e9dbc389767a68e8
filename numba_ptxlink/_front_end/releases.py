"""Which releases of a distribution are served."""

from __future__ import annotations

import re

# Final, post and local versions (PEP 440); before a final version, what the plugin replaces may still change.
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(?:\.\d+)*(?:\.post\d+)?(?:\+[\w.]+)?")

Version = tuple[int, ...]


class Releases:
    """
    A range of releases.

    Args:
        first: The first one, of three numbers.
        below: The first one that is not served any more.
        without: Those in between that are not served.
    """

    def __init__(self, first: Version, below: Version, without: tuple[Version, ...] = ()) -> None:
        self.first = first
        self.below = below
        self.without = without

    def __contains__(self, version: str) -> bool:
        match = _VERSION.fullmatch(version)
        if match is None:
            return False
        numbers = tuple(int(part or 0) for part in match.groups())
        return self.first <= numbers < self.below and numbers not in self.without

    def __str__(self) -> str:
        """Return them as a version specifier."""
        bounds = (f">={_spelled(self.first)}", f"<{_spelled(self.below)}")
        return ",".join((*bounds, *(f"!={_spelled(version)}" for version in self.without)))


def _spelled(version: Version) -> str:
    return ".".join(map(str, version))
