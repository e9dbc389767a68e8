"""
Launch PTX kernels on the CPU. PTX lacks the types of C, so that only the sizes of arguments can be checked.

The memory of each NumPy array among the arguments becomes a region, which the kernel may access.
"""

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
    Return a NumPy array that shares the memory of *value*; None if *value* is no array.

    Raises:
        ValueError: The array is masked, or in the memory of a device. The message has no subject: the caller
            puts one before it, such as "argument 1".
    """
    import numpy as np

    if hasattr(value, "mask"):
        raise ValueError("is a masked array; pass the array without its mask")
    if isinstance(value, (np.ndarray, np.generic)):
        return value if isinstance(value, np.ndarray) else None
    has_dlpack = hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")
    # `__dlpack_device__` returns the type and the number of the device.
    is_on_device = has_dlpack and int(value.__dlpack_device__()[0]) != _DLPACK_CPU
    if is_on_device or hasattr(value, "__cuda_array_interface__"):
        raise ValueError("is an array on a device; copy it to the host, for example by .get() or .cpu()")
    if has_dlpack:
        return np.from_dlpack(value)
    return np.asarray(value) if hasattr(value, "__array_interface__") else None


def array_region(array: Any, name: str) -> Region:
    """
    Return the memory of a NumPy array as a region, from the lowest to the highest address of its elements.

    Args:
        array: The array.
        name: The name of the region in errors, such as "argument 1".
    """
    lowest = highest = array_address(array)
    for extent, stride in zip(array.shape, array.strides, strict=True):
        # A negative stride leads to lower addresses.
        distance = (extent - 1) * stride
        lowest, highest = lowest + min(distance, 0), highest + max(distance, 0)
    size = highest - lowest + array.itemsize if array.size else 0
    return Region(lowest, size, bool(array.flags.writeable), name)


def array_address(array: Any) -> int:
    """Return the address of the first element of a NumPy array."""
    return int(array.__array_interface__["data"][0])


class PtxKernel(Launchable):
    """
    A kernel of PTX, on the CPU: `kernel[grid, block](...)`, `kernel[grid, block, stream, shared](...)`.

    PTX has the sizes of parameters, but not their types in C. So pass a NumPy or ctypes number for a number;
    a NumPy record, a ctypes struct or `bytes` for a struct; and a NumPy array for a pointer, or for an
    `array_view` (of numba_ptxlink/array_view.h) with the same number of dimensions. The kernel writes into
    the memory of the arrays.

    Args:
        program: The PTX module that contains the kernel.
        name: The symbol of the kernel.

    Raises:
        LaunchError: The program has no such kernel.
    """

    def __init__(self, program: CpuProgram, name: str) -> None:
        kernels = {
            symbol: function for symbol, function in program.functions.items() if function.kind == "entry"
        }
        if name not in kernels:
            known = ", ".join(kernels) or "none"
            raise LaunchError(f"The linked code has no kernel {short_repr(name)}; its kernels are: {known}.")
        super().__init__(name)
        self._program = program
        self._param_sizes = byte_sizes(kernels[name].params)

    def _run(self, args: tuple[Any, ...], launch_config: Configuration) -> None:
        if len(args) != len(self._param_sizes):
            raise LaunchError(
                f"Kernel {self.name} takes {len(self._param_sizes)} arguments, but {len(args)} were passed; "
                "pass one for each parameter."
            )
        regions: list[Region] = []
        params = []
        for position, (value, size) in enumerate(zip(args, self._param_sizes, strict=True), start=1):
            try:
                params.append(_pack_argument(value, size, f"argument {position}", regions))
            except Exception as error:
                # Catch any exception, since reading a value runs code of another package.
                raise LaunchError(
                    f"Kernel {self.name}: argument {position}, for a parameter of {size} bytes, {error}."
                ) from error
        self._program.launch(self.name, launch_config, params, regions)


def _pack_argument(value: Any, size: int, name: str, regions: list[Region]) -> bytes:
    """
    Return the bytes of an argument, as the kernel finds them in its parameter buffer.

    Args:
        value: The argument.
        size: The bytes of the parameter.
        name: The name of the argument in errors.
        regions: The list to which the memory of an array is added.

    Raises:
        ValueError: The argument does not fit the parameter. The message has no subject, as in `as_numpy`.
    """
    if value is None and size == _POINTER_BYTES:
        # A null pointer.
        return bytes(size)
    array = as_numpy(value)
    # NumPy records have a dtype, too.
    dtype = getattr(value if array is None else array, "dtype", None)
    if getattr(dtype, "hasobject", False) or not getattr(dtype, "isnative", True):
        raise ValueError("has Python objects, or another byte order than the CPU; pass a converted copy")
    # A parameter of the size of a pointer gets the address of the array, even if the array has no dimensions,
    # as in CuPy. For a parameter of another size, an array without dimensions is a number: its bytes are
    # copied below.
    if array is not None and (array.shape or size == _POINTER_BYTES):
        # `forc`: contiguous in Fortran's or C's order.
        if size == _POINTER_BYTES and not array.flags.forc:
            raise ValueError("is not contiguous; pass numpy.ascontiguousarray(x)")
        regions.append(array_region(array, name))
        # An array_view consists of the pointer, the extents, and the strides in bytes; 8 bytes each.
        view = struct.pack(f"<Q{2 * array.ndim}q", array_address(array), *array.shape, *array.strides)
        if size in {_POINTER_BYTES, len(view)}:
            # All of the array_view, or its first 8 bytes: the pointer.
            return view[:size]
        raise ValueError(
            f"is an array of {array.ndim} dimensions, which fits a pointer ({_POINTER_BYTES} bytes) or an "
            f"array_view ({len(view)} bytes); pass a value of {size} bytes"
        )
    try:
        content = bytes(value.tobytes() if hasattr(value, "tobytes") else memoryview(value).cast("B"))
    except TypeError as error:
        raise ValueError(
            f"is {short_repr(value)}, whose bytes depend on the parameter's type, which PTX does not have; "
            "pass an array, a NumPy number such as numpy.int32(...), a NumPy record, or bytes"
        ) from error
    if len(content) != size:
        raise ValueError(
            f"is {short_repr(value)}, which has {len(content)} bytes; pass a value of {size} bytes"
        )
    return content
