"""Launch on the CPU: arrays in host memory, and kernels of which there is PTX alone."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from numba_ptxlink._tools.launching import Launchable
from numba_ptxlink.errors import LaunchError, shown

from .run import CpuProgram, Region, byte_sizes

if TYPE_CHECKING:
    from numba_ptxlink._tools.launching import Configuration

_DLPACK_CPU = 1  # kDLCPU in dlpack.h
_POINTER = struct.calcsize("P")


def array(value: Any) -> Any:
    """
    Return the array of NumPy that has the memory of *value*, None where *value* is no array.

    Raises:
        ValueError: It is masked, or in the memory of a device. The message says what to pass.
    """
    import numpy as np

    if hasattr(value, "mask"):
        raise ValueError("it is a masked array; pass the array without its mask")
    if isinstance(value, (np.ndarray, np.generic)):
        return value if isinstance(value, np.ndarray) else None
    is_tensor = hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__")
    on_device = int(value.__dlpack_device__()[0]) != _DLPACK_CPU if is_tensor else False
    if on_device or hasattr(value, "__cuda_array_interface__"):
        raise ValueError("it is an array on a device; copy it to the host, for example by .get() or .cpu()")
    if is_tensor:
        return np.from_dlpack(value)
    return np.asarray(value) if hasattr(value, "__array_interface__") else None


def region(given: Any, name: str) -> Region:
    """Return the memory of an array of NumPy, which is the argument of the parameter *name*."""
    low = high = address(given)
    for extent, stride in zip(given.shape, given.strides, strict=True):
        reach = (extent - 1) * stride
        low, high = low + min(reach, 0), high + max(reach, 0)
    size = high - low + given.itemsize if given.size else 0
    return Region(low, size, bool(given.flags.writeable), name)


def address(given: Any) -> int:
    """Return where the first element of an array of NumPy is."""
    return int(given.__array_interface__["data"][0])


class PtxKernel(Launchable):
    """
    A kernel of PTX, on the CPU: `kernel[grid, block](...)`, `kernel[grid, block, stream, shared](...)`.

    PTX tells the sizes of parameters, and not their types. So a number is one of NumPy or ctypes, a struct is
    a record of NumPy, a struct of ctypes or `bytes`, and an array is passed for a pointer, or for an
    `array_view` of as many dimensions. Arrays are those of NumPy, and written in place.

    Args:
        program: What has the kernel.
        name: Its symbol.

    Raises:
        LaunchError: The program has no such kernel.
    """

    def __init__(self, program: CpuProgram, name: str) -> None:
        kernels = {each: found for each, found in program.functions.items() if found.kind == "entry"}
        if name not in kernels:
            known = ", ".join(kernels) or "none"
            raise LaunchError(f"{shown(name)} is not a kernel of what was linked, which has: {known}.")
        super().__init__(name)
        self._program = program
        self._sizes = byte_sizes(kernels[name].params)

    def _run(self, args: tuple[Any, ...], launch_config: Configuration) -> None:
        if len(args) != len(self._sizes):
            raise LaunchError(
                f"Kernel {self.name} takes {len(self._sizes)} arguments, and was given {len(args)}."
            )
        regions: list[Region] = []
        params = []
        for number, (value, size) in enumerate(zip(args, self._sizes, strict=True), start=1):
            try:
                params.append(_pack_argument(value, size, f"argument {number}", regions))
            except Exception as error:
                # Values run the code of their packages.
                raise LaunchError(
                    f"Kernel {self.name}: parameter {number} has {size} bytes: {error}."
                ) from error
        self._program.launch(self.name, launch_config, params, regions)


def _pack_argument(value: Any, size: int, name: str, regions: list[Region]) -> bytes:
    """Return the bytes of an argument, whose memory comes to *regions*."""
    if value is None and size == _POINTER:
        return bytes(size)
    given = array(value)
    dtype = getattr(value if given is None else given, "dtype", None)
    # Of a record, too, whose bytes are the argument.
    if getattr(dtype, "hasobject", False) or not getattr(dtype, "isnative", True):
        raise ValueError("it has objects of Python, or the other byte order; pass a copy that has neither")
    # CuPy and DLPack treat an array without dimensions as memory, too.
    if given is not None and (given.shape or size == _POINTER):
        if size == _POINTER and not given.flags.forc:
            raise ValueError("it has gaps; pass a copy that has none")
        regions.append(region(given, name))
        # An array_view begins with the pointer.
        view = struct.pack(f"<Q{2 * given.ndim}q", address(given), *given.shape, *given.strides)
        if size in {_POINTER, len(view)}:
            return view[:size]
        raise ValueError(
            f"it is an array of {given.ndim} dimensions; pass one for a pointer or an array_view"
        )
    try:
        content = bytes(value.tobytes() if hasattr(value, "tobytes") else memoryview(value).cast("B"))
    except TypeError as error:
        raise ValueError(
            f"it is {shown(value)}, and PTX does not tell the type; pass an array, a number of NumPy, such "
            "as numpy.int32(...), a record of NumPy, or bytes"
        ) from error
    if len(content) != size:
        raise ValueError(f"it is {shown(value)}, of {len(content)} bytes; pass one of {size}")
    return content
