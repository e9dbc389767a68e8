"""
Read arrays and streams of other packages as what a kernel and the driver are told of them.

Arrays have `__cuda_array_interface__` or DLPack. Their elements, as NumPy and others describe them, are
compared with the C types of a manifest.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from numba_ptxlink._cabi import numbers

# "Data types" and "Device types" in dlpack.h.
_DLPACK_CODES = {row.dlpack: row.numpy for row in numbers.NUMBERS.values() if row.dlpack is not None}
_ON_HOST, _ON_CUDA = 1, (2, 3, 13)
_READONLY = 1
# 0 and 1 both are the legacy default stream; the interfaces of arrays know it as 1.
_LEGACY = 1

Types = Mapping[str, Mapping[str, Any]]
"""The C types of a manifest, as `_cabi.signatures` describes them."""


class WrongArgumentError(Exception):
    """A value is not what a parameter takes; the message says why and ends with the cure."""


def is_numpy(value: object, name: str) -> bool:
    """Return whether *value* is of NumPy's type *name*; NumPy is not imported for that."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, name))


class Field(NamedTuple):
    """A member of a struct, a lane of a vector or an element of an array: name, C type, offset in bytes."""

    name: str
    type: str
    offset: int


def fields(types: Types, name: str) -> list[Field]:
    """Return what the type *name* consists of, by the names in Python; nothing for a number."""
    entry = types[name]
    if "members" in entry:
        listed = entry["members"]
        return [Field(each.get("field", each["name"]), each["type"], each["offset"]) for each in listed]
    count = entry["count"] if entry["kind"] in {"vector", "array"} else 0
    names = "xyzw" if entry["kind"] == "vector" else [f"f{number}" for number in range(count)]
    step = entry["size"] // max(count, 1)
    return [Field(names[number], entry["element"], number * step) for number in range(count)]


def is_record(types: Types, name: str) -> bool:
    """Return whether the type *name* is a struct whose members have names in Python."""
    return types[name].get("python_kind") in {"record", "namedtuple"}


def is_optional(types: Types, name: str) -> bool:
    """Return whether the type *name* is the struct of an Optional."""
    return types[name].get("python_kind") == "optional"


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
    own = fields(types, name)
    if not own or (dtype.kind == "V" and not dtype.names):
        return _is_number(entry, dtype.str)
    there = dtype.fields or {}
    is_unnamed = entry.get("python_kind") == "tuple"
    # C has no members without size.
    parts = sorted((there[name][1], name) for name in dtype.names or () if there[name][0].itemsize)
    return len(parts) == len(own) and all(
        place == field.offset
        and (member_name == field.name or is_unnamed)
        and is_like(types, field.type, there[member_name][0])
        for (place, member_name), field in zip(parts, own, strict=True)
    )


def _is_number(entry: Mapping[str, Any], text: str) -> bool:
    """Return whether *text* is NumPy's for the number *entry*, or tells the size of something else alone."""
    size, number = itemsize(text), numbers.of_kind(entry["kind"], entry["size"])
    # A void is anything that has no letter. Dates are none: no C type tells their unit.
    own = "u" if entry["kind"] == "pointer" else number.numpy if number else ""
    return size == entry["size"] and text[1] == (own or "V") and text[0] != ">"


def itemsize(text: str) -> int:
    """Return the size of an element of NumPy's type *text*."""
    return int(text[2:].partition("[")[0]) * (4 if text[1] == "U" else 1)


@dataclass
class DeviceArguments:
    """
    What reading the arguments of one launch needs and leaves.

    Args:
        stream: The handle of its stream.
        producers: The streams of arrays, which it has to wait for.
        keep_alive: What has to live until it is queued.
        parameter: The name of the parameter whose argument is read.
        addresses: The memory that arguments lead to, with the names of their parameters.
    """

    stream: int
    producers: list[int] = field(default_factory=list)
    keep_alive: list[Any] = field(default_factory=list)
    parameter: str = ""
    addresses: list[tuple[str, int]] = field(default_factory=list)

    # What it takes for an array, for messages.
    takes: ClassVar[str] = "an array on the device, with __cuda_array_interface__ or DLPack"

    def read(self, value: Any) -> DeviceArray | None:
        """
        Return the array *value*, None where it is none.

        Raises:
            WrongArgumentError: It is in other memory, or breaks the rules.
        """
        is_tensor = hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")
        try:
            interface = getattr(value, "__cuda_array_interface__", None)
        except Exception:
            # PyTorch raises where its types have no code there.
            if not is_tensor:
                raise
            interface = None
        if interface is not None:
            array = _of_interface(interface, getattr(value, "dtype", None), self)
        elif is_tensor:
            array = _of_dlpack(value, self)
        elif hasattr(value, "__array_interface__"):
            raise WrongArgumentError(_HOST)
        else:
            return None
        if len(array.shape) != len(array.strides) or min(array.shape, default=0) < 0:
            raise WrongArgumentError("its shape and its strides are impossible; pass a copy")
        if 0 not in array.shape:
            self.leads_to(array.address)
        return array

    def leads_to(self, address: int) -> None:
        """Note an address that the kernel gets."""
        self.addresses.append((self.parameter, address))

    def after(self, producer: int) -> None:
        """Note the stream that an array is written in."""
        if producer not in range(1 << 64):
            raise WrongArgumentError(f"{producer:#x} is not a stream; pass another array")
        if producer != (self.stream or _LEGACY):
            self.producers.append(producer)


class DeviceArray(NamedTuple):
    """An array that a launch reads; strides count bytes, and `dtype` is NumPy's or the text for one."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: Any
    readonly: bool


_HOST = "it is an array in host memory; copy it to the device, for example by cupy.asarray() or tensor.cuda()"


def _of_interface(interface: Any, dtype: Any, launch: DeviceArguments) -> DeviceArray:
    if interface.get("mask") is not None:
        raise WrongArgumentError("it is a masked array; pass the array without its mask")
    shape, typestr = tuple(map(int, interface["shape"])), interface["typestr"]
    size, strides = itemsize(typestr), interface.get("strides")
    strides = contiguous(shape, size, "c") if strides is None else tuple(map(int, strides))
    address, readonly = interface["data"]
    if interface.get("stream") is not None:
        launch.after(operator.index(interface["stream"]))
    # The interface tells the size of records alone.
    is_record = is_numpy(dtype, "dtype") and dtype.names and dtype.itemsize == size
    return DeviceArray(
        int(address or 0), shape, strides, size, dtype if is_record else typestr, bool(readonly)
    )


def contiguous(shape: tuple[int, ...], itemsize: int, layout: str) -> tuple[int, ...]:
    """Return the strides of an array without gaps, in the order of *layout*, "c" or "f"."""
    strides = [0] * len(shape)
    axes = range(len(shape)) if layout == "f" else reversed(range(len(shape)))
    stride = itemsize
    for axis in axes:
        strides[axis] = stride
        stride *= shape[axis]
    return tuple(strides)


def is_contiguous(array: DeviceArray, layout: str) -> bool:
    """Return whether *array* has no gaps in the order of *layout*, by NumPy's rules."""
    expected = contiguous(array.shape, array.itemsize, layout)
    return 0 in array.shape or all(
        extent == 1 or stride == wanted
        for extent, stride, wanted in zip(array.shape, array.strides, expected, strict=True)
    )


# `DLTensor` in dlpack.h: data, device type and number, dimensions, code, bits and lanes of an element, shape,
# strides, offset. In a `DLManagedTensorVersioned` it lies behind flags.
_TENSOR, _FLAGS, _BEHIND_FLAGS = struct.Struct("PiiiBBHPPQ"), 24, 32


def _of_dlpack(value: Any, launch: DeviceArguments) -> DeviceArray:
    device = int(value.__dlpack_device__()[0])
    if device == _ON_HOST:
        raise WrongArgumentError(_HOST)
    if device not in _ON_CUDA:
        raise WrongArgumentError(
            f"it is on a device of DLPack's type {device}; copy it to a GPU that CUDA drives"
        )
    stream = launch.stream or _LEGACY
    try:
        capsule = value.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:
        # Producers from before DLPack 1.0 do not know the version.
        capsule = value.__dlpack__(stream=stream)
    # The tensor stays the capsule's, which deletes it.
    launch.keep_alive.append(capsule)
    place, readonly = _opened(capsule)
    data, _, _, ndim, code, bits, lanes, extents, steps, offset = _TENSOR.unpack(
        ctypes.string_at(place, _TENSOR.size)
    )
    letter, size = _DLPACK_CODES.get(code), bits // 8
    if lanes != 1 or letter is None or bits % 8:
        raise WrongArgumentError(f"its elements are of DLPack's type {code}, {bits} bits, which C has not")
    shape = _integers(extents, ndim)
    strides = tuple(step * size for step in _integers(steps, ndim)) if steps else contiguous(shape, size, "c")
    return DeviceArray(data + offset, shape, strides, size, f"<{letter}{size}", readonly)


def _opened(capsule: Any) -> tuple[int, bool]:
    """Return the address of the `DLTensor` in a capsule, and whether it may only be read."""
    open_ = ctypes.pythonapi.PyCapsule_GetPointer
    open_.restype, open_.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        managed = open_(capsule, b"dltensor_versioned")
    except ValueError:
        return open_(capsule, b"dltensor"), False
    (flags,) = _integers(managed + _FLAGS, 1)
    return managed + _BEHIND_FLAGS, bool(flags & _READONLY)


def _integers(place: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"{count}q", ctypes.string_at(place, 8 * count))
