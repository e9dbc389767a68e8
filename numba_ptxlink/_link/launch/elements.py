"""Compare elements of arrays, as NumPy and other packages describe them, with C types of a manifest."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from numba_ptxlink._cabi import numbers

Types = Mapping[str, Mapping[str, Any]]
"""The C types of a manifest, as `_cabi.layouts` describes them."""


class RefusedError(Exception):
    """A value is not what a parameter takes; the message says why and ends with the cure."""


def shown(value: object, longest: int = 80) -> str:
    """Return *value* as messages show it, in no more than *longest* characters."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - it is another package's
        # Integers of many digits have no text.
        text = "a value"
    return text if len(text) < longest else f"{text[: longest - 4]} ..."


def is_numpy(value: object, name: str) -> bool:
    """Return whether *value* is of NumPy's type *name*; NumPy is not imported for that."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, name))


def fields(entry: Mapping[str, Any]) -> list[str]:
    """Return the names that the members of a struct have in Python."""
    return [member.get("field", member["name"]) for member in entry["members"]]


def is_tuple(names: list[str]) -> bool:
    """Return whether the members of a struct are a tuple's, which have no names in Python."""
    return names == [f"f{number}" for number, _ in enumerate(names)]


def is_like(types: Types, name: str, dtype: Any) -> bool:
    """
    Return whether an element is laid out as C lays out the type *name*, with members of the same names.

    Args:
        types: The types of a manifest.
        name: One of them.
        dtype: What is told of the element: a dtype of NumPy, or the text for one, such as "<f4" or "|V16".
    """
    entry = types[name]
    if isinstance(dtype, str) or dtype.itemsize != entry["size"]:
        return isinstance(dtype, str) and _is_number(entry, dtype)
    if entry["kind"] == "array":
        if not dtype.subdtype:
            return bool(dtype.kind == {"char": "S", "uint": "U"}.get(types[entry["element"]]["kind"]))
        base, (count, *rest) = dtype.subdtype
        inner = sys.modules["numpy"].dtype((base, tuple(rest)))
        return bool(count == entry["count"]) and is_like(types, entry["element"], inner)
    members = entry.get("members", ())
    if entry["kind"] == "vector":
        lanes, step = enumerate("xyzw"[: entry["count"]]), entry["size"] // entry["count"]
        members = [{"name": axis, "type": entry["element"], "offset": lane * step} for lane, axis in lanes]
    if not members:
        return _is_number(entry, dtype.str)
    names, there = fields({"members": members}), dtype.fields or {}
    # C has no members without size.
    parts = sorted((there[name][1], name) for name in dtype.names or () if there[name][0].itemsize)
    return len(parts) == len(members) and all(
        place == member["offset"]
        and (own == name or is_tuple(names))
        and is_like(types, member["type"], there[own][0])
        for (place, own), name, member in zip(parts, names, members, strict=True)
    )


def _is_number(entry: Mapping[str, Any], text: str) -> bool:
    """Return whether *text* is NumPy's for the number *entry*, or tells the size of something else alone."""
    size, number = itemsize(text), numbers.of_kind(entry["kind"], entry["size"])
    # Dates are integers; a void is anything that has no letter.
    letter = "i" if text[1] in "mM" else text[1]
    own = "u" if entry["kind"] == "pointer" else number.numpy if number else ""
    return size == entry["size"] and letter == (own or "V") and text[0] != ">"


def itemsize(text: str) -> int:
    """Return the size of an element of NumPy's type *text*."""
    return int(text[2:].partition("[")[0]) * (4 if text[1] == "U" else 1)
