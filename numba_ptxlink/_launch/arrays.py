"""
Read the arrays of other packages that are arguments of a launch, and the streams that write the arrays.

Arrays describe themselves by `__cuda_array_interface__` or DLPack. The types of their elements, in the
notation of NumPy or DLPack, are compared with the C types of a manifest: the file in which an export
describes its kernels.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from numba_ptxlink._cabi import numbers
from numba_ptxlink._cabi.descriptions import MemberDescription, TypeDescription

# NumPy's letter for each `DLDataTypeCode` in dlpack.h.
_DLPACK_LETTERS = {row.dlpack: row.numpy for row in numbers.NUMBERS.values() if row.dlpack is not None}
# `DLDeviceType` in dlpack.h: kDLCPU is 1; kDLCUDA, kDLCUDAHost and kDLCUDAManaged are 2, 3 and 13.
_CPU_DEVICE, _CUDA_DEVICES = 1, (2, 3, 13)
# DLPACK_FLAG_BITMASK_READ_ONLY in dlpack.h.
_READONLY_FLAG = 1
# The handles 0 and 1 both mean the legacy default stream; `__cuda_array_interface__` and DLPack use 1.
_LEGACY_STREAM = 1

Types = Mapping[str, TypeDescription]
"""The C types of a manifest, by name."""


class WrongArgumentError(Exception):
    """A value does not fit a parameter; the message has the reason and the cure."""


def is_numpy(value: object, name: str) -> bool:
    """Return whether *value* is of NumPy's type *name*, without importing NumPy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, getattr(numpy, name))


def describe_members(types: Types, name: str) -> Sequence[MemberDescription]:
    """
    Return the name, type and offset of each member of the type *name*.

    The elements of a vector or array count as members. A number, a pointer and a view have no members.
    """
    entry = types[name]
    if entry.kind == "struct":
        return entry.members
    count = entry.count if entry.kind in {"vector", "array"} else 0
    # CUDA names the elements of a vector x, y, z, w. Elements of an array get the names of a tuple's members.
    names = "xyzw" if entry.kind == "vector" else [f"f{index}" for index in range(count)]
    element_size = entry.size // max(count, 1)
    return [MemberDescription(names[index], entry.element, index * element_size) for index in range(count)]


def is_record(types: Types, name: str) -> bool:
    """Return whether the type *name* is the struct of a record or a named tuple."""
    return types[name].python_kind in {"record", "namedtuple"}


def is_optional(types: Types, name: str) -> bool:
    """Return whether the type *name* is the struct of an Optional."""
    return types[name].python_kind == "optional"


def matches_type(types: Types, name: str, dtype: Any) -> bool:
    """
    Return whether the elements of an array have the layout and the member names of the C type *name*.

    Args:
        types: The types of a manifest.
        name: The name of the C type.
        dtype: The type of the elements: a dtype of NumPy, or its `str`, such as "<f4" or "|V16".
    """
    entry = types[name]
    if isinstance(dtype, str):
        return _matches_typestr(entry, dtype)
    if dtype.itemsize != entry.size:
        return False
    if entry.kind == "array":
        if not dtype.subdtype:
            # NumPy's types of text are arrays of characters: "S" of bytes, "U" of 32-bit code points.
            element_type = types[entry.element]
            text_kind = {("char", 1): "S", ("uint", 4): "U"}.get((element_type.kind, element_type.size))
            return bool(dtype.kind == text_kind)
        # An array of arrays in C has several dimensions in NumPy: compare the first, then the others.
        base, (count, *further_extents) = dtype.subdtype
        element = sys.modules["numpy"].dtype((base, tuple(further_extents)))
        return bool(count == entry.count) and matches_type(types, entry.element, element)
    members = describe_members(types, name)
    # A dtype of kind "V" (void) without names, such as "V16", has only a size.
    if not members or (dtype.kind == "V" and not dtype.names):
        return _matches_typestr(entry, dtype.str)
    dtype_fields = dtype.fields or {}
    ignores_names = entry.python_kind == "tuple"
    # Fields without size, such as empty texts, are left out: C has no such members.
    dtype_members = sorted(
        (dtype_fields[field_name][1], field_name)
        for field_name in dtype.names or ()
        if dtype_fields[field_name][0].itemsize
    )
    return len(dtype_members) == len(members) and all(
        offset == member.offset
        and (field_name == member.name or ignores_names)
        and matches_type(types, member.type, dtype_fields[field_name][0])
        for (offset, field_name), member in zip(dtype_members, members, strict=True)
    )


def _matches_typestr(entry: TypeDescription, typestr: str) -> bool:
    """
    Return whether *typestr*, such as "<f4", has the kind and size of *entry*, and the GPU's byte order, "<".

    A type for which NumPy has no letter, such as a struct, matches a void of its size: "|V16".
    """
    number = numbers.of_kind(entry.kind, entry.size)
    # Dates, "M" and "m", match no type: C types have no unit, so no number has these letters.
    letter = number.numpy if number else ""
    # In an array, a pointer is an unsigned integer.
    if entry.kind == "pointer":
        letter = "u"
    return itemsize(typestr) == entry.size and typestr[1] == (letter or "V") and typestr[0] != ">"


def itemsize(typestr: str) -> int:
    """Return the bytes of an element: 4 for "<f4", 8 for "<M8[ns]", 12 for "<U3", 3 characters of 4 bytes."""
    return int(typestr[2:].partition("[")[0]) * (4 if typestr[1] == "U" else 1)


@dataclass
class DeviceArrayReader:
    """
    A reader of the arrays in device memory among the arguments of one launch.

    It is created with the stream. While it reads the arguments, it collects what the launch needs besides
    their bytes.

    Args:
        stream: The handle of the launch's stream; 0 for the default stream.
        producers: The handles of other streams that write the arrays; the launch waits for their work.
        keep_alive: Objects that have to live until the launch is queued.
        parameter: The name of the parameter whose argument is being read; `Parameters.read` sets it.
        addresses: The addresses of arrays, and those that are passed as numbers, each with the name of its
            parameter. The launch refuses memory that its device cannot access.
    """

    stream: int
    producers: list[int] = field(default_factory=list)
    keep_alive: list[Any] = field(default_factory=list)
    parameter: str = ""
    addresses: list[tuple[str, int]] = field(default_factory=list)

    # A description of the accepted arrays, for messages.
    accepted_arrays: ClassVar[str] = "an array on the device, with __cuda_array_interface__ or DLPack"

    def read(self, value: Any) -> DeviceArray | None:
        """
        Return the description of the array *value*; None if it is not an array.

        Raises:
            WrongArgumentError: The array is in other memory, or its interface is invalid.
        """
        is_tensor = hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")
        try:
            interface = getattr(value, "__cuda_array_interface__", None)
        except Exception:
            # PyTorch raises for element types that the interface lacks, such as bfloat16; DLPack has them.
            if not is_tensor:
                raise
            interface = None
        if interface is not None:
            array = _read_interface(interface, getattr(value, "dtype", None), self)
        elif is_tensor:
            array = _read_dlpack(value, self)
        elif hasattr(value, "__array_interface__"):
            raise WrongArgumentError(_IN_HOST_MEMORY)
        else:
            return None
        if len(array.shape) != len(array.strides) or min(array.shape, default=0) < 0:
            raise WrongArgumentError(
                f"its shape {array.shape} and strides {array.strides} contradict each other; pass a copy"
            )
        # An array without elements has no memory.
        if 0 not in array.shape:
            self.add_address(array.address)
        return array

    def add_address(self, address: int) -> None:
        """Record *address*, which is in the argument being read."""
        self.addresses.append((self.parameter, address))

    def add_producer(self, producer: int) -> None:
        """Record the stream that writes an array, if it is not the stream of the launch."""
        if producer not in range(1 << 64):
            raise WrongArgumentError(f"{producer:#x} is not a stream; pass another array")
        if producer != (self.stream or _LEGACY_STREAM):
            self.producers.append(producer)


class DeviceArray(NamedTuple):
    """An argument that is an array: strides in bytes, and in `dtype` a dtype of NumPy or its `str`."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: Any
    readonly: bool


_IN_HOST_MEMORY = (
    "it is an array in host memory; copy it to the device, for example by cupy.asarray() or tensor.cuda()"
)


def _read_interface(interface: Any, dtype: Any, reader: DeviceArrayReader) -> DeviceArray:
    """
    Return the array that a `__cuda_array_interface__` describes.

    Args:
        interface: The value of `__cuda_array_interface__`.
        dtype: The attribute `dtype` of the array, which is not always one of NumPy; None if it has none.
        reader: The reader, which records the stream that writes the array.
    """
    if interface.get("mask") is not None:
        raise WrongArgumentError("it is a masked array; pass the array without its mask")
    shape, typestr = tuple(map(int, interface["shape"])), interface["typestr"]
    size, strides = itemsize(typestr), interface.get("strides")
    strides = contiguous_strides(shape, size, "c") if strides is None else tuple(map(int, strides))
    address, readonly = interface["data"]  # The address of an empty array may be None.
    if interface.get("stream") is not None:
        reader.add_producer(operator.index(interface["stream"]))
    # For records, the interface has only their size, such as "|V16"; the dtype has their members.
    has_members = is_numpy(dtype, "dtype") and dtype.names and dtype.itemsize == size
    return DeviceArray(
        int(address or 0), shape, strides, size, dtype if has_members else typestr, bool(readonly)
    )


def contiguous_strides(shape: tuple[int, ...], element_size: int, layout: str) -> tuple[int, ...]:
    """Return the strides in bytes of an array without gaps, in the order of *layout*, "c" or "f"."""
    strides = [0] * len(shape)
    # Begin with the axis whose elements are adjacent in memory: the first in order "f", the last in "c".
    axes = range(len(shape)) if layout == "f" else reversed(range(len(shape)))
    stride = element_size
    for axis in axes:
        strides[axis] = stride
        stride *= shape[axis]
    return tuple(strides)


def is_contiguous(array: DeviceArray, layout: str) -> bool:
    """
    Return whether *array* has no gaps in the order of *layout*, "c" or "f".

    As in NumPy, the stride of an axis with one element is ignored, and an empty array has no gaps.
    """
    expected = contiguous_strides(array.shape, array.itemsize, layout)
    return 0 in array.shape or all(
        extent == 1 or stride == expected_stride
        for extent, stride, expected_stride in zip(array.shape, array.strides, expected, strict=True)
    )


# `DLTensor` in dlpack.h: data, device type and number, dimensions, code, bits and lanes of an element, shape,
# strides, offset.
_TENSOR_LAYOUT = struct.Struct("PiiiBBHPPQ")
# Offsets in a `DLManagedTensorVersioned` of dlpack.h, in bytes. The older `DLManagedTensor` begins with its
# `DLTensor`.
_FLAGS_OFFSET, _TENSOR_OFFSET = 24, 32


def _read_dlpack(value: Any, reader: DeviceArrayReader) -> DeviceArray:
    """Return the array that *value* describes by `__dlpack__`."""
    device = int(value.__dlpack_device__()[0])
    if device == _CPU_DEVICE:
        raise WrongArgumentError(_IN_HOST_MEMORY)
    if device not in _CUDA_DEVICES:
        raise WrongArgumentError(f"it is on a device of DLPack's type {device}; copy it to a GPU of NVIDIA")
    stream = reader.stream or _LEGACY_STREAM
    try:
        capsule = value.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:
        # Producers older than DLPack 1.0 do not accept `max_version`.
        capsule = value.__dlpack__(stream=stream)
    # The capsule owns the tensor, which is freed with it: keep it until the launch is queued.
    reader.keep_alive.append(capsule)
    address, readonly = _open_capsule(capsule)
    data, _, _, ndim, code, bits, lanes, shape_address, strides_address, offset = _TENSOR_LAYOUT.unpack(
        ctypes.string_at(address, _TENSOR_LAYOUT.size)
    )
    letter, size = _DLPACK_LETTERS.get(code), bits // 8
    if lanes != 1 or letter is None or bits % 8:
        raise WrongArgumentError(
            f"its elements, of DLPack's code {code}, bits {bits} and lanes {lanes}, have no C type; "
            "convert them"
        )
    shape = _integers(shape_address, ndim)
    if strides_address:
        # Strides of DLPack count elements, not bytes.
        strides = tuple(stride * size for stride in _integers(strides_address, ndim))
    else:
        strides = contiguous_strides(shape, size, "c")
    return DeviceArray(data + offset, shape, strides, size, f"<{letter}{size}", readonly)


def _open_capsule(capsule: Any) -> tuple[int, bool]:
    """Return the address of the `DLTensor` in a capsule, and whether the tensor is read-only."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        managed = get_pointer(capsule, b"dltensor_versioned")
    except ValueError:  # The capsule has another name: its producer is older than DLPack 1.0.
        return get_pointer(capsule, b"dltensor"), False
    (flags,) = _integers(managed + _FLAGS_OFFSET, 1)
    return managed + _TENSOR_OFFSET, bool(flags & _READONLY_FLAG)


def _integers(address: int, count: int) -> tuple[int, ...]:
    """Return *count* signed integers of 64 bits from memory."""
    return struct.unpack(f"{count}q", ctypes.string_at(address, 8 * count))
