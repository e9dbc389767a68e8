"""
Call the CUDA driver, by ctypes; the only module that does.

The import of NVIDIA's bindings takes longer than loading a kernel. Programs that only launch kernels need no
more than these functions.
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
# 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD belong to the current context, whichever that is.
_SPECIAL_STREAMS = range(3)
_CURES = {
    1: "check the grid, the block of at most 1024 threads, the shared memory and the cluster",
    2: "free some of the device's memory",
    100: "make a device visible to this process",
    209: "export for the architecture of this device",
    222: "export for the CUDA version of this driver by cuda=, or update the driver",
    400: "make the device of the stream the current one",
    701: "use a smaller block: the kernel has too few registers for this one, or is bounded to fewer threads",
    720: "use fewer blocks: a kernel that synchronises its grid runs when all of its blocks can run at once",
    912: "use a cluster that divides the grid, of at most 8 blocks on most devices",
}
_EARLIER = "compute-sanitizer finds what an earlier kernel did, if one is at fault"


def version() -> tuple[int, int] | None:
    """Return the newest CUDA version the driver supports, None without a driver. CUDA is not initialised."""
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
    Initialise the driver, as each function here that needs it does.

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
    listed = []
    for device in range(_query("cuDeviceGetCount", what="the devices cannot be counted")):
        unknown = f"the architecture of device {device} is unknown"
        major, minor = (
            _query("cuDeviceGetAttribute", attribute, device, what=unknown)
            for attribute in _COMPUTE_CAPABILITY
        )
        listed.append(Arch(major, minor))
    return tuple(dict.fromkeys(listed))


def load(image: bytes, name: str) -> int:
    """
    Return the handle of a library, which is never unloaded, for every context of the process.

    Args:
        image: A fat binary or cubin.
        name: Its name in messages.

    Raises:
        LaunchError: There is no driver, it is older than CUDA 12, or it refuses *image*.
    """
    options = (image, None, None, 0, None, None, 0)
    return _query("cuLibraryLoadData", *options, what=f"{name} could not be loaded")


def kernel(library: int, symbol: str) -> int:
    """
    Return the handle of the kernel *symbol* of a library.

    Raises:
        LaunchError: The library has no code of it for this device.
    """
    what = f"kernel {symbol} could not be loaded"
    return _query("cuLibraryGetKernel", library, symbol.encode(), what=what)


def enter(stream: int) -> None:
    """
    Give the thread a current context where it has none: that of *stream*, or of the first device.

    Raises:
        LaunchError: The driver has none.
    """
    if _query("cuCtxGetCurrent", what="the current context is unknown"):
        return
    if stream in _SPECIAL_STREAMS:
        context = _query("cuDevicePrimaryCtxRetain", 0, what="device 0 cannot be used")
    else:
        place = ctypes.c_uint64()
        _call("cuStreamGetCtx", stream, ctypes.byref(place), what="the stream has no context")
        context = place.value
    _call("cuCtxSetCurrent", context, what="the context cannot be used")


def wait(stream: int, other: int) -> None:
    """
    Let *stream* wait for what is in the stream *other* now.

    Raises:
        LaunchError: The driver refuses one of them.
    """
    event = _query("cuEventCreate", _DISABLE_TIMING, what="an event could not be created")
    try:
        _call("cuEventRecord", event, other, what="the stream of an array cannot be waited for")
        _call("cuStreamWaitEvent", stream, event, 0, what="the stream cannot wait for that of an array")
    finally:
        # The driver keeps it until it is reached.
        _call("cuEventDestroy_v2", event, what="an event could not be destroyed")


def inaccessible_device(address: int) -> int | None:
    """
    Return the device that has the memory at *address*, if kernels in the current context cannot access it.

    None of managed memory, of a peer's to which access is enabled, and where the driver does not know it.
    """
    if not address or not _has_peers():
        return None
    place, ask = ctypes.c_uint64(), _api().cuPointerGetAttribute
    for attribute, known in ((_DEVICE_POINTER, False), (_DEVICE_ORDINAL, True)):
        if bool(ask(ctypes.byref(place), attribute, ctypes.c_uint64(address))) is known:
            return None
    return place.value


@functools.cache
def _has_peers() -> bool:
    return _query("cuDeviceGetCount", what="the devices cannot be counted") > 1


def launch(
    handle: int, launch_config: Configuration, buffer: bytearray, offsets: Sequence[int], name: str
) -> None:
    """
    Launch a kernel in the current context; the arguments are copied before this returns.

    Args:
        handle: The kernel.
        launch_config: The grid and what else the launch has.
        buffer: The arguments.
        offsets: Where each argument begins in *buffer*.
        name: The kernel's name in messages.

    Raises:
        LaunchError: The driver refuses the launch.
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
            _call("cuKernelSetAttribute", _NON_PORTABLE, 1, handle, _device(), what=clusters)
    listed = ctypes.create_string_buffer(b"".join(attributes))
    place = ctypes.addressof(listed)
    config = _CONFIG.pack(
        *launch_config.grid,
        *launch_config.block,
        launch_config.shared,
        launch_config.stream,
        place,
        len(attributes),
    )
    base = ctypes.addressof((ctypes.c_char * len(buffer)).from_buffer(buffer))
    arguments = (ctypes.c_void_p * len(offsets))(*[base + offset for offset in offsets])
    grid, block = launch_config.grid, launch_config.block
    shape = f"kernel {name} could not be launched on a grid of {grid} blocks of {block} threads"
    _call("cuLaunchKernelEx", config, handle, arguments, None, what=shape)


def _device() -> int:
    return _query("cuCtxGetDevice", what="the current device is unknown")


@functools.cache
def _dynamic_shared(handle: int, device: int) -> int:
    """
    Return the dynamic shared memory that a kernel may have on *device*, and let it have that.

    Beyond 48 KiB, static memory included, the driver has to be asked; "cudaFuncSetAttribute" in the CUDA C++
    Programming Guide. It is asked for the most: what one launch needs would be too little for that of
    another thread.
    """
    unknown = "the shared memory of the device is unknown"
    most = _query("cuDeviceGetAttribute", _OPT_IN_SHARED, device, what=unknown)
    static = _query("cuKernelGetAttribute", _STATIC_SHARED, handle, device, what=unknown)
    allowed = max(0, most - static)
    refused = f"a kernel cannot have {allowed} bytes of dynamic shared memory"
    _call("cuKernelSetAttribute", _MAX_DYNAMIC_SHARED, allowed, handle, device, what=refused)
    return allowed


@functools.cache
def _api() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LaunchError(f"Kernels need a GPU and its driver: {error}. Install NVIDIA's driver.") from error
    _check(library, library.cuInit(0), "the driver cannot be used")
    return library


def _query(function: str, *arguments: Any, what: str) -> int:
    """Return the number or handle that a function of the driver writes to where its first argument points."""
    result = ctypes.c_uint64()
    _call(function, ctypes.byref(result), *arguments, what=what)
    return result.value


def _call(function: str, *arguments: Any, what: str) -> None:
    api = _api()
    try:
        call = getattr(api, function)
    except AttributeError as error:
        raise LaunchError(
            f"The driver has no {function}; install one of CUDA 12.0 or later (525.60 or later)."
        ) from error
    # ctypes would take 32 bits of a handle. In the ABIs of Linux an int is the lower half of what is passed.
    wide = [ctypes.c_uint64(each) if type(each) is int else each for each in arguments]
    _check(api, call(*wide), what)


def _check(api: Any, code: int, what: str) -> None:
    if code:
        words = []
        for ask in (api.cuGetErrorName, api.cuGetErrorString):
            text = ctypes.c_char_p()
            ask(code, ctypes.byref(text))
            words.append((text.value or b"?").decode(errors="replace"))
        cure = _CURES.get(code, _EARLIER)
        raise LaunchError(f"{what[0].upper()}{what[1:]}: {', '.join(words)}; {cure}.")
