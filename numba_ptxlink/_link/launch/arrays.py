"""Read arrays of other packages: `__cuda_array_interface__` and DLPack, as what a kernel is told of them."""

from __future__ import annotations

import ctypes
import operator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numba_ptxlink._cabi import numbers

from .elements import Leaves, RefusedError, is_numpy, of_descr, of_dtype, of_typestr

# "Data types" and "Device types" in dlpack.h.
_DLPACK_CODES = {row.dlpack: row.numpy for row in numbers.NUMBERS.values() if row.dlpack is not None}
_ON_HOST, _ON_CUDA = 1, (2, 3, 13)
_READONLY = 1
# 0 and 1 both are the legacy default stream; the interfaces of arrays know it as 1.
_LEGACY = 1


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
            return _of_interface(interface, getattr(value, "dtype", None), launch)
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


def _of_interface(interface: Any, dtype: Any, launch: Launch) -> DeviceArray:
    if interface.get("mask") is not None:
        raise RefusedError("it is a masked array; pass the array without its mask")
    shape = tuple(map(int, interface["shape"]))
    typestr = interface["typestr"]
    itemsize, leaves = of_typestr(typestr)
    told: Any = typestr
    if interface.get("descr"):
        leaves = of_descr(interface["descr"], itemsize)
        told = interface["descr"] if typestr[1] == "V" else typestr
    elif is_numpy(dtype, "dtype") and dtype.names and dtype.itemsize == itemsize:
        # Numba's interface tells the size of records alone.
        leaves, told = of_dtype(dtype), dtype
    strides = interface.get("strides")
    strides = contiguous(shape, itemsize, "c") if strides is None else tuple(map(int, strides))
    address, readonly = interface["data"]
    producer = interface.get("stream")
    _check_numbers(int(address or 0), shape, strides, 0 if producer is None else operator.index(producer))
    launch.after(producer)
    return DeviceArray(int(address or 0), shape, strides, itemsize, leaves, str(told), bool(readonly))


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
