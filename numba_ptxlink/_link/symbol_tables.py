"""Write the symbols of an input as JSON for the cache, and read them back."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from numba_ptxlink._formats.ptx import Param, Prototype
from numba_ptxlink._formats.symbol import Symbol


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
