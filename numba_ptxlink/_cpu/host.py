"""Launch kernels of PTX without a manifest on NumPy arrays, whose memory becomes regions."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from numba_ptxlink._tools.launching import Launchable
from numba_ptxlink.errors import LaunchError, short_repr

from .run import CpuProgram, Region, byte_sizes

if TYPE_CHECKING:
    from numba_ptxlink._tools.launching import Configuration

_DLPACK_CPU = 1  # kDLCPU in dlpack.h
_POINTER_BYTES = struct.calcsize("P")


def as_numpy(value: Any) -> Any:
    """
    Return a NumPy array that shares the memory of *value*, None if *value* is no array.

    Raises:
        ValueError: The array is masked, or in the memory of a device.
    """
    import numpy as np

    if hasattr(value, "mask"):
        raise ValueError("is a masked array; pass the array without its mask")
    if isinstance(value, (np.ndarray, np.generic)):
        return value if isinstance(value, np.ndarray) else None
    is_tensor = hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")
    on_device = int(value.__dlpack_device__()[0]) != _DLPACK_CPU if is_tensor else False
    if on_device or hasattr(value, "__cuda_array_interface__"):
        raise ValueError("is an array on a device; copy it to the host, for example by .get() or .cpu()")
    if is_tensor:
        return np.from_dlpack(value)
    return np.asarray(value) if hasattr(value, "__array_interface__") else None


def array_region(array: Any, name: str) -> Region:
    """Return the memory of a NumPy array, from its lowest to its highest element; errors call it *name*."""
    start = end = array_address(array)
    for extent, stride in zip(array.shape, array.strides, strict=True):
        distance = (extent - 1) * stride
        start, end = start + min(distance, 0), end + max(distance, 0)
    size = end - start + array.itemsize if array.size else 0
    return Region(start, size, bool(array.flags.writeable), name)


def array_address(array: Any) -> int:
    """Return the address of the first element of a NumPy array."""
    return int(array.__array_interface__["data"][0])


class PtxKernel(Launchable):
    """
    A kernel of PTX, on the CPU: `kernel[grid, block](...)`, `kernel[grid, block, stream, shared](...)`.

    PTX has the sizes of parameters, but not their types. So pass NumPy or ctypes numbers for numbers, NumPy
    records, ctypes structs or `bytes` for structs, and NumPy arrays for pointers, or for an `array_view` with
    the same number of dimensions. Arrays are written in place.

    Args:
        program: The program of the kernel.
        name: The kernel's symbol.

    Raises:
        LaunchError: The program has no such kernel.
    """

    def __init__(self, program: CpuProgram, name: str) -> None:
        kernels = {key: function for key, function in program.functions.items() if function.kind == "entry"}
        if name not in kernels:
            known = ", ".join(kernels) or "none"
            raise LaunchError(f"The linked code has no kernel {short_repr(name)}; its kernels are: {known}.")
        super().__init__(name)
        self._program = program
        self._sizes = byte_sizes(kernels[name].params)

    def _run(self, args: tuple[Any, ...], launch_config: Configuration) -> None:
        if len(args) != len(self._sizes):
            raise LaunchError(
                f"Kernel {self.name} takes {len(self._sizes)} arguments, but {len(args)} were passed; pass "
                "one for each parameter."
            )
        regions: list[Region] = []
        params = []
        for position, (value, size) in enumerate(zip(args, self._sizes, strict=True), start=1):
            try:
                params.append(_pack_argument(value, size, f"argument {position}", regions))
            except Exception as error:
                # Catch any exception, since reading a value runs code of another package.
                raise LaunchError(
                    f"Kernel {self.name}: argument {position}, for a parameter of {size} bytes, {error}."
                ) from error
        self._program.launch(self.name, launch_config, params, regions)


def _pack_argument(value: Any, size: int, name: str, regions: list[Region]) -> bytes:
    """Return the bytes of an argument; add its memory to *regions*."""
    if value is None and size == _POINTER_BYTES:
        return bytes(size)
    array = as_numpy(value)
    # NumPy records have a dtype, too.
    dtype = getattr(value if array is None else array, "dtype", None)
    if getattr(dtype, "hasobject", False) or not getattr(dtype, "isnative", True):
        raise ValueError("has Python objects, or another byte order than the CPU; pass a converted copy")
    # CuPy and DLPack treat an array without dimensions as memory, too.
    if array is not None and (array.shape or size == _POINTER_BYTES):
        if size == _POINTER_BYTES and not array.flags.forc:
            raise ValueError("is not contiguous; pass numpy.ascontiguousarray(x)")
        regions.append(array_region(array, name))
        # An array_view begins with the pointer.
        view = struct.pack(f"<Q{2 * array.ndim}q", array_address(array), *array.shape, *array.strides)
        if size in {_POINTER_BYTES, len(view)}:
            return view[:size]
        raise ValueError(f"is an array of {array.ndim} dimensions; pass one for a pointer or an array_view")
    try:
        content = bytes(value.tobytes() if hasattr(value, "tobytes") else memoryview(value).cast("B"))
    except TypeError as error:
        raise ValueError(
            f"is {short_repr(value)}, whose type PTX does not have; pass an array, a NumPy number such as "
            "numpy.int32(...), a NumPy record, or bytes"
        ) from error
    if len(content) != size:
        raise ValueError(
            f"is {short_repr(value)}, which has {len(content)} bytes; pass a value of {size} bytes"
        )
    return content
