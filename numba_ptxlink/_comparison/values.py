"""
Convert the arguments of compiled code to the values that a Python function gets.

Numbers are int, float and complex, or NumPy's of the same width. Members of a record are read by `r.x` and
`r["x"]`, as in compiled code. A record in an array is a `Record`: the methods of `numpy.record` would hide
members of the same name.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import numpy as np

from numba_ptxlink._launch import arrays, results
from numba_ptxlink._launch.results import Record, members_of
from numba_ptxlink._launch.values import packer
from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba_ptxlink._launch.arrays import DeviceArrayReader, Types

# Far more than the 64 bits of compiled code. Reports print integers, and Python refuses to print one of more
# than 4,300 digits, 14,284 bits.
_MAX_INTEGER_BITS = 1 << 12
# The attributes of arrays in compiled code, which hide members of records.
_ARRAY_ATTRIBUTES = {
    "T",
    "ctypes",
    "dtype",
    "flags",
    "flat",
    "imag",
    "itemsize",
    "nbytes",
    "ndim",
    "real",
    "shape",
    "size",
    "strides",
}


class SkippedCallError(ExportError):
    """Python cannot make a call, or takes too long for it. The message has the reason."""


class _AnyInt(type):
    """
    The metaclass of `Integer`: `isinstance(value, Integer)` is true for every int.

    Compared functions, in which the name `int` means `Integer`, may contain `isinstance(value, int)`.
    """

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, int)


class Integer(int, metaclass=_AnyInt):
    """
    An int whose operators refuse results of more than 4,096 bits.

    Otherwise `x ** y` of 64-bit integers could fill the memory. In compared functions, the name `int` means
    this class.
    """


def _integer_operator(name: str) -> Callable[..., Any]:
    """Return the method *name* of `int`, such as "__add__", for `Integer`, with an `Integer` as result."""
    operation = getattr(int, name)

    def method(number: int, *operands: Any) -> Any:
        if operands and isinstance(operands[0], int):
            # `2 << x` calls `x.__rlshift__(2)`, in which *number* is the right operand.
            is_reflected = name in {"__rlshift__", "__rpow__"}
            left_operand, right_operand = (operands[0], number) if is_reflected else (number, operands[0])
            # Check shifts and powers in advance: to compute a large result may take long, or fill the memory.
            if name in {"__lshift__", "__rlshift__"}:
                _check_bits(left_operand.bit_length() + right_operand)
            elif name in {"__pow__", "__rpow__"} and len(operands) == 1:
                # The power has at least this number of bits. With a modulus, it is never large.
                _check_bits((left_operand.bit_length() - 1) * right_operand)
        result = operation(number, *operands)
        if isinstance(result, tuple):  # The result of divmod.
            return tuple(map(Integer, result))
        if type(result) is not int:  # NotImplemented, or a float such as 2 ** -1.
            return result
        _check_bits(result.bit_length())
        return Integer(result)

    return method


def _check_bits(bit_count: int) -> None:
    if bit_count > _MAX_INTEGER_BITS:
        raise SkippedCallError(f"an integer exceeds {_MAX_INTEGER_BITS:,} bits in Python")


# Operators of two operands. `2 + x` calls `x.__radd__(2)` if x is an Integer.
for _name in (
    "add",
    "sub",
    "mul",
    "floordiv",
    "mod",
    "pow",
    "divmod",
    "lshift",
    "rshift",
    "and",
    "or",
    "xor",
):
    setattr(Integer, f"__{_name}__", _integer_operator(f"__{_name}__"))
    setattr(Integer, f"__r{_name}__", _integer_operator(f"__r{_name}__"))
for _name in ("neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil"):
    setattr(Integer, f"__{_name}__", _integer_operator(f"__{_name}__"))


class ElementArray(np.ndarray[Any, Any]):
    """An array that returns elements as compiled code reads them; numbers are NumPy's."""

    def __getattribute__(self, name: str) -> Any:
        members = np.ndarray.__getattribute__(self, "dtype").names
        if members and name in members and name not in _ARRAY_ATTRIBUTES:
            return self[name]
        return super().__getattribute__(name)

    def __getitem__(self, index: Any) -> Any:
        return _read_element(super().__getitem__(index), type(self))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, _to_storable(value, self.dtype))


class PythonArray(ElementArray):
    """An array that returns elements as compiled code reads them; numbers are int, float and complex."""


class _Members(MutableMapping[str, Any]):
    """
    The members of a record in an array, by name; assignments change the array.

    Args:
        element: The record, as NumPy returns it.
        array_class: The class of the array, and of arrays in the record.
    """

    def __init__(self, element: Any, array_class: type[ElementArray]) -> None:
        self._element = element
        self._array_class = array_class

    def __getitem__(self, name: str) -> Any:
        if name not in self._element.dtype.names:
            raise KeyError(name)
        return _read_element(self._element[name], self._array_class)

    def __setitem__(self, name: str, value: Any) -> None:
        self._element[name] = _to_storable(value, self._element.dtype[name])

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"{name} cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._element.dtype.names)

    def __len__(self) -> int:
        return len(self._element.dtype.names)


def _read_element(value: Any, array_class: type[ElementArray]) -> Any:
    """Return an element of an array, or a member of a record in it, as compiled code reads it."""
    if isinstance(value, np.ndarray):
        return value.view(array_class)
    if isinstance(value, np.void) and value.dtype.names:
        return Record("record", _Members(value, array_class))
    return _to_python_number(value) if array_class is PythonArray else value


def _to_storable(value: Any, dtype: Any) -> Any:
    """Return *value* as NumPy can assign it to an element: records as tuples, integers wrapped around."""
    if isinstance(value, (Record, tuple)) and dtype.names:
        pairs = zip(dtype.names, value, strict=True)
        return tuple(_to_storable(member, dtype[name]) for name, member in pairs)
    if isinstance(value, int) and dtype.kind in "iu":
        # In two's complement: 200 becomes -56 in an int8.
        modulus = 1 << 8 * dtype.itemsize
        value = int(value) % modulus
        return value - modulus if dtype.kind == "i" and value >= modulus // 2 else value
    return value


def _to_python_number(value: Any) -> Any:
    """Return a number of Python for one of NumPy; anything else as it is."""
    number = value.item() if isinstance(value, np.generic) and not isinstance(value, np.void) else value
    return Integer(number) if type(number) is int else number


def to_c(types: Types, name: str, value: Any, reader: DeviceArrayReader) -> Any:
    """
    Return an argument as `results.unpack` returns a value of the C type *name*.

    Arrays are returned unchanged, and numbers of Python stay numbers of Python.

    Args:
        types: The C types of a manifest.
        name: The C type of the parameter.
        value: The argument.
        reader: Reads the arrays in it, and keeps them alive.

    Raises:
        WrongArgumentError: *value* does not fit the type.
    """
    # An array without dimensions is a number.
    is_array = isinstance(value, np.ndarray) and bool(value.shape)
    if is_array or types[name].kind in {"view", "pointer"}:
        return value
    if not (_holds_arrays(types, name) and isinstance(value, (tuple, list, Record))):
        converted = results.unpack(types, name, packer(types, name)(value, reader))
        # Division by zero raises an exception for a number of Python, and not for one of NumPy.
        is_python_number = type(value) in {int, float, complex} and isinstance(converted, np.generic)
        return converted.item() if is_python_number else converted
    pairs = zip(arrays.describe_members(types, name), value, strict=True)
    members = {field.name: to_c(types, field.type, member, reader) for field, member in pairs}
    return Record(name, members) if arrays.is_record(types, name) else tuple(members.values())


def _holds_arrays(types: Types, name: str) -> bool:
    """Return whether the C type *name* is an array or a pointer, or has such a member."""
    return types[name].kind in {"view", "pointer"} or any(
        _holds_arrays(types, field.type) for field in arrays.describe_members(types, name)
    )


def to_python(types: Types, name: str, value: Any, *, python_numbers: bool) -> Any:
    """
    Return an argument as the value that the Python function gets.

    Args:
        types: The C types of a manifest.
        name: The C type of the parameter.
        value: An array, whose memory the result shares, or a value as `results.unpack` returns it.
        python_numbers: Whether numbers are int, float and complex, rather than NumPy's.
    """
    entry = types[name]
    array_class = PythonArray if python_numbers else ElementArray
    if isinstance(value, np.ndarray):
        # For an array in place of a number or a record, compiled code is called for each element; the Python
        # function is called once, with the array.
        return value.view(array_class) if entry.kind in {"view", "pointer"} else value
    if value is None or entry.kind == "pointer":
        return value
    fields = arrays.describe_members(types, name)
    if arrays.is_optional(types, name):
        return to_python(types, fields[0].type, value, python_numbers=python_numbers)
    if entry.kind == "array" and not isinstance(value, bytes):
        return _to_array(value, results.dtype(types, name)).view(array_class)
    if entry.kind not in {"struct", "vector"}:
        return _to_python_number(value) if python_numbers else value
    values = members_of(value).values() if isinstance(value, Record) else value
    members = {
        field.name: to_python(types, field.type, member, python_numbers=python_numbers)
        for field, member in zip(fields, values, strict=True)
    }
    has_names = arrays.is_record(types, name) or entry.kind == "vector"
    return Record(name, members) if has_names else tuple(members.values())


def _to_array(values: Any, dtype: Any) -> Any:
    """Return *values*, tuples that are nested once for each further dimension, as an array of NumPy."""
    # Bfloat16 elements were unpacked to float32.
    array = np.zeros(dtype.shape, "f4" if dtype.base.str == "|V2" else dtype.base)
    for index in np.ndindex(dtype.shape):
        # With the index (i, j), the element is values[i][j].
        array[index] = _to_storable(functools.reduce(operator.getitem, index, values), array.dtype)
    return array
