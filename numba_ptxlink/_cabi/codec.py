"""C types and signatures as JSON values and back, for a cache."""

from __future__ import annotations

import dataclasses
from typing import Any

from . import numbers
from . import types as c
from .cxx import Existing
from .signatures import Signature

_KIND = "class"


def _fields(value: Any) -> tuple[str, ...]:
    """Return the names of what a value, or a class, consists of; none for a plain one."""
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    named: tuple[str, ...] = getattr(value, "_fields", ())
    return named


_CLASSES = {
    value.__name__: value
    for value in (Signature, Existing, *vars(c).values(), *vars(numbers).values())
    if isinstance(value, type) and _fields(value)
}


def encode(value: Any) -> Any:
    """Return *value*, a signature or a part of one, as JSON has it."""
    names = _fields(value)
    if names:
        return {_KIND: type(value).__name__, **{name: encode(getattr(value, name)) for name in names}}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if value is None or isinstance(value, (str, int)):
        return value
    raise TypeError(f"{type(value).__name__} is no part of a signature")


def decode(value: Any) -> Any:
    """
    Return what `encode` made *value* of.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    if isinstance(value, dict):
        return _CLASSES[value[_KIND]](**{name: decode(part) for name, part in value.items() if name != _KIND})
    if isinstance(value, list):
        return tuple(map(decode, value))
    return value
