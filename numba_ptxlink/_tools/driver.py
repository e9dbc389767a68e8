"""
Call the CUDA driver, by ctypes; the only module that does.

The import of NVIDIA's bindings takes longer than loading a kernel. Programs that only launch kernels need no
more than these functions.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import TYPE_CHECKING, Any

from numba_ptxlink._arch import Arch
from numba_ptxlink.errors import LaunchError

if TYPE_CHECKING:
    from collections.abc import Sequence

_ADDRESS = ctypes.c_void_p
_OUT = ctypes.POINTER(ctypes.c_void_p)
_UINT = ctypes.c_uint
# Handles are passed as addresses. The names are those of the library's symbols.
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (_UINT,),
    "cuGetErrorName": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuGetErrorString": (ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)),
    "cuDeviceGetCount": (ctypes.POINTER(ctypes.c_int),),
    "cuDeviceGetAttribute": (ctypes.POINTER(ctypes.c_int), ctypes.c_int, ctypes.c_int),
    "cuCtxGetCurrent": (_OUT,),
    "cuCtxSetCurrent": (_ADDRESS,),
    "cuCtxGetDevice": (ctypes.POINTER(ctypes.c_int),),
    "cuDevicePrimaryCtxRetain": (_OUT, ctypes.c_int),
    "cuStreamGetCtx": (_ADDRESS, _OUT),
    "cuStreamWaitEvent": (_ADDRESS, _ADDRESS, _UINT),
    "cuEventCreate": (_OUT, _UINT),
    "cuEventRecord": (_ADDRESS, _ADDRESS),
    "cuEventDestroy_v2": (_ADDRESS,),
    "cuLibraryLoadData": (_OUT, ctypes.c_char_p, *(_ADDRESS, _ADDRESS, _UINT) * 2),
    "cuLibraryGetKernel": (_OUT, _ADDRESS, ctypes.c_char_p),
    "cuKernelGetAttribute": (ctypes.POINTER(ctypes.c_int), ctypes.c_int, _ADDRESS, ctypes.c_int),
    "cuKernelSetAttribute": (ctypes.c_int, ctypes.c_int, _ADDRESS, ctypes.c_int),
    "cuLaunchKernel": (_ADDRESS, *(_UINT,) * 7, _ADDRESS, _ADDRESS, _ADDRESS),
    "cuLaunchCooperativeKernel": (_ADDRESS, *(_UINT,) * 7, _ADDRESS, _ADDRESS),
}
_MOST_THREADS = 0  # CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
_STATIC_SHARED = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
_OPT_IN_SHARED = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
# CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK to _MAX_GRID_DIM_Z.
_LIMITS = {
    1: "threads of a block",
    **{2 + number: f"threads of a block in {axis}" for number, axis in enumerate("xyz")},
    **{5 + number: f"blocks of a grid in {axis}" for number, axis in enumerate("xyz")},
}
_COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_DISABLE_TIMING = 2  # CU_EVENT_DISABLE_TIMING
# 0, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD belong to the current context, whichever that is.
_SPECIAL_STREAMS = range(3)
_CURES = {
    1: "check the grid, the block and the shared memory",
    2: "free some of the device's memory",
    100: "make a device visible to this process",
    209: "export for the architecture of this device",
    222: "export for the CUDA version of this driver by cuda=, or update the driver",
    400: "make the device of the stream the current one",
    701: "use a smaller block or less shared memory",
    720: "use fewer blocks: a kernel that synchronises its grid runs when all of its blocks can run at once",
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
    api, count = _api(), ctypes.c_int()
    _check(api, api.cuDeviceGetCount(count), "the devices cannot be counted")
    listed = []
    for device in range(count.value):
        major, minor = ctypes.c_int(), ctypes.c_int()
        for number, attribute in zip((major, minor), _COMPUTE_CAPABILITY, strict=True):
            answer = api.cuDeviceGetAttribute(number, attribute, device)
            _check(api, answer, f"the architecture of device {device} is unknown")
        listed.append(Arch(major.value, minor.value))
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
    api = _api()
    library = ctypes.c_void_p()
    _check(
        api,
        api.cuLibraryLoadData(library, image, None, None, 0, None, None, 0),
        f"{name} could not be loaded",
    )
    return int(library.value or 0)


def kernel(library: int, symbol: str) -> int:
    """
    Return the handle of the kernel *symbol* of a library.

    Raises:
        LaunchError: The library has no code of it for this device.
    """
    handle = ctypes.c_void_p()
    api = _api()
    answer = api.cuLibraryGetKernel(handle, library, symbol.encode())
    _check(api, answer, f"kernel {symbol} could not be loaded")
    return int(handle.value or 0)


def enter(stream: int) -> None:
    """
    Give the thread a current context where it has none: that of *stream*, or of the first device.

    Raises:
        LaunchError: The driver has none.
    """
    api, context = _api(), ctypes.c_void_p()
    _check(api, api.cuCtxGetCurrent(context), "the current context is unknown")
    if context.value:
        return
    if stream in _SPECIAL_STREAMS:
        _check(api, api.cuDevicePrimaryCtxRetain(context, 0), "device 0 cannot be used")
    else:
        _check(api, api.cuStreamGetCtx(stream, context), "the stream has no context")
    _check(api, api.cuCtxSetCurrent(context), "the context cannot be used")


def wait(stream: int, other: int) -> None:
    """
    Let *stream* wait for what is in the stream *other* now.

    Raises:
        LaunchError: The driver refuses one of them.
    """
    api, event = _api(), ctypes.c_void_p()
    _check(api, api.cuEventCreate(event, _DISABLE_TIMING), "an event could not be created")
    try:
        _check(api, api.cuEventRecord(event, other), "the stream of an array cannot be waited for")
        _check(api, api.cuStreamWaitEvent(stream, event, 0), "the stream cannot wait for that of an array")
    finally:
        # The driver keeps it until it is reached.
        api.cuEventDestroy_v2(event)


def launch(  # noqa: PLR0917 - the order is the driver's
    handle: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    stream: int,
    buffer: bytearray,
    offsets: Sequence[int],
    name: str,
    *,
    cooperative: bool = False,
) -> None:
    """
    Launch a kernel in the current context; the arguments are copied before this returns.

    Args:
        handle: The kernel.
        grid: The blocks of the grid.
        block: The threads of a block.
        shared: The dynamic shared memory of a block, in bytes.
        stream: The handle of the stream.
        buffer: The arguments.
        offsets: Where each argument begins in *buffer*.
        name: The kernel's name in messages.
        cooperative: Whether it synchronises its grid, all of which has to run at once.

    Raises:
        LaunchError: The driver refuses the launch.
    """
    api = _api()
    if shared:
        device = ctypes.c_int()
        _check(api, api.cuCtxGetDevice(device), "the current device is unknown")
        allowed = _dynamic_shared(handle, device.value)
        if shared > allowed:
            raise LaunchError(
                f"Kernel {name} cannot have {shared} bytes of dynamic shared memory; pass at most {allowed}."
            )
    memory = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    base = ctypes.addressof(memory)
    arguments = (ctypes.c_void_p * len(offsets))(*[base + offset for offset in offsets])
    if cooperative:
        answer = api.cuLaunchCooperativeKernel(handle, *grid, *block, shared, stream, arguments)
    else:
        answer = api.cuLaunchKernel(handle, *grid, *block, shared, stream, arguments, None)
    if answer:
        what = f"kernel {name} could not be launched on a grid of {grid} blocks of {block} threads"
        _check(api, answer, what, _exceeded(api, handle, grid, block))


def _exceeded(api: Any, handle: int, grid: tuple[int, int, int], block: tuple[int, int, int]) -> str:
    """Return the limits that a refused launch exceeds, and the cure; "" for none that the driver tells."""
    device, most = ctypes.c_int(), ctypes.c_int()
    if api.cuCtxGetDevice(device):
        return ""
    threads, exceeded = math.prod(block), []
    for (attribute, what), asked in zip(_LIMITS.items(), (threads, *block, *grid), strict=True):
        if not api.cuDeviceGetAttribute(most, attribute, device) and 0 < most.value < asked:
            exceeded.append(f"{most.value} {what}, not {asked}")
    if exceeded:
        return f"the device has at most {'; '.join(exceeded)}: pass less"
    answer = api.cuKernelGetAttribute(most, _MOST_THREADS, handle, device)
    if not answer and 0 < most.value < threads:
        return f"this kernel can have {most.value} threads of a block there, not {threads}: use a smaller one"
    return ""


@functools.cache
def _dynamic_shared(handle: int, device: int) -> int:
    """
    Return the dynamic shared memory that a kernel may have on *device*, and let it have that.

    Beyond 48 KiB, static memory included, the driver has to be asked; "cudaFuncSetAttribute" in the CUDA C++
    Programming Guide. It is asked for the most: what one launch needs would be too little for that of
    another thread.
    """
    api, most, static = _api(), ctypes.c_int(), ctypes.c_int()
    unknown = "the shared memory of the device is unknown"
    _check(api, api.cuDeviceGetAttribute(most, _OPT_IN_SHARED, device), unknown)
    _check(api, api.cuKernelGetAttribute(static, _STATIC_SHARED, handle, device), unknown)
    allowed = max(0, most.value - static.value)
    answer = api.cuKernelSetAttribute(_MAX_DYNAMIC_SHARED, allowed, handle, device)
    _check(api, answer, f"a kernel cannot have {allowed} bytes of dynamic shared memory")
    return allowed


@functools.cache
def _api() -> Any:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LaunchError(f"Kernels need a GPU and its driver: {error}. Install NVIDIA's driver.") from error
    for name, types in _PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise LaunchError(
                f"The driver has no {name}; install one of CUDA 12.0 or later (525.60 or later)."
            ) from error
        function.argtypes = types
    _check(library, library.cuInit(0), "the driver cannot be used")
    return library


def _words(api: Any, code: int) -> str:
    words = []
    for ask in (api.cuGetErrorName, api.cuGetErrorString):
        text = ctypes.c_char_p()
        if ask(code, text) == 0 and text.value:
            words.append(text.value.decode(errors="replace"))
    return ", ".join(words) or f"error {code}"


def _check(api: Any, code: int, what: str, cure: str = "") -> None:
    if code:
        cure = cure or _CURES.get(code, _EARLIER)
        raise LaunchError(f"{what[0].upper()}{what[1:]}: {_words(api, code)}; {cure}.")
