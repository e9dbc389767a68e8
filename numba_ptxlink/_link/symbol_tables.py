"""Symbols of an input, and their JSON form for the cache."""

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
        defined: Whether the input defines it, rather than only declares it.
        weak: Whether another definition may replace this one.
        prototype: A function's prototype, None where the input does not record it.
        line: 1-based line of the text, 0 for a binary.
        size: A variable's size in bytes, 0 where it is not known.
        common: Whether it is a common symbol, which linkers merge; None for a variable without a value in
            machine code and LTO-IR, where a relocatable link may have made it of one.
        repeated: Whether several members of a library define it, none of them weakly.
    """

    name: str
    kind: str
    defined: bool
    weak: bool = False
    prototype: Prototype | None = None
    line: int = 0
    size: int = 0
    common: bool | None = False
    repeated: bool = False


def write(symbols: tuple[Symbol, ...]) -> bytes:
    """Return *symbols* as JSON."""
    return json.dumps([asdict(symbol) for symbol in symbols], separators=(",", ":")).encode()


def read(code: bytes) -> tuple[Symbol, ...] | None:
    """Return the symbols that `write` encoded, None where *code* is not its output."""
    try:
        return tuple(
            Symbol(**{**fields, "prototype": _prototype(fields["prototype"])}) for fields in json.loads(code)
        )
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _prototype(fields: dict[str, Any] | None) -> Prototype | None:
    if fields is None:
        return None
    result = fields["result"]
    params = tuple(Param(**param) for param in fields["params"])
    return Prototype(fields["name"], Param(**result) if result else None, params, fields["entry"])
