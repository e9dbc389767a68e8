"""Convert the bytes that a function returns to Python values, by the C types of a manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi import numbers

from . import arrays

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from .arrays import Types

# The sizes of Python's float and complex in bytes, by NumPy's letters. Python's integers have any size.
_PYTHON_SIZES = {"f": 8, "c": 16}


class Record:
    """
    A record or a named tuple: its members are `point.x`, `point["x"]` and `point[0]`, and can be assigned.

    A member may have any name: the class has no other attributes. The values are iterated in the order of the
    members, and a tuple of equal values is equal.

    Args:
        name: The name of its C type.
        members: The values of the members, by their names in Python.
    """

    # Python stores these attributes as `_Record__members` and `_Record__name`, which are unlikely names of
    # members.
    __slots__ = ("__members", "__name")
    __hash__: Any = None  # The members can be assigned.

    def __init__(self, name: str, members: MutableMapping[str, Any]) -> None:
        # Not an assignment, which `__setattr__` of this class would take for one of a member.
        object.__setattr__(self, "_Record__name", name)
        object.__setattr__(self, "_Record__members", members)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__members[name]
        except KeyError:
            raise AttributeError(f"{self.__name} has no member {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__members:
            raise AttributeError(f"{self.__name} has no member {name!r}")
        self.__members[name] = value

    def __getitem__(self, key: str | int) -> Any:
        return self.__members[key] if isinstance(key, str) else [*self][key]

    def __setitem__(self, key: str | int, value: Any) -> None:
        name = key if isinstance(key, str) else [*self.__members][key]
        setattr(self, name, value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__members.values())

    def __len__(self) -> int:
        return len(self.__members)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Record):
            return [*self.__members] == [*members_of(other)] and [*self] == [*other]
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={value!r}" for name, value in self.__members.items())
        return f"{self.__name}({members})"

    def __reduce__(self) -> Any:
        return Record, (self.__name, dict(self.__members))


def members_of(record: Record) -> MutableMapping[str, Any]:
    """Return the values of *record* by the names of its members; changing one changes *record*."""
    members: MutableMapping[str, Any] = object.__getattribute__(record, "_Record__members")
    return members


def unpack(types: Types, name: str, content: bytes) -> Any:
    """
    Return the value of the type *name* at the beginning of *content*.

    Floating-point numbers of other precisions than Python's are NumPy numbers; a `bfloat16` is a float32.
    Tuples, vectors and arrays become tuples; records and named tuples become a `Record`; an Optional becomes
    None or its value; and a pointer becomes an address.
    """
    import numpy as np

    entry = types[name]
    kind, size = entry.kind, entry.size
    if kind == "void":
        return None
    numpy_type = dtype(types, name)
    # An array of characters is text in NumPy, of kind "S", and becomes `bytes`.
    if kind in {"struct", "vector", "array"} and numpy_type.kind != "S":
        fields = arrays.describe_members(types, name)
        members = {field.name: unpack(types, field.type, content[field.offset :]) for field in fields}
        if arrays.is_optional(types, name):
            return members["value"] if members["has_value"] else None
        return Record(name, members) if arrays.is_record(types, name) else tuple(members.values())
    (value,) = numbers_of(types, name, np.frombuffer(content[:size], numpy_type))
    has_other_precision = kind == "bfloat16" or size != _PYTHON_SIZES.get(numpy_type.kind, size)
    return value if has_other_precision else value.item()


def numbers_of(types: Types, name: str, elements: Any) -> Any:
    """Return *elements*, an array of the type *name*; `bfloat16`, which NumPy lacks, becomes float32."""
    if types[name].kind != "bfloat16":
        return elements
    # A bfloat16 is the upper half of a float32.
    return (elements.view("<u2").astype("<u4") << 16).view("<f4")


def dtype(types: Types, name: str) -> Any:
    """Return the NumPy dtype of values of the type *name*."""
    import numpy as np

    entry = types[name]
    kind, size = entry.kind, entry.size
    if kind == "array":
        is_text = types[entry.element].kind == "char"
        if is_text:
            return np.dtype(f"S{size}")
        element = dtype(types, entry.element)
        return np.dtype((element.base, (entry.count, *element.shape)))
    if kind in {"struct", "vector"}:
        fields = arrays.describe_members(types, name)
        return np.dtype(
            {
                "names": [field.name for field in fields],
                "formats": [dtype(types, field.type) for field in fields],
                "offsets": [field.offset for field in fields],
                "itemsize": size,
            }
        )
    number = numbers.of_kind(kind, size)
    letter = number.numpy if number else "V"
    if kind == "pointer":
        letter = "u"  # An address, as an unsigned integer.
    return np.dtype(f"<{letter}{size}")
