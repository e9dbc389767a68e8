"""Values of compiler options as text: equal exactly where types and values are equal, or no text at all."""

from __future__ import annotations

import copyreg
import enum
import sys
from typing import Any


class IndescribableError(Exception):
    """A value is not known by its type and a text."""


def describe(value: Any) -> str:
    """
    Return *value* as text that no other value has.

    Raises:
        IndescribableError: It is of a type that text does not tell.
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
        # The name of a combination of flags depends on the version of Python.
        return _group(f"enum {_home(kind)}", [_describe(value.value)])
    if _is_numpy_scalar(value):
        return _group("numpy", [repr(value.dtype.descr), value.dtype.str, value.tobytes().hex()])
    raise IndescribableError(f"{kind.__module__}.{kind.__qualname__}")


def describe_stateless(values: Any) -> str:
    """
    Return a sequence of objects as text, by their classes; each must hold nothing of its own.

    Raises:
        IndescribableError: One of them holds something, or is of a class that cannot be found by its name.
    """
    for value in values:
        # What is kept of it on a disk: how to make it, its class, its state, its items.
        kept = value.__reduce_ex__(2)
        if not isinstance(kept, tuple) or kept[:2] != (copyreg.__newobj__, (type(value),)) or any(kept[2:]):  # type: ignore[attr-defined]
            raise IndescribableError(f"a {type(value).__qualname__} with a state")
    return _group("objects", [_home(type(value)) for value in values])


def _home(kind: type) -> str:
    """Return where the class *kind* is found by name, which is what an entry on a disk can hold of it."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    # Every program has another __main__.
    if found is not kind or kind.__module__ == "__main__":
        raise IndescribableError(f"{kind.__module__}.{kind.__qualname__}")
    return f"{kind.__module__}.{kind.__qualname__}"


def _is_numpy_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic) and not value.dtype.hasobject


def _group(kind: str, items: list[str]) -> str:
    # Counted and with lengths, so that no item can look like the end of another.
    return f"{kind}({','.join(f'{len(item)}:{item}' for item in items)})"
