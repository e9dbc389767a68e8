"""Render a depfile: the rule of make that tells build tools which files an export is made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

# A backslash that is before anything else stands for itself.
_SPECIAL = re.compile(r"(\\*)([ #])|(:)")
# No form of these is read alike by both: tried with GNU Make 4.3, and Ninja 1.13 and 1.11, which reads fewer.
_MISREAD = {
    "make": re.compile(r"[=;|\x00-\x1f]|\\:"),
    "Ninja": re.compile(r"[\"&'?*;|<>^`\x00-\x1f\x7f]|\\[:#]"),
}
_PATTERN = "%"


def render(target: Path, sources: Iterable[Path]) -> bytes:
    """
    Return the depfile of *target*, in the form of `gcc -MD -MP` that make, Ninja and CMake read.

    Args:
        target: What is out of date when one of *sources* is newer; its path as the build tool has it.
        sources: What it is made of. Each has an empty rule too, so that make goes on where one was deleted.
    """
    names = [_escaped(str(source)) for source in sources]
    rule = " \\\n  ".join([f"{_escaped(str(target))}:", *names])
    # With a percent sign it would be a pattern of targets.
    lines = [rule, *(f"\n{name}:" for name in names if _PATTERN not in name), ""]
    # Paths that the locale does not decode have the bytes that they have on disk.
    return "\n".join(lines).encode(errors="surrogateescape")


def misread(target: Path, sources: Iterable[Path]) -> Iterator[str]:
    """Yield what build tools read otherwise than it is meant, path by path, as a reason for a warning."""
    for path in (target, *sources):
        for tool, characters in _MISREAD.items():
            found = set(characters.findall(str(path)))
            if tool == "make" and path == target and _PATTERN in str(path):
                found.add(_PATTERN)
            if found:
                yield f"{path} has {' '.join(map(repr, sorted(found)))} in it, which {tool} reads otherwise"


def _escaped(path: str) -> str:
    return _SPECIAL.sub(_escape, path).replace("$", "$$")


def _escape(match: re.Match[str]) -> str:
    backslashes, character, colon = match.groups()
    return "\\:" if colon else f"{backslashes * 2}\\{character}"
