"""Symbols as values, and as the bytes that the cache keeps."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from numba_ptxlink._formats.ptx import Param, Prototype


@dataclass(frozen=True)
class Symbol:
    """
    One symbol that other inputs can see.

    Args:
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether the input defines it, rather than asking for it.
        weak: Whether another definition may stand in for this one.
        prototype: A function's interface, None where the input does not tell.
        line: 1-based line of the text, 0 for a binary.
    """

    name: str
    kind: str
    defined: bool
    weak: bool = False
    prototype: Prototype | None = None
    line: int = 0


def write(symbols: tuple[Symbol, ...]) -> bytes:
    """Return *symbols* as JSON."""
    return json.dumps([asdict(each) for each in symbols], separators=(",", ":")).encode()


def read(code: bytes) -> tuple[Symbol, ...] | None:
    """Return what `write` wrote, None where it is something else."""
    try:
        return tuple(
            Symbol(**{**each, "prototype": _prototype(each["prototype"])}) for each in json.loads(code)
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _prototype(fields: dict[str, Any] | None) -> Prototype | None:
    if fields is None:
        return None
    result = fields["result"]
    params = tuple(Param(**each) for each in fields["params"])
    return Prototype(fields["name"], Param(**result) if result else None, params, fields["entry"])
