"""
Call the CUDA driver by ctypes; no other module calls it.

The import of NVIDIA's Python bindings takes longer than loading a kernel, and programs that only launch
kernels need no more than these functions.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from typing import TYPE_CHECKING, Any

from numba_ptxlink._arch import Arch
from numba_ptxlink.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .launching import Configuration

# Structures of cuda.h; "x" is a byte of padding. CUlaunchConfig: the extents of grid and block, the shared
# memory in bytes, the stream, and the address and number of the attributes. CUlaunchAttribute: its ID, and
# its value, a union of 64 bytes, of which one or three numbers are used.
_CONFIG, _ATTRIBUTE = struct.Struct("7I4xQQI4x"), struct.Struct("i4x3I52x")
_COOPERATIVE, _CLUSTER, _PROGRAMMATIC = 2, 4, 6  # CU_LAUNCH_ATTRIBUTE_...
# The largest cluster that every GPU with clusters supports. A kernel has to opt in to larger ones ("Thread
# Block Clusters" in the CUDA C++ Programming Guide).
_MAX_PORTABLE_CLUSTER_BLOCKS = 8
_STATIC_SHARED = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
_OPT_IN_SHARED = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NON_PORTABLE = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_DEVICE_POINTER, _DEVICE_ORDINAL = 3, 9  # CU_POINTER_ATTRIBUTE_...
# The handles 0, CU_STREAM_LEGACY (1) and CU_STREAM_PER_THREAD (2) mean a stream of the thread's current
# context.
_DEFAULT_STREAMS = range(3)
# The cures by CUresult; the comments are the names without CUDA_ERROR_.
_CURES = {
    # INVALID_VALUE
    1: "check the grid, the block of at most 1024 threads, the shared memory and the cluster",
    # OUT_OF_MEMORY
    2: "free some of the device's memory",
    # NO_DEVICE
    100: "make a device visible to this process",
    # NO_BINARY_FOR_GPU
    209: "export for the architecture of this device",
    # UNSUPPORTED_PTX_VERSION
    222: "export for the CUDA version of this driver by cuda=, or update the driver",
    # INVALID_HANDLE
    400: "make the device of the stream the current one",
    # LAUNCH_OUT_OF_RESOURCES
    701: "use a smaller block: the kernel uses too many registers per thread for this size, or its launch "
    "bounds allow fewer threads",
    # COOPERATIVE_LAUNCH_TOO_LARGE
    720: "use fewer blocks: a kernel that synchronises its grid needs all of its blocks to run at once",
    # INVALID_CLUSTER_SIZE
    912: "use a cluster that divides the grid, of at most 8 blocks on most devices",
}
# A kernel runs after its launch has returned, so that its error is reported by a later call.
_DEFAULT_CURE = "run compute-sanitizer, since an earlier kernel may be at fault"


def version() -> tuple[int, int] | None:
    """
    Return the newest CUDA version that the driver supports, as (major, minor); None without a driver.

    Does not initialise CUDA, which would take longer and need a device.
    """
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    # cuDriverGetVersion works without cuInit. The number is 1000 * major + 10 * minor.
    if library.cuDriverGetVersion(ctypes.byref(number)):
        return None
    return (number.value // 1000, number.value % 1000 // 10)  # 12040 is CUDA 12.4.


def require() -> None:
    """
    Initialise the driver now, instead of at the first call of another function of this module.

    Raises:
        LaunchError: There is no driver, or it cannot be used.
    """
    _api()


def archs() -> tuple[Arch, ...]:
    """
    Return the architectures of the visible devices, each once, in the driver's order.

    Raises:
        LaunchError: There is no driver, or it cannot be used.
    """
    found_archs = []
    for device in range(_query("cuDeviceGetCount", failure="the devices cannot be counted")):
        failure = f"the architecture of device {device} is unknown"
        major, minor = (
            _query("cuDeviceGetAttribute", attribute, device, failure=failure)
            for attribute in _COMPUTE_CAPABILITY
        )
        found_archs.append(Arch(major, minor))
    return tuple(dict.fromkeys(found_archs))


def load(image: bytes, name: str) -> int:
    """
    Load a library for all contexts of the process, and return its handle. The library is never unloaded.

    Args:
        image: A fat binary or cubin.
        name: The name in messages.

    Raises:
        LaunchError: There is no driver, it is older than CUDA 12, or it rejects *image*.
    """
    # No JIT options and no library options; each are names, values and their number.
    no_options = (None, None, 0)
    arguments = (image, *no_options, *no_options)
    return _query("cuLibraryLoadData", *arguments, failure=f"{name} could not be loaded")


def kernel(library: int, symbol: str) -> int:
    """
    Return the handle of the kernel *symbol* of a library.

    Raises:
        LaunchError: The library has no code of the kernel for this device.
    """
    failure = f"kernel {symbol} could not be loaded"
    return _query("cuLibraryGetKernel", library, symbol.encode(), failure=failure)


def ensure_context(stream: int) -> None:
    """
    Give the thread a current context if it has none: that of *stream*, or of device 0 for a default stream.

    Raises:
        LaunchError: The driver cannot provide the context.
    """
    if _query("cuCtxGetCurrent", failure="the current context is unknown"):
        return
    if stream in _DEFAULT_STREAMS:
        context = _query("cuDevicePrimaryCtxRetain", 0, failure="device 0 cannot be used")
    else:
        stream_context = ctypes.c_uint64()
        _call("cuStreamGetCtx", stream, ctypes.byref(stream_context), failure="the stream has no context")
        context = stream_context.value
    _call("cuCtxSetCurrent", context, failure="the context cannot be used")


def wait(stream: int, array_stream: int) -> None:
    """
    Let *stream* wait for the work that is now queued in *array_stream*, the stream that writes an array.

    Raises:
        LaunchError: The driver rejects one of the streams.
    """
    event = _query("cuEventCreate", _DISABLE_TIMING, failure="an event could not be created")
    try:
        _call("cuEventRecord", event, array_stream, failure="the stream of an array cannot be waited for")
        _call("cuStreamWaitEvent", stream, event, 0, failure="the stream cannot wait for that of an array")
    finally:
        # The driver keeps the event until the stream has reached it.
        _call("cuEventDestroy_v2", event, failure="an event could not be destroyed")


def inaccessible_device(address: int) -> int | None:
    """
    Return the number of the device whose memory *address* is in, if kernels cannot access that memory.

    Return None if kernels in the current context can access the memory, such as managed memory and memory of
    a peer to which access is enabled; and for unknown addresses, about which the driver cannot tell.
    """
    # Memory of the only device is always accessible: save the queries at each launch.
    if not address or not _has_several_devices():
        return None
    attribute, query = ctypes.c_uint64(), _api().cuPointerGetAttribute
    # The query returns 0, success, for memory that kernels in the current context can access.
    if query(ctypes.byref(attribute), _DEVICE_POINTER, ctypes.c_uint64(address)) == 0:
        return None
    # The query fails for unknown addresses, which have no device. Otherwise it writes the ordinal, an int, to
    # the lower half of `attribute`, whose upper half is still 0.
    if query(ctypes.byref(attribute), _DEVICE_ORDINAL, ctypes.c_uint64(address)) != 0:
        return None
    return attribute.value


@functools.cache
def _has_several_devices() -> bool:
    return _query("cuDeviceGetCount", failure="the devices cannot be counted") > 1


def launch(
    handle: int, launch_config: Configuration, buffer: bytearray, offsets: Sequence[int], name: str
) -> None:
    """
    Launch a kernel in the current context; the arguments are copied before this returns.

    Args:
        handle: The handle of the kernel, as returned by `kernel`.
        launch_config: The launch configuration.
        buffer: The values of the arguments.
        offsets: The offset of each argument in *buffer*, in bytes.
        name: The kernel's name in messages.

    Raises:
        LaunchError: The driver rejects the launch.
    """
    if launch_config.shared:
        max_bytes = _allow_dynamic_shared(handle, _device())
        if launch_config.shared > max_bytes:
            raise LaunchError(
                f"Kernel {name} cannot have {launch_config.shared} bytes of dynamic shared memory; pass "
                f"at most {max_bytes}."
            )
    attributes = []
    if launch_config.cooperative:
        attributes.append(_ATTRIBUTE.pack(_COOPERATIVE, 1, 0, 0))
    if launch_config.programmatic_dependent:
        attributes.append(_ATTRIBUTE.pack(_PROGRAMMATIC, 1, 0, 0))
    if launch_config.cluster:
        attributes.append(_ATTRIBUTE.pack(_CLUSTER, *launch_config.cluster))
        if math.prod(launch_config.cluster) > _MAX_PORTABLE_CLUSTER_BLOCKS:
            failure = f"kernel {name} cannot have clusters of more than {_MAX_PORTABLE_CLUSTER_BLOCKS} blocks"
            _call("cuKernelSetAttribute", _NON_PORTABLE, 1, handle, _device(), failure=failure)
    attribute_array = ctypes.create_string_buffer(b"".join(attributes))
    config = _CONFIG.pack(
        *launch_config.grid,
        *launch_config.block,
        launch_config.shared,
        launch_config.stream,
        ctypes.addressof(attribute_array),
        len(attributes),
    )
    base = ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
    arguments = (ctypes.c_void_p * len(offsets))(*[base + offset for offset in offsets])
    grid, block = launch_config.grid, launch_config.block
    failure = f"kernel {name} could not be launched on a grid of {grid} blocks of {block} threads"
    _call("cuLaunchKernelEx", config, handle, arguments, None, failure=failure)


def _device() -> int:
    return _query("cuCtxGetDevice", failure="the current device is unknown")


@functools.cache
def _allow_dynamic_shared(handle: int, device: int) -> int:
    """
    Allow a kernel the most dynamic shared memory that *device* can give it, and return that in bytes.

    A kernel with more than 48 KiB, static shared memory included, has to opt in ("cudaFuncSetAttribute" in
    the CUDA C++ Programming Guide). The maximum is set, since another thread may launch the kernel with more
    memory than this launch needs.
    """
    failure = "the shared memory of the device is unknown"
    total_bytes = _query("cuDeviceGetAttribute", _OPT_IN_SHARED, device, failure=failure)
    static_bytes = _query("cuKernelGetAttribute", _STATIC_SHARED, handle, device, failure=failure)
    dynamic_bytes = max(0, total_bytes - static_bytes)
    failure = f"a kernel cannot have {dynamic_bytes} bytes of dynamic shared memory"
    _call("cuKernelSetAttribute", _MAX_DYNAMIC_SHARED, dynamic_bytes, handle, device, failure=failure)
    return dynamic_bytes


@functools.cache
def _api() -> Any:
    """Return the driver's library, loaded and initialised."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LaunchError(f"Kernels need a GPU and its driver: {error}. Install NVIDIA's driver.") from error
    _check(library, library.cuInit(0), "the driver cannot be used")
    return library


def _query(function: str, *arguments: Any, failure: str) -> int:
    """
    Return the number or handle that a function of the driver writes to its first argument.

    Args:
        function: The name of the C function.
        arguments: Its further arguments.
        failure: The beginning of the message if the call fails.
    """
    result = ctypes.c_uint64()
    _call(function, ctypes.byref(result), *arguments, failure=failure)
    return result.value


def _call(function: str, *arguments: Any, failure: str) -> None:
    """Call a function of the driver; *failure* begins the message of the LaunchError if the call fails."""
    api = _api()
    try:
        driver_function = getattr(api, function)
    except AttributeError as error:
        raise LaunchError(
            f"The driver has no {function}; install a driver of CUDA 12.0 or later (525.60 or later)."
        ) from error
    # ctypes would pass only 32 bits of a handle, so pass each number in 64 bits. A function that expects an
    # int takes the lower half, in the ABIs of Linux.
    arguments_in_64_bits = [
        ctypes.c_uint64(argument) if type(argument) is int else argument for argument in arguments
    ]
    _check(api, driver_function(*arguments_in_64_bits), failure)


def _check(api: Any, result: int, failure: str) -> None:
    """Raise an error that begins with *failure*, unless *result*, a CUresult, is 0."""
    if result:
        texts = []
        for query in (api.cuGetErrorName, api.cuGetErrorString):
            text = ctypes.c_char_p()
            query(result, ctypes.byref(text))
            texts.append((text.value or b"?").decode(errors="replace"))
        cure = _CURES.get(result, _DEFAULT_CURE)
        raise LaunchError(f"{failure[0].upper()}{failure[1:]}: {', '.join(texts)}; {cure}.")
