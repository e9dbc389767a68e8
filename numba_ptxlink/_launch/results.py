"""Make Python values of the bytes that a function returns, by the C types of a manifest."""

from __future__ import annotations

import functools
import re
from collections import namedtuple
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi import numbers

from . import arrays

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .arrays import Types

# Those that Python has, by NumPy's kinds, which has integers of any size.
_PYTHON = {"f": 8, "c": 16}


def unpack(types: Types, name: str, content: bytes) -> Any:
    """
    Return the value of the type *name* that *content* begins with.

    Numbers that Python has are Python's; those of other precisions are NumPy's, a `bfloat16` as float32. A
    tuple, a vector and an array are tuples, a struct with names is a named tuple, an Optional is None or the
    value, and a pointer an address.
    """
    import numpy as np

    entry = types[name]
    kind, size = entry["kind"], entry["size"]
    if kind == "void":
        return None
    element = dtype(types, name)
    if kind in {"struct", "vector", "array"} and element.kind != "S":
        parts = [unpack(types, each.type, content[each.offset :]) for each in arrays.fields(types, name)]
        if arrays.is_optional(types, name):
            return parts[0] if parts[1] else None
        names = arrays.field_names(types, name)
        is_named = kind == "struct" and not arrays.is_tuple(names)
        return _named(name, tuple(names))(*parts) if is_named else tuple(parts)
    (value,) = numbers_of(types, name, np.frombuffer(content[:size], element))
    return value if _PYTHON.get(element.kind, size) != size or kind == "bfloat16" else value.item()


def numbers_of(types: Types, name: str, elements: Any) -> Any:
    """Return an array of the type *name* as one that NumPy computes with: `bfloat16` as float32."""
    if types[name]["kind"] != "bfloat16":
        return elements
    return (elements.view("<u2").astype("<u4") << 16).view("<f4")


def dtype(types: Types, name: str) -> Any:
    """Return NumPy's type for elements of the type *name*."""
    import numpy as np

    entry = types[name]
    kind, size = entry["kind"], entry["size"]
    if kind == "array":
        is_text = types[entry["element"]]["kind"] == "char"
        inner = dtype(types, entry["element"])
        return np.dtype(f"S{size}" if is_text else (inner.base, (entry["count"], *inner.shape)))
    if kind in {"struct", "vector"}:
        fields = arrays.fields(types, name)
        return np.dtype(
            {
                "names": [field.name for field in fields],
                "formats": [dtype(types, field.type) for field in fields],
                "offsets": [field.offset for field in fields],
                "itemsize": size,
            }
        )
    number = numbers.of_kind(kind, size)
    letter = "u" if kind == "pointer" else number.numpy if number else "V"
    return np.dtype(f"<{letter}{size}")


@functools.cache
def _named(name: str, fields: Sequence[str]) -> Any:
    # The name of a struct of C++ may be qualified, and a member may be named like a word of Python.
    return namedtuple(re.sub(r"\W", "_", name), fields, rename=True)  # noqa: PYI024 - known at run time alone
