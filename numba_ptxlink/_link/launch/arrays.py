"""Read arrays of other packages: `__cuda_array_interface__` and DLPack, as what a kernel is told of them."""

from __future__ import annotations

import ctypes
import operator
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numba_ptxlink._cabi import numbers

from .elements import RefusedError, is_numpy, itemsize

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

    def after(self, producer: int) -> None:
        """Note the stream that an array is written in."""
        if producer not in range(1 << 64):
            raise RefusedError(f"{producer:#x} is no stream; pass another array")
        if producer != (self.stream or _LEGACY):
            self.producers.append(producer)


class DeviceArray(NamedTuple):
    """An array in device memory; strides count bytes, and `dtype` is NumPy's or the text for one."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    dtype: Any
    readonly: bool


_HOST = "it is an array in host memory; copy it to the device, for example by cupy.asarray() or tensor.cuda()"


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
        if interface is None and not is_tensor:
            array = None
        elif interface is None:
            array = _of_dlpack(value, launch)
        else:
            array = _of_interface(interface, getattr(value, "dtype", None), launch)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(f"it cannot be read: {error}; detach or copy it") from error
    if array is None and hasattr(value, "__array_interface__"):
        raise RefusedError(_HOST)
    if array and (len(array.shape) != len(array.strides) or min(array.shape, default=0) < 0):
        raise RefusedError("its shape and its strides are impossible; pass a copy")
    return array


def _of_interface(interface: Any, dtype: Any, launch: Launch) -> DeviceArray:
    if interface.get("mask") is not None:
        raise RefusedError("it is a masked array; pass the array without its mask")
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
    place, readonly = _opened(capsule)
    data, _, _, ndim, code, bits, lanes, extents, steps, offset = _TENSOR.unpack(
        ctypes.string_at(place, _TENSOR.size)
    )
    letter, size = _DLPACK_CODES.get(code), bits // 8
    if lanes != 1 or letter is None or bits % 8:
        raise RefusedError(f"its elements are of DLPack's type {code}, {bits} bits, which C has not")
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
