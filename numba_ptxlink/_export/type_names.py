"""Resolve the names in signatures that are strings: Numba's types, and the types of the function's module."""

from __future__ import annotations

import enum
import inspect
import re
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, ForwardRef

from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numba_ptxlink._front_end.protocol import FrontEnd

_PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def resolve(signature: Any, function: Callable[..., Any], front_end: FrontEnd) -> Any:
    """
    Return *signature* with Numba types for all that stands for one.

    In a string, names are those of what the function sees: Numba types, NumPy dtypes and scalars, named
    tuples with annotated fields, and integer enums, also as attributes of modules, such as `cuda.float32x4`.
    Where it sees no type of a name, that is Numba's, or that of one of CUDA's vector types.

    Args:
        signature: A string, a tuple of types, or anything else, which is returned as it is.
        function: The function that has the signature.
        front_end: What compiles it.

    Raises:
        AbiError: A name stands for no type.
    """
    if isinstance(signature, tuple):
        return tuple(type_of(entry, front_end) or entry for entry in signature)
    if not isinstance(signature, str):
        return signature
    return _evaluate(signature, _seen_by(function), front_end)


def _seen_by(function: Callable[..., Any]) -> dict[str, Any]:
    return {**function.__globals__, **inspect.getclosurevars(function).nonlocals}


def named(signature: Any, function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """
    Yield what *signature* and the named tuples in it have for types: how it is written, and what that is.

    Args:
        signature: As for `resolve`.
        function: The function that has the signature.
    """
    if isinstance(signature, str):
        pending = [*_read(signature, _seen_by(function))]
    else:
        parts = signature if isinstance(signature, tuple) else (signature,)
        pending = [(f"the type {part}", part) for part in parts]
    seen: set[int] = set()
    while pending:
        name, value = pending.pop(0)
        yield name, value
        if not _is_named_tuple(value) or id(value) in seen:
            continue
        seen.add(id(value))
        scope = vars(sys.modules[value.__module__]) if value.__module__ in sys.modules else {}
        for field, given in inspect.get_annotations(value).items():
            note = given.__forward_arg__ if isinstance(given, ForwardRef) else given
            found = _read(note, scope) if isinstance(note, str) else [(f"the type {note}", note)]
            pending += [(f"{inner} in {value.__name__}.{field}", stands) for inner, stands in found]


def _read(text: str, scope: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names of *scope* that *text* reads, with attributes of modules, and their values."""
    for path in _PATH.findall(text):
        first, *attributes = path.split(".")
        value = scope.get(first)
        for attribute in attributes:
            value = vars(value).get(attribute, value) if isinstance(value, ModuleType) else value
        if first in scope:
            yield path, value


def _evaluate(text: str, scope: Mapping[str, Any], front_end: FrontEnd) -> Any:
    return eval(text, {}, _Names(scope, front_end))  # noqa: S307 - as Numba does


class _Names(dict[str, Any]):
    """The types by their names: those of a scope, then Numba's own, each when it is read."""

    def __init__(self, scope: Mapping[str, Any], front_end: FrontEnd) -> None:
        super().__init__()
        self._own = {**vars(front_end.types), **front_end.vectors()}
        self._scope = scope
        self._front_end = front_end

    def __missing__(self, name: str) -> Any:
        own, front_end = self._own.get(name), self._front_end
        if name in self._scope:
            value = self._scope[name]
            # Numba has modules among its types, too, and functions are often called like a type.
            hides = isinstance(value, ModuleType) and not isinstance(own, front_end.types.Type)
            if own is None or hides or _is_type(value, front_end):
                return _meaning(value, name, front_end)
        return self._own[name]


class _Module:
    """A module whose attributes are types."""

    def __init__(self, module: ModuleType, name: str, front_end: FrontEnd) -> None:
        self._module = module
        self._name = name
        self._front_end = front_end

    def __getattr__(self, attribute: str) -> Any:
        return _meaning(getattr(self._module, attribute), f"{self._name}.{attribute}", self._front_end)


def _meaning(value: Any, name: str, front_end: FrontEnd) -> Any:
    if isinstance(value, ModuleType):
        return _Module(value, name, front_end)
    ty = type_of(value, front_end)
    if ty is not None:
        return ty
    if _makes_types(value, front_end):
        return value
    raise AbiError(
        f"{name!r} stands for {value!r}, which is not a type; use a Numba type, a NumPy dtype, a "
        "typing.NamedTuple or an IntEnum."
    )


def _is_type(value: Any, front_end: FrontEnd) -> bool:
    return _makes_types(value, front_end) or type_of(value, front_end) is not None


def _makes_types(value: Any, front_end: FrontEnd) -> bool:
    """Return whether *value* is a class of Numba's types, such as Optional."""
    return isinstance(value, type) and issubclass(value, front_end.types.Type)


def type_of(value: Any, front_end: FrontEnd) -> Any:
    """
    Return the Numba type that *value* is or stands for, None for none.

    Raises:
        AbiError: It is a dtype or a named tuple, with a field that Numba has no type for.
    """
    import numpy as np

    if isinstance(value, type) and issubclass(value, np.generic):
        # Such as np.void, which `from numpy import *` brings, is not one type.
        value = np.dtype(value) if np.dtype(value).itemsize else None
    if isinstance(value, np.dtype):
        return _of_dtype(value, front_end)
    if isinstance(value, type):
        return _of_class(value, front_end)
    return value if isinstance(value, front_end.types.Type) else None


def _of_class(cls: Any, front_end: FrontEnd) -> Any:
    types = front_end.types
    if issubclass(cls, enum.IntEnum):
        return types.IntEnumMember(cls, types.int64)
    if _is_named_tuple(cls):
        return _named_tuple(cls, front_end)
    return front_end.vector_of(cls)


def _of_dtype(dtype: Any, front_end: FrontEnd) -> Any:
    try:
        return front_end.from_dtype(dtype)
    except Exception as error:
        raise AbiError(
            f"Numba has no type for the NumPy dtype {dtype} ({type(error).__name__}: {error}); "
            "leave the field out that it cannot have."
        ) from error


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields")


def _named_tuple(cls: Any, front_end: FrontEnd) -> Any:
    try:
        return _of_fields(cls, front_end)
    except RecursionError:
        raise AbiError(
            f"The named tuple {cls.__name__} contains itself, which no type of Numba can; leave the field "
            "out, or make an address types.voidptr."
        ) from None


def _of_fields(cls: Any, front_end: FrontEnd) -> Any:
    types = front_end.types
    plain = {float: types.float64, int: types.int64, bool: types.boolean, complex: types.complex128}
    annotations = inspect.get_annotations(cls)
    scope = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    fields = []
    for field in cls._fields:
        value = annotations.get(field)
        if isinstance(value, ForwardRef):
            value = value.__forward_arg__
        # A string is one more within the other where annotations are not evaluated.
        while isinstance(value, str):
            builtin = None if value in scope else {each.__name__: each for each in plain}.get(value)
            value = builtin or _evaluate(value, scope, front_end)
        ty = plain.get(value) if isinstance(value, type) else None
        ty = ty or type_of(value, front_end)
        if ty is None:
            raise AbiError(
                f"The field {field!r} of the named tuple {cls.__name__} has no type; annotate it with a "
                "Numba type, in a class of typing.NamedTuple, or pass types.NamedTuple([...], "
                f"{cls.__name__}) in a signature of types."
            )
        fields.append(ty)
    return types.BaseTuple.from_types(fields, cls)
