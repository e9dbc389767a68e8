"""Provide the launch syntax of kernels, `kernel[grid, block](...)`, and check launch configurations."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink.errors import LaunchError, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable

# The most blocks or threads along x, y and z: "Technical Specifications per Compute Capability" in the CUDA
# C++ Programming Guide. A cluster has at most 16 blocks in all, which the driver checks.
_MAX_EXTENTS = {"grid": ((1 << 31) - 1, 65535, 65535), "block": (1024, 1024, 64), "cluster": (16, 16, 16)}
# The sizes in bytes that are not refused at once; the limit of the device is checked at the launch.
_SHARED_SIZES = range(1 << 63)
Dim3 = tuple[int, int, int]


class Configuration(NamedTuple):
    """
    A launch configuration.

    Args:
        grid: The number of blocks along x, y and z.
        block: The number of threads of a block along x, y and z.
        stream: The handle of the stream; 0 for the default stream.
        shared: The dynamic shared memory of a block, in bytes.
        cluster: The number of blocks of a cluster along x, y and z; None for the kernel's own cluster size.
        cooperative: Whether all blocks have to run at once, to synchronise the grid.
        programmatic_dependent: Whether the kernel may start before the kernel ahead of it in the stream has
            ended.
    """

    grid: Dim3
    block: Dim3
    stream: int = 0
    shared: int = 0
    cluster: Dim3 | None = None
    cooperative: bool = False
    programmatic_dependent: bool = False


class Launchable:
    """
    A kernel that is launched by `kernel[grid, block](...)` or `kernel[grid, block, stream, shared](...)`.

    Args:
        name: The symbol of the kernel.
    """

    # Whether the kernel requires a cooperative launch, whatever the caller passes: subclasses set it.
    _cooperative = False

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, config: tuple[Any, ...]) -> Callable[..., None]:
        """
        Return a function that launches the kernel: `kernel[grid, block, stream, shared](...)`.

        Raises:
            LaunchError: *config* is no tuple of two to four values.
        """
        if not isinstance(config, tuple) or not 2 <= len(config) <= 4:
            raise LaunchError(
                f"Kernel {self.name} has no launch configuration; call {self.name}[grid, block](...) or "
                f"{self.name}[grid, block, stream, shared](...)."
            )
        return functools.partial(
            self.launch, **dict(zip(("grid", "block", "stream", "shared"), config, strict=False))
        )

    def __call__(self, *_: Any) -> None:
        """
        Raise the error that explains the syntax of launches: there is no launch configuration.

        Raises:
            LaunchError: Always.
        """
        self[()]

    def launch(
        self,
        *args: Any,
        grid: Any,
        block: Any,
        stream: Any = None,
        shared: int = 0,
        cluster: Any = None,
        cooperative: bool = False,
        programmatic_dependent: bool = False,
    ) -> None:
        """
        Launch the kernel. Returns when the launch is queued; on the CPU, when the kernel has ended.

        Arrays are device memory with `__cuda_array_interface__` or DLPack; the launch waits for the streams
        that they name. On the CPU they are NumPy arrays. Structs are NumPy records, tuples or bytes. Nothing
        is copied between host and device. If the thread has no current context, it gets that of *stream*, or
        of the first device.

        Args:
            args: The arguments.
            grid: The number of blocks: one to three numbers.
            block: The number of threads of a block: one to three numbers.
            stream: A stream of cuda.core, CuPy, PyTorch or Numba, or a handle; by default the default stream.
            shared: The dynamic shared memory of a block, in bytes.
            cluster: The number of blocks of a cluster: one to three numbers; None for the kernel's own
                cluster size.
            cooperative: Whether all blocks have to run at once. Kernels that synchronise their grid are
                always launched so.
            programmatic_dependent: Whether the kernel may start before the kernel ahead of it in the stream
                has ended ("Programmatic Dependent Launch" in the CUDA Programming Guide).

        Raises:
            DeviceFaultError: On the CPU, the kernel was stopped by a fault. The attributes of the error have
                the source line.
            LaunchError: An argument does not fit its parameter or is in memory that the device of the launch
                cannot access, the kernel cannot be loaded, or the driver rejects the launch.
        """
        # The number -1, which is refused, stands for a value that is no integer.
        shared_bytes = operator.index(shared) if hasattr(shared, "__index__") else -1
        if shared_bytes not in _SHARED_SIZES:
            raise LaunchError(f"The shared memory is {short_repr(shared)}; pass a number of bytes.")
        launch_config = Configuration(
            _dim3("grid", grid),
            _dim3("block", block),
            stream_handle(stream),
            shared_bytes,
            None if cluster is None else _dim3("cluster", cluster),
            self._cooperative or cooperative,
            programmatic_dependent,
        )
        self._run(args, launch_config)

    def _run(self, args: tuple[Any, ...], launch_config: Configuration) -> None:
        """Launch the kernel with *args*; subclasses implement this for a GPU and for the CPU."""
        raise NotImplementedError


def _dim3(name: str, extents: Any) -> Dim3:
    """
    Return the extents of a grid, a block or a cluster.

    Args:
        name: "grid", "block" or "cluster".
        extents: One to three numbers.

    Raises:
        LaunchError: *extents* are not one to three positive integers, or exceed the limits of all GPUs.
    """
    extent_list = extents if isinstance(extents, (tuple, list)) else (extents,)
    try:
        numbers = [operator.index(extent) for extent in extent_list]
    except TypeError:
        numbers = []
    limits = _MAX_EXTENTS[name]
    if not 1 <= len(numbers) <= 3 or not all(
        1 <= n <= limit for n, limit in zip(numbers, limits, strict=False)
    ):
        raise LaunchError(
            f"The {name} is {short_repr(extents)}; pass one to three numbers from 1 to "
            f"{', '.join(map(str, limits))}."
        )
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def stream_handle(stream: Any) -> int:
    """
    Return the handle of *stream*.

    Args:
        stream: None for the default stream, a handle, or a stream of cuda.core, CuPy, PyTorch or Numba: an
            object with `__cuda_stream__`, or with the attribute that its package has for the handle.

    Raises:
        LaunchError: *stream* is none of these.
    """
    if stream is None:
        return 0
    try:
        # `to_bytes` raises an error for a number that does not fit into 64 bits.
        return int.from_bytes(_stream_number(stream).to_bytes(8, "little"), "little")
    except Exception as error:
        raise LaunchError(
            f"{short_repr(stream)} is not a stream: {error}; pass one of cuda.core, CuPy, PyTorch or "
            "Numba, its handle, or None."
        ) from error


def _stream_number(stream: Any) -> int:
    """Return the handle of *stream* as its package gives it; the number may have more than 64 bits."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        version, number = protocol()
        if version != 0:
            raise ValueError(f"it follows version {version} of __cuda_stream__")
        return int(number)
    # Numba's streams have `external`; int() converts their handle, an object of the bindings or of ctypes.
    if hasattr(stream, "external"):
        return int(stream)
    # The attribute of PyTorch's streams, and that of CuPy's.
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return operator.index(getattr(stream, attribute))
    return operator.index(stream)
