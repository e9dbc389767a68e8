"""Read arrays of other packages: `__cuda_array_interface__` and DLPack, as what a kernel is told of them."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numba_ptxlink._cabi import numbers

Leaves = tuple[tuple[int, str, tuple[str, ...]], ...]
"""
The numbers in an element: where each begins, its type in NumPy's code, such as "f4", and the names of the
members that hold it, from the outermost on.
"""

# "Data types" and "Device types" in dlpack.h.
_DLPACK_CODES = {row.dlpack: row.numpy for row in numbers.NUMBERS.values() if row.dlpack is not None}
_ON_HOST, _ON_CUDA = 1, (2, 3, 13)
_READONLY = 1
# 0 and 1 both are the legacy default stream; the interfaces of arrays know it as 1.
_LEGACY = 1


class RefusedError(Exception):
    """A value is not what a parameter takes; the message says why and ends with the cure."""


@dataclass
class Launch:
    """
    What reading the arguments of one launch needs and leaves.

    Args:
        stream: The handle of its stream.
        producers: The streams of arrays, which it has to wait for.
        kept: What has to live until it is queued.
    """

    stream: int
    producers: list[int] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    def after(self, producer: int | None) -> None:
        """Note the stream that an array is written in."""
        if producer is not None and producer != (self.stream or _LEGACY):
            self.producers.append(producer)


class DeviceArray(NamedTuple):
    """An array in device memory; strides count bytes, and `leaves` is None for elements of any type."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    leaves: Leaves | None
    dtype: str
    readonly: bool


def read(value: Any, launch: Launch) -> DeviceArray | None:
    """
    Return the array *value*, None where it is none.

    Raises:
        RefusedError: It is not in device memory, its package refuses, or it is not described by the rules.
    """
    is_tensor = hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")
    try:
        try:
            interface = getattr(value, "__cuda_array_interface__", None)
        except Exception:
            # PyTorch raises where its types have no code there.
            if not is_tensor:
                raise
            interface = None
        if interface is not None:
            return _of_interface(interface, launch)
        if is_tensor:
            return _of_dlpack(value, launch)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(f"it cannot be read: {error}; detach or copy it") from error
    if hasattr(value, "__array_interface__"):
        raise RefusedError(_HOST)
    return None


_HOST = "it is an array in host memory; copy it to the device, for example by cupy.asarray() or tensor.cuda()"


def _of_interface(interface: Any, launch: Launch) -> DeviceArray:
    if interface.get("mask") is not None:
        raise RefusedError("it is a masked array; pass the array without its mask")
    shape = tuple(map(int, interface["shape"]))
    typestr = interface["typestr"]
    itemsize, leaves = _of_typestr(typestr)
    if interface.get("descr"):
        leaves = of_descr(interface["descr"], itemsize)
    strides = interface.get("strides")
    strides = contiguous(shape, itemsize, "c") if strides is None else tuple(map(int, strides))
    address, readonly = interface["data"]
    producer = interface.get("stream")
    _check_numbers(int(address or 0), shape, strides, 0 if producer is None else operator.index(producer))
    launch.after(producer)
    return DeviceArray(int(address or 0), shape, strides, itemsize, leaves, typestr, bool(readonly))


def _check_numbers(address: int, shape: tuple[int, ...], strides: tuple[int, ...], stream: int) -> None:
    if len(shape) != len(strides):
        raise RefusedError(f"it has {len(shape)} extents and {len(strides)} strides; pass a copy")
    for what, number, allowed in (
        ("address", address, range(1 << 64)),
        ("stream", stream, range(1 << 64)),
        *(("extent", extent, range(1 << 63)) for extent in shape),
        *(("stride", stride, range(-(1 << 63), 1 << 63)) for stride in strides),
    ):
        if number not in allowed:
            raise RefusedError(f"its interface has an impossible {what}, {number:#x}; pass another array")


@functools.lru_cache(maxsize=256)
def _of_typestr(typestr: str) -> tuple[int, Leaves | None]:
    itemsize = _itemsize(typestr)
    return itemsize, of_descr([("", typestr)], itemsize)


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
    if 0 in array.shape:
        return True
    expected = contiguous(array.shape, array.itemsize, layout)
    return all(
        extent == 1 or stride == wanted
        for extent, stride, wanted in zip(array.shape, array.strides, expected, strict=True)
    )


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
                leaves += leaf(code, offset, own)
            offset += _itemsize(code)
    return offset


def leaf(code: str, offset: int, path: tuple[str, ...]) -> Leaves:
    """Return the numbers in what NumPy calls *code*, at *offset* in the members *path*."""
    kind, size = code[1], _itemsize(code)
    if code[0] == ">":
        raise RefusedError(f"its elements, {code}, are big-endian; convert them by .astype()")
    if kind in "SU":
        unit, plain = (1, "S1") if kind == "S" else (4, "u4")
        return tuple((offset + at, plain, path) for at in range(0, size, unit))
    return ((offset, f"{'i' if kind in 'mM' else kind}{size}", path),)


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
    base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "unnamed"
    return re.fullmatch(rf"(?:my_)?f?{base}_?(?:_\d+)?", member) is not None


def _itemsize(code: str) -> int:
    digits = code[2:].partition("[")[0]
    return int(digits) * (4 if code[1] == "U" else 1)


class _Tensor(ctypes.Structure):
    """The `DLTensor` of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """The `DLManagedTensorVersioned` of dlpack.h."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


def _of_dlpack(value: Any, launch: Launch) -> DeviceArray:
    device = int(value.__dlpack_device__()[0])
    if device == _ON_HOST:
        raise RefusedError(_HOST)
    if device not in _ON_CUDA:
        raise RefusedError(f"it is on a device of DLPack's type {device}; copy it to a GPU that CUDA drives")
    stream = launch.stream or _LEGACY
    try:
        capsule = value.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:
        # Producers from before DLPack 1.0 do not know the version.
        capsule = value.__dlpack__(stream=stream)
    # The tensor stays the capsule's, which deletes it.
    launch.kept.append(capsule)
    tensor, readonly = _opened(capsule)
    size = tensor.bits * tensor.lanes // 8
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = contiguous(shape, size, "c")
    if tensor.strides:
        strides = tuple(stride * size for stride in tensor.strides[: tensor.ndim])
    code = f"{_DLPACK_CODES.get(tensor.code, '?')}{size}"
    if tensor.lanes != 1 or "?" in code or tensor.bits % 8:
        raise RefusedError(
            f"its elements are of DLPack's type {tensor.code}, {tensor.bits} bits, which C has not"
        )
    address = (tensor.data or 0) + tensor.byte_offset
    return DeviceArray(address, shape, strides, size, ((0, code, ()),), f"<{code}", readonly)


def _opened(capsule: Any) -> tuple[_Tensor, bool]:
    open_ = ctypes.pythonapi.PyCapsule_GetPointer
    open_.restype, open_.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype, is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    if is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(open_(capsule, b"dltensor_versioned"))
        return managed.tensor, bool(managed.flags & _READONLY)
    return _Tensor.from_address(open_(capsule, b"dltensor")), False
