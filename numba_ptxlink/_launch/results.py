"""Make Python values of the bytes that a function returns, by the C types of a manifest."""

from __future__ import annotations

import functools
import re
from collections import namedtuple
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi import numbers

from . import arrays
from .arrays import RefusedError, Types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .arrays import Launch

# Python has integers of any size, and floats of this one.
_PYTHON = {"float": 8, "complex": 16}


def unpack(  # noqa: PLR0911 - a list of kinds
    types: Types, name: str, content: bytes, launch: Launch
) -> Any:
    """
    Return the value of the type *name* that *content* begins with.

    Numbers that Python has are Python's; those of other precisions are NumPy's, a `bfloat16` as float32. A
    tuple, a vector and an array are tuples, a struct with names is a named tuple, an Optional is None or the
    value, a pointer an address, and an array view NumPy's array of that memory.

    Raises:
        RefusedError: It is an array, and none of those that *launch* was given.
    """
    import numpy as np

    entry = types[name]
    kind, size = entry["kind"], entry["size"]
    if kind == "void":
        return None
    if kind == "bool":
        return bool(content[0])
    if kind in {"int", "uint", "char", "pointer"}:
        return int.from_bytes(content[:size], "little", signed=kind == "int")
    if kind in {"vector", "array"}:
        if types[entry["element"]]["kind"] == "char":
            return bytes(content[:size]).rstrip(b"\0")
        step = size // entry["count"]
        starts = range(0, size, step)
        return tuple(unpack(types, entry["element"], content[start:], launch) for start in starts)
    if kind == "view":
        return _array(types, entry, content, launch)
    if kind == "struct":
        parts = [
            unpack(types, member["type"], content[member["offset"] :], launch) for member in entry["members"]
        ]
        if is_optional(types, name):
            return parts[0] if parts[1] else None
        return structure(types, name, parts)
    (value,) = numbers_of(types, name, np.frombuffer(content[:size], dtype(types, name)))
    return value.item() if _PYTHON.get(kind) == size else value


def structure(types: Types, name: str, parts: Sequence[Any]) -> Any:
    """Return the tuple of the members of a struct, a named tuple where they have names."""
    names = arrays.fields(types[name])
    return tuple(parts) if arrays.is_tuple(names) else _named(name, tuple(names))(*parts)


def numbers_of(types: Types, name: str, elements: Any) -> Any:
    """Return an array of the type *name* as one that NumPy computes with: `bfloat16` as float32."""
    if types[name]["kind"] != "bfloat16":
        return elements
    return (elements.view("<u2").astype("<u4") << 16).view("<f4")


def is_optional(types: Types, name: str) -> bool:
    """Return whether the type *name* is what C has for an Optional."""
    return name.startswith("optional_") and arrays.fields(types[name]) == ["value", "has_value"]


def dtype(types: Types, name: str) -> Any:
    """Return NumPy's type for elements of the type *name*."""
    import numpy as np

    entry = types[name]
    kind, size = entry["kind"], entry["size"]
    if kind in {"vector", "array"}:
        element = dtype(types, entry["element"])
        if kind == "array":
            is_text = types[entry["element"]]["kind"] == "char"
            return np.dtype(f"S{size}") if is_text else np.dtype((element, (entry["count"],)))
        members = [(axis, element) for axis in "xyzw"[: entry["count"]]]
        return np.dtype(members)
    if kind == "struct":
        return np.dtype(
            {
                "names": arrays.fields(entry),
                "formats": [dtype(types, member["type"]) for member in entry["members"]],
                "offsets": [member["offset"] for member in entry["members"]],
                "itemsize": size,
            }
        )
    number = numbers.of_kind(kind, size)
    letter = "u" if kind == "pointer" else number.numpy if number else "V"
    return np.dtype(f"<{letter}{size}")


def _array(types: Types, entry: Any, content: bytes, launch: Launch) -> Any:
    import numpy as np

    ndim, element = entry["ndim"], dtype(types, entry["element"])
    address, *rest = np.frombuffer(content[: entry["size"]], "<i8").tolist()
    shape, strides = tuple(rest[:ndim]), tuple(rest[ndim:])
    interface = {
        "data": (address, entry["readonly"]),
        "shape": shape,
        "strides": strides,
        "typestr": element.str,
        "descr": element.descr if element.names else [("", element.str)],
        "version": 3,
    }
    given = [each for each in launch.kept if _holds(each, address)]
    if not given and 0 not in shape:
        raise RefusedError(
            "the array that it returns is in none of those that it was given, but in memory that ends with "
            "it; return one that was passed"
        )
    # It keeps the memory alive.
    return np.asarray(SimpleNamespace(__array_interface__=interface, kept=given))


def _holds(given: Any, address: int) -> bool:
    from numba_ptxlink._cpu import host

    start, size, *_ = host.region(given, "")
    return start <= address < start + size


@functools.cache
def _named(name: str, fields: Sequence[str]) -> Any:
    # The name of a struct of C++ may be qualified, and a member may be named like a word of Python.
    return namedtuple(re.sub(r"\W", "_", name), fields, rename=True)  # noqa: PYI024 - known at run time alone
