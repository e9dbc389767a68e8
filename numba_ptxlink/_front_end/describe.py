"""Serialise compiler options to text that is equal exactly if types and values are equal."""

from __future__ import annotations

import copyreg
import enum
import sys
from typing import Any


class IndescribableError(Exception):
    """The text of a value would not determine it."""


def describe(value: Any) -> str:
    """
    Return *value* as text that is unique to it.

    Raises:
        IndescribableError: Text does not determine values of its type, or it contains itself.
    """
    try:
        return _describe(value)
    except RecursionError:
        raise IndescribableError("a value within itself") from None


def _describe(value: Any) -> str:
    kind = type(value)
    if value is None or kind in (bool, int, float, complex, str, bytes):
        return f"{kind.__name__} {value!r}"
    if kind in (list, tuple):
        return _group(kind.__name__, [_describe(item) for item in value])
    if kind in (set, frozenset):
        return _group(kind.__name__, sorted(_describe(item) for item in value))
    if kind is dict:
        return _group("dict", [f"{_describe(name)}: {_describe(item)}" for name, item in value.items()])
    if isinstance(value, enum.Enum):
        # By value: the name of a combination of flags depends on the version of Python.
        return _group(f"enum {_home(kind)}", [_describe(value.value)])
    if _is_numpy_scalar(value):
        return _group("numpy", [repr(value.dtype.descr), value.dtype.str, value.tobytes().hex()])
    raise IndescribableError(f"{kind.__module__}.{kind.__qualname__}")


def describe_stateless(values: Any) -> str:
    """
    Return a sequence of stateless objects as text: the names of their classes.

    Raises:
        IndescribableError: One of them has state, or its class cannot be imported by name.
    """
    for value in values:
        # As for pickling: the constructor and its arguments, the state, and the items.
        kept = value.__reduce_ex__(2)
        if not isinstance(kept, tuple) or kept[:2] != (copyreg.__newobj__, (type(value),)) or any(kept[2:]):  # type: ignore[attr-defined]
            raise IndescribableError(f"a {type(value).__qualname__} with a state")
    return _group("objects", [_home(type(value)) for value in values])


def _home(kind: type) -> str:
    """Return the qualified name by which the class *kind* can be imported in another process."""
    resolved: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        resolved = getattr(resolved, name, None)
    # __main__ differs between programs.
    if resolved is not kind or kind.__module__ == "__main__":
        raise IndescribableError(f"{kind.__module__}.{kind.__qualname__}")
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and not value.dtype.hasobject


def _group(kind: str, items: list[str]) -> str:
    # Length-prefixed, so that the boundaries of items are unambiguous.
    return f"{kind}({','.join(f'{len(item)}:{item}' for item in items)})"
