"""Render a depfile: the rule of make that tells build tools which files an export is made of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_SPECIAL = re.compile(r"[ #:\\]")


def render(target: Path, sources: Iterable[Path]) -> bytes:
    """
    Return the depfile of *target*, in the form of `gcc -MD -MP` that make, Ninja and CMake read.

    Args:
        target: What is out of date when one of *sources* is newer; its path as the build tool has it.
        sources: What it is made of. Each has an empty rule too, so that make goes on where one was deleted.
    """
    names = [_escaped(str(source)) for source in sources]
    rule = " \\\n  ".join([f"{_escaped(str(target))}:", *names])
    return "\n".join([rule, *(f"\n{name}:" for name in names), ""]).encode()


def _escaped(path: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", path).replace("$", "$$")
