"""
Call the CUDA driver by ctypes; no other module calls it.

The import of NVIDIA's bindings takes longer than loading a kernel, and programs that only launch kernels need
no more than these functions.
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

# CUlaunchConfig, and CUlaunchAttribute with a value of up to three numbers.
_CONFIG, _ATTRIBUTE = struct.Struct("7I4xQQI4x"), struct.Struct("i4x3I52x")
_COOPERATIVE, _CLUSTER, _PROGRAMMATIC = 2, 4, 6  # CU_LAUNCH_ATTRIBUTE_...
_PORTABLE_CLUSTER = 8  # blocks
_STATIC_SHARED = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
_OPT_IN_SHARED = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NON_PORTABLE = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
_DEVICE_POINTER, _DEVICE_ORDINAL = 3, 9  # CU_POINTER_ATTRIBUTE_...
# 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD belong to the current context of the thread.
_SPECIAL_STREAMS = range(3)
_CURES = {
    1: "check the grid, the block of at most 1024 threads, the shared memory and the cluster",
    2: "free some of the device's memory",
    100: "make a device visible to this process",
    209: "export for the architecture of this device",
    222: "export for the CUDA version of this driver by cuda=, or update the driver",
    400: "make the device of the stream the current one",
    701: "use a smaller block: the kernel uses too many registers per thread for this size, or its launch "
    "bounds allow fewer threads",
    720: "use fewer blocks: a kernel that synchronises its grid runs when all of its blocks can run at once",
    912: "use a cluster that divides the grid, of at most 8 blocks on most devices",
}
_DEFAULT_CURE = "run compute-sanitizer, since an earlier kernel may be at fault"


def version() -> tuple[int, int] | None:
    """Return the newest CUDA version that the driver supports; None without one. CUDA is not initialised."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    # The one driver function that works without cuInit.
    if library.cuDriverGetVersion(ctypes.byref(number)):
        return None
    return (number.value // 1000, number.value % 1000 // 10)


def require() -> None:
    """
    Initialise the driver, as the other functions here do.

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
        unknown = f"the architecture of device {device} is unknown"
        major, minor = (
            _query("cuDeviceGetAttribute", attribute, device, failure=unknown)
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
    options = (image, None, None, 0, None, None, 0)
    return _query("cuLibraryLoadData", *options, failure=f"{name} could not be loaded")


def kernel(library: int, symbol: str) -> int:
    """
    Return the handle of the kernel *symbol* of a library.

    Raises:
        LaunchError: The library has no code of it for this device.
    """
    failure = f"kernel {symbol} could not be loaded"
    return _query("cuLibraryGetKernel", library, symbol.encode(), failure=failure)


def ensure_context(stream: int) -> None:
    """
    Give the thread a current context if it has none: that of *stream*, or of the first device.

    Raises:
        LaunchError: The driver has no context.
    """
    if _query("cuCtxGetCurrent", failure="the current context is unknown"):
        return
    if stream in _SPECIAL_STREAMS:
        context = _query("cuDevicePrimaryCtxRetain", 0, failure="device 0 cannot be used")
    else:
        pointer = ctypes.c_uint64()
        _call("cuStreamGetCtx", stream, ctypes.byref(pointer), failure="the stream has no context")
        context = pointer.value
    _call("cuCtxSetCurrent", context, failure="the context cannot be used")


def wait(stream: int, other: int) -> None:
    """
    Let *stream* wait for the present work of the stream *other*.

    Raises:
        LaunchError: The driver rejects one of them.
    """
    event = _query("cuEventCreate", _DISABLE_TIMING, failure="an event could not be created")
    try:
        _call("cuEventRecord", event, other, failure="the stream of an array cannot be waited for")
        _call("cuStreamWaitEvent", stream, event, 0, failure="the stream cannot wait for that of an array")
    finally:
        # The driver keeps the event until the stream has reached it.
        _call("cuEventDestroy_v2", event, failure="an event could not be destroyed")


def inaccessible_device(address: int) -> int | None:
    """
    Return the device that has the memory at *address*, if kernels in the current context cannot access it.

    Return None otherwise: for managed memory, memory of a peer to which access is enabled, and unknown
    addresses.
    """
    if not address or not _has_peers():
        return None
    pointer, query = ctypes.c_uint64(), _api().cuPointerGetAttribute
    # Memory that kernels in the current context can access has a device pointer.
    if not query(ctypes.byref(pointer), _DEVICE_POINTER, ctypes.c_uint64(address)):
        return None
    # Unknown addresses have no device.
    if query(ctypes.byref(pointer), _DEVICE_ORDINAL, ctypes.c_uint64(address)):
        return None
    return pointer.value


@functools.cache
def _has_peers() -> bool:
    return _query("cuDeviceGetCount", failure="the devices cannot be counted") > 1


def launch(
    handle: int, launch_config: Configuration, buffer: bytearray, offsets: Sequence[int], name: str
) -> None:
    """
    Launch a kernel in the current context; the arguments are copied before this returns.

    Args:
        handle: The kernel.
        launch_config: The launch configuration.
        buffer: The arguments.
        offsets: The offset of each argument in *buffer*.
        name: The kernel's name in messages.

    Raises:
        LaunchError: The driver rejects the launch.
    """
    if launch_config.shared:
        allowed = _dynamic_shared(handle, _device())
        if launch_config.shared > allowed:
            raise LaunchError(
                f"Kernel {name} cannot have {launch_config.shared} bytes of dynamic shared memory; pass "
                f"at most {allowed}."
            )
    attributes = [_ATTRIBUTE.pack(_COOPERATIVE, 1, 0, 0)] * launch_config.cooperative
    attributes += [_ATTRIBUTE.pack(_PROGRAMMATIC, 1, 0, 0)] * launch_config.programmatic_dependent
    if launch_config.cluster:
        attributes.append(_ATTRIBUTE.pack(_CLUSTER, *launch_config.cluster))
        if math.prod(launch_config.cluster) > _PORTABLE_CLUSTER:
            clusters = f"kernel {name} cannot have clusters of more than {_PORTABLE_CLUSTER} blocks"
            _call("cuKernelSetAttribute", _NON_PORTABLE, 1, handle, _device(), failure=clusters)
    attribute_array = ctypes.create_string_buffer(b"".join(attributes))
    pointer = ctypes.addressof(attribute_array)
    config = _CONFIG.pack(
        *launch_config.grid,
        *launch_config.block,
        launch_config.shared,
        launch_config.stream,
        pointer,
        len(attributes),
    )
    base = ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
    arguments = (ctypes.c_void_p * len(offsets))(*[base + offset for offset in offsets])
    grid, block = launch_config.grid, launch_config.block
    shape = f"kernel {name} could not be launched on a grid of {grid} blocks of {block} threads"
    _call("cuLaunchKernelEx", config, handle, arguments, None, failure=shape)


def _device() -> int:
    return _query("cuCtxGetDevice", failure="the current device is unknown")


@functools.cache
def _dynamic_shared(handle: int, device: int) -> int:
    """
    Opt in to the maximum of dynamic shared memory of a kernel on *device*, and return it in bytes.

    Beyond 48 KiB, static memory included, a kernel has to opt in ("cudaFuncSetAttribute" in the CUDA C++
    Programming Guide). The maximum is set, since another thread may launch the kernel with more memory than
    this launch needs.
    """
    unknown = "the shared memory of the device is unknown"
    maximum = _query("cuDeviceGetAttribute", _OPT_IN_SHARED, device, failure=unknown)
    static = _query("cuKernelGetAttribute", _STATIC_SHARED, handle, device, failure=unknown)
    allowed = max(0, maximum - static)
    refused = f"a kernel cannot have {allowed} bytes of dynamic shared memory"
    _call("cuKernelSetAttribute", _MAX_DYNAMIC_SHARED, allowed, handle, device, failure=refused)
    return allowed


@functools.cache
def _api() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LaunchError(f"Kernels need a GPU and its driver: {error}. Install NVIDIA's driver.") from error
    _check(library, library.cuInit(0), "the driver cannot be used")
    return library


def _query(function: str, *arguments: Any, failure: str) -> int:
    """Return the number or handle that a function of the driver writes to its first argument."""
    result = ctypes.c_uint64()
    _call(function, ctypes.byref(result), *arguments, failure=failure)
    return result.value


def _call(function: str, *arguments: Any, failure: str) -> None:
    api = _api()
    try:
        call = getattr(api, function)
    except AttributeError as error:
        raise LaunchError(
            f"The driver has no {function}; install one of CUDA 12.0 or later (525.60 or later)."
        ) from error
    # ctypes would pass 32 bits of a handle. In the ABIs of Linux, an int is the lower half of a 64-bit
    # argument.
    arguments_in_64_bits = [
        ctypes.c_uint64(argument) if type(argument) is int else argument for argument in arguments
    ]
    _check(api, call(*arguments_in_64_bits), failure)


def _check(api: Any, code: int, failure: str) -> None:
    if code:
        texts = []
        for query in (api.cuGetErrorName, api.cuGetErrorString):
            text = ctypes.c_char_p()
            query(code, ctypes.byref(text))
            texts.append((text.value or b"?").decode(errors="replace"))
        cure = _CURES.get(code, _DEFAULT_CURE)
        raise LaunchError(f"{failure[0].upper()}{failure[1:]}: {', '.join(texts)}; {cure}.")
