"""Say which numbers an element of an array consists of: as C lays it out, and as NumPy describes it."""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Mapping
from typing import Any

from numba_ptxlink._cabi import numbers
from numba_ptxlink._cabi.spelling import spell

Types = Mapping[str, Mapping[str, Any]]
"""The C types of a manifest, as `_cabi.layouts` describes them."""

Leaves = tuple[tuple[int, str, tuple[str, ...]], ...]
"""
The numbers in an element: where each begins, its type in NumPy's code, such as "f4", and the names of the
members that hold it, from the outermost on.
"""


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


def of_type(types: Types, name: str, offset: int = 0, path: tuple[str, ...] = ()) -> Leaves:
    """Return the numbers in a value of the type *name* that lies at *offset*, in the members *path*."""
    entry = types[name]
    if entry["kind"] == "struct":
        parts = entry["members"]
        nameless = is_tuple([part["name"] for part in parts])
        inner = [
            of_type(types, part["type"], offset + part["offset"], (*path, "" if nameless else part["name"]))
            for part in parts
        ]
    elif entry["kind"] in ("array", "vector"):
        step, element = types[entry["element"]]["size"], entry["element"]
        inner = [of_type(types, element, offset + step * number, path) for number in range(entry["count"])]
    else:
        number = numbers.of_kind(entry["kind"], entry["size"])
        letter = number.numpy if number else "u" if entry["kind"] == "pointer" else "V"
        return ((offset, f"{letter}{entry['size']}", path),)
    return tuple(leaf for part in inner for leaf in part)


def is_tuple(names: list[str]) -> bool:
    """Return whether the members of a struct are a tuple's, which have no names in Python."""
    return names == [f"f{number}" for number, _ in enumerate(names)]


@functools.lru_cache(maxsize=256)
def of_dtype(dtype: Any, offset: int = 0, path: tuple[str, ...] = ()) -> Leaves:
    """Return the numbers in an element of a NumPy type, by its own account, in the order of their offsets."""
    inner: list[tuple[int, str, tuple[str, ...]]] = []
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        for number in range(math.prod(shape)):
            inner += of_dtype(base, offset + number * base.itemsize, path)
    elif dtype.names is not None:
        for field in dtype.names:
            part, place = dtype.fields[field][:2]
            inner += of_dtype(part, offset + place, (*path, field))
    else:
        inner += _leaf(dtype.str, offset, path)
    return tuple(sorted(inner))


@functools.lru_cache(maxsize=256)
def of_typestr(typestr: str) -> tuple[int, Leaves | None]:
    """Return the size of an element of NumPy's type *typestr*, and its leaves, None where it tells none."""
    itemsize = _itemsize(typestr)
    return itemsize, of_descr([("", typestr)], itemsize)


def of_descr(descr: Any, size: int) -> Leaves | None:
    """
    Return the leaves of an element that *descr* describes in NumPy's terms.

    None where it tells no more than the *size*.
    """
    leaves: list[tuple[int, str, tuple[str, ...]]] = []
    end = _flatten(descr, 0, leaves, ())
    return tuple(leaves) if leaves and end == size else None


def _flatten(
    descr: Any, offset: int, leaves: list[tuple[int, str, tuple[str, ...]]], path: tuple[str, ...]
) -> int:
    for title, code, *extents in descr:
        shape = extents[0] if extents else ()
        name = title if isinstance(title, str) else title[1]
        own = (*path, name) if name else path
        for _ in range(shape if isinstance(shape, int) else math.prod(shape)):
            if not isinstance(code, str):
                offset = _flatten(code, offset, leaves, own)
                continue
            # Voids without a name are padding, and numbers where nothing else is there.
            if name or code[1] != "V" or (len(descr) == 1 and numbers.is_void(_itemsize(code))):
                leaves += _leaf(code, offset, own)
            offset += _itemsize(code)
    return offset


def _leaf(code: str, offset: int, path: tuple[str, ...]) -> Leaves:
    """Return the numbers in what NumPy calls *code*, at *offset* in the members *path*."""
    kind, size = code[1], _itemsize(code)
    if code[0] == ">":
        raise RefusedError(f"its elements, {code}, are big-endian; convert them by .astype()")
    if kind in "SU":
        unit, plain = (1, "S1") if kind == "S" else (4, "u4")
        return tuple((offset + at, plain, path) for at in range(0, size, unit))
    return ((offset, f"{'i' if kind in 'mM' else kind}{size}", path),)


def _itemsize(code: str) -> int:
    digits = code[2:].partition("[")[0]
    return int(digits) * (4 if code[1] == "U" else 1)


def is_alike(own: Leaves, expected: Leaves) -> bool:
    """Return whether the numbers in an element lie where C expects them, in members of the same names."""
    if own is expected:
        return True
    return len(own) == len(expected) and all(
        place == wanted_place and code == wanted_code and all(map(is_name, names, wanted_names))
        for (place, code, names), (wanted_place, wanted_code, wanted_names) in zip(own, expected, strict=True)
    )


def is_name(name: str, member: str) -> bool:
    """Return whether the *member* of a C struct, "" for one of a tuple, is what Python calls *name*."""
    if member in (name, ""):
        return True
    # A name that is none in C has become the closest legal one.
    return re.fullmatch(rf"(?:my_)?f?{spell(name)}_?(?:_\d+)?", member) is not None
