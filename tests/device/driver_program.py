"""Calls of the driver API on two CPU devices; prints a result for each function here, as JSON."""

# ruff: noqa: D103, T201 - a program, whose functions the test describes

from __future__ import annotations

import ctypes
import itertools
import json
import mmap
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from driver_api import (
    CUDA,
    FILL,
    HEAD,
    POINTER,
    SIZE,
    DriverError,
    allocate,
    ask,
    call,
    error,
    kernel,
    launch,
    read,
    start,
    text_of,
)

CONTEXT = start()
NUMBER = ctypes.c_uint32


def reset() -> None:
    """Reset the first device: an error of a kernel stays until then."""
    call("cuDevicePrimaryCtxReset_v2", 0)
    call("cuCtxSetCurrent", ctypes.c_void_p(ask("cuDevicePrimaryCtxRetain", 0)))


def a_launch() -> list[int]:
    address = allocate(16)
    assert launch(kernel(), POINTER(address), NUMBER(5), block=4) == 0
    return read(address, 4)


def an_overrun() -> list[Any]:
    address = allocate(16)
    code = launch(kernel(), POINTER(address), NUMBER(5), block=5)
    sticky = error("cuCtxSynchronize"), error("cuMemFree_v2", POINTER(address))
    text = text_of(code)
    reset()
    named = "thread (4, 0, 0)" in text, "0 bytes past the end of" in text
    return [code, sticky, error("cuCtxSynchronize"), *named]


STALE = ": parameter 1 points to memory that is freed, or that is not the device's; "


def use_after_free() -> list[Any]:
    function, address = kernel(), allocate(16)
    assert launch(function, POINTER(address), NUMBER(5), block=4) == 0
    call("cuMemFree_v2", POINTER(address))
    later = allocate(16)
    code = launch(function, POINTER(address), NUMBER(5), block=4)
    is_named = STALE in text_of(code)
    reset()
    copied = error("cuMemcpyDtoH_v2", (NUMBER * 4)(), POINTER(address), SIZE(16))
    return [later != address, code, is_named, copied]


def memory_of_the_host() -> list[Any]:
    memory = (NUMBER * 4)()
    address = ctypes.addressof(memory)
    code = launch(kernel(), POINTER(address), NUMBER(5), block=4)
    is_named = STALE in text_of(code)
    reset()
    call("cuMemHostRegister_v2", POINTER(address), SIZE(16), 0)
    registered = launch(kernel(), POINTER(address), NUMBER(5), block=4)
    call("cuMemHostUnregister", POINTER(address))
    return [code, is_named, registered, *memory]


def pinned_and_managed_memory() -> list[Any]:
    pinned = ask("cuMemHostAlloc", SIZE(16), 0)
    managed = ask("cuMemAllocManaged", SIZE(16), 1, kind=POINTER)
    codes = [launch(kernel(), POINTER(address), NUMBER(7), block=4) for address in (pinned, managed)]
    contents = [list((NUMBER * 4).from_address(address)) for address in (pinned, managed)]
    kinds = [_attribute(2, address, ctypes.c_uint) for address in (pinned, managed)]
    is_managed = [_attribute(8, address, ctypes.c_int) for address in (pinned, managed)]
    return [codes, contents, kinds, is_managed, error("cuMemFree_v2", POINTER(pinned))]


def _attribute(number: int, address: int, kind: Any) -> int:
    return int(ask("cuPointerGetAttribute", number, POINTER(address), kind=kind))


def pools_of_the_host() -> list[Any]:
    # CUmemPoolProps begins with the type of memory (1 pinned, 2 managed), no handles, and a location (2 is
    # the host, 0 none) with its number. CUmemLocation is the location alone.
    results: list[Any] = []
    for kind, location_type in ((1, 2), (2, 0)):
        location = (ctypes.c_int * 2)(location_type, -1)
        properties = (ctypes.c_int * 32)(kind, 0, *location)
        current = ctypes.c_void_p(ask("cuMemGetMemPool", location, kind))
        for pool in (ctypes.c_void_p(ask("cuMemPoolCreate", properties)), current):
            address = ask("cuMemAllocFromPoolAsync", SIZE(16), pool, None, kind=POINTER)
            code = launch(kernel(), POINTER(address), NUMBER(7), block=4)
            kinds = [_attribute(2, address, ctypes.c_uint), _attribute(8, address, ctypes.c_int)]
            results.append([code, (NUMBER * 4).from_address(address)[3], *kinds])
            call("cuMemFreeAsync", POINTER(address), None)
        results.append(error("cuMemPoolDestroy", current))
    # The largest size of a pool stands behind the location and a pointer.
    properties = (ctypes.c_int * 32)(1, 0, 1, 0, 0, 0, 1 << 21)
    pool = ctypes.c_void_p(ask("cuMemPoolCreate", properties))
    address = ctypes.byref(POINTER())
    return results + [
        error("cuMemAllocFromPoolAsync", address, SIZE(size), pool, None) for size in (1 << 22, 1 << 21, 1)
    ]


def pools() -> list[int]:
    pool = ctypes.c_void_p(ask("cuDeviceGetDefaultMemPool", 0))
    used = ctypes.c_uint64()
    address = ask("cuMemAllocAsync", SIZE(100), None, kind=POINTER)
    call("cuMemPoolGetAttribute", pool, 7, ctypes.byref(used))
    before = used.value
    call("cuMemFreeAsync", POINTER(address), None)
    call("cuMemPoolGetAttribute", pool, 7, ctypes.byref(used))
    return [before, used.value]


def out_of_memory() -> list[int]:
    total = ask("cuDeviceTotalMem_v2", 0, kind=SIZE)
    free, _ = SIZE(), SIZE()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(_))
    half = allocate(total // 2)
    code = error("cuMemAlloc_v2", ctypes.byref(POINTER()), SIZE(total // 2 + 1024))
    call("cuMemFree_v2", POINTER(half))
    empty_code = error("cuMemAlloc_v2", ctypes.byref(POINTER()), SIZE(0))
    largest_code = error("cuMemHostAlloc", ctypes.byref(POINTER()), SIZE(2**64 - 1), 0)
    return [code, free.value <= total, empty_code, largest_code]


def many_allocations() -> bool:
    addresses = [allocate(1 + number % 3000) for number in range(10_000)]
    has_gaps = all(b - a >= 512 for a, b in itertools.pairwise(sorted(addresses)))
    for address in addresses:
        call("cuMemFree_v2", POINTER(address))
    return has_gaps and len(set(addresses)) == len(addresses)


def copies() -> list[Any]:
    address, source = allocate(48), (NUMBER * 12)(*range(12))
    call("cuMemcpyHtoD_v2", POINTER(address), source, SIZE(48))
    beyond = error("cuMemcpyHtoD_v2", POINTER(address), source, SIZE(52))
    call("cuMemsetD32_v2", POINTER(address + 4), NUMBER(9), SIZE(2))
    return [read(address, 4), beyond, error("cuMemsetD32_v2", POINTER(address + 2), NUMBER(9), SIZE(2))]


def variables() -> list[Any]:
    module = ctypes.c_void_p(ask("cuModuleLoadData", FILL))
    address, size = POINTER(), SIZE()
    call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), module, b"counter")
    values = read(address.value, 1)
    call("cuModuleUnload", module)
    missing = error("cuModuleGetGlobal_v2", ctypes.byref(address), None, module, b"counter")
    return [values, size.value, missing, error("cuMemcpyDtoH_v2", (NUMBER * 1)(), address, SIZE(4))]


def many_modules() -> bool:
    sizes, address = [], POINTER(allocate(16))
    for number in range(400):
        module = ctypes.c_void_p(ask("cuModuleLoadData", FILL))
        function = ctypes.c_void_p(ask("cuModuleGetFunction", module, b"fill"))
        assert launch(function, address, NUMBER(5), block=4) == 0
        call("cuModuleUnload", module)
        if number in {100, 399}:
            sizes.append(int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE)
    return sizes[1] - sizes[0] < 20 << 20


def configurations() -> list[int]:
    fill, spin = kernel(), kernel(name=b"spin")
    arguments = POINTER(allocate(4096)), NUMBER(0)
    return [
        launch(fill, *arguments, block=1025),
        launch(fill, *arguments, grid=0),
        launch(spin, block=65),
        launch(fill, *arguments, shared=49153),
        launch(fill, *arguments, shared=49152),
        error("cuFuncSetAttribute", fill, 8, 65536),
        launch(fill, *arguments, shared=65536),
        error("cuFuncSetAttribute", fill, 8, 65537),
    ]


def images() -> list[Any]:
    log = ctypes.create_string_buffer(1000)
    options = (ctypes.c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER and its size
    values = (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    module, results = ctypes.c_void_p(), []
    for image in (
        b"\x7fELF" + bytes(60),
        FILL.replace(b"sm_75", b"sm_90"),
        HEAD.encode() + b".entry k(.param",
    ):
        code = error("cuModuleLoadDataEx", ctypes.byref(module), image, 2, options, values)
        results.append((code, log.value.decode().partition(";")[0][:60]))
    return results


def linking() -> list[Any]:
    state = ctypes.c_void_p()
    call("cuLinkCreate_v2", 0, None, None, ctypes.byref(state))
    caller = (
        HEAD
        + """
.extern .func (.param .b32 r) seven();
.visible .entry store(.param .u64 a) { .reg .b64 %rd1; .reg .b32 %r1;
ld.param.u64 %rd1, [a];
{ .param .b32 r; call.uni (r), seven, (); ld.param.b32 %r1, [r]; }
st.global.u32 [%rd1], %r1; ret; }
"""
    )
    callee = HEAD + ".visible .func (.param .b32 r) seven() { st.param.b32 [r], 7; ret; }"
    for name, text in ((b"a", caller), (b"b", callee)):
        call("cuLinkAddData_v2", state, 1, text.encode(), SIZE(len(text)), name, 0, None, None)
    image, size, address = ctypes.c_void_p(), SIZE(), allocate(4)
    call("cuLinkComplete", state, ctypes.byref(image), ctypes.byref(size))
    code = launch(kernel(image, b"store"), POINTER(address))
    return [code, read(address, 1), error("cuLinkDestroy", state)]


def shared_memory_limit() -> list[Any]:
    text = HEAD + ".shared .b8 a[313600];\n.visible .entry k() { .reg .b64 %rd1; mov.u64 %rd1, a; ret; }"
    return [error("cuModuleLoadData", ctypes.byref(ctypes.c_void_p()), text.encode())]


def peers() -> list[int]:
    second = ctypes.c_void_p(ask("cuDevicePrimaryCtxRetain", 1))
    call("cuCtxPushCurrent_v2", second)
    address = allocate(16)
    device = ask("cuCtxGetDevice", kind=ctypes.c_int)
    call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    refused = launch(kernel(), POINTER(address), NUMBER(1), block=4)
    reset()
    call("cuCtxEnablePeerAccess", second, 0)
    allowed = launch(kernel(), POINTER(address), NUMBER(1), block=4)
    again = error("cuCtxEnablePeerAccess", second, 0)
    return [device, refused, allowed, again, _attribute(9, address, ctypes.c_int), *read(address, 2)]


def contexts() -> list[int]:
    context = ctypes.c_void_p(ask("cuCtxCreate_v2", 0, 1))
    address = allocate(16)
    call("cuCtxDestroy_v2", context)
    return [
        error("cuCtxPushCurrent_v2", context),
        error("cuPointerGetAttribute", ctypes.byref(SIZE()), 12, POINTER(address)),
        ask("cuCtxGetDevice", kind=ctypes.c_int),
    ]


def threads() -> list[bool]:
    function, results = kernel(), [False] * 8

    def work(number: int) -> None:
        call("cuCtxSetCurrent", CONTEXT)
        address = POINTER(allocate(256))
        codes = [launch(function, address, NUMBER(number), block=64) for _ in range(50)]
        results[number] = not any(codes) and read(address.value, 64) == [*range(number, number + 64)]

    workers = [threading.Thread(target=work, args=[number]) for number in range(len(results))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


def interrupt() -> list[Any]:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    before, function = time.monotonic(), kernel(name=b"spin")
    threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
    try:
        launch(function)
    except KeyboardInterrupt:
        return [time.monotonic() - before < 1.5, error("cuCtxSynchronize")]
    return [False]


def events() -> list[Any]:
    stream = ctypes.c_void_p(ask("cuStreamCreate", 1))
    start, end = (ctypes.c_void_p(ask("cuEventCreate", 0)) for _ in range(2))
    milliseconds = ctypes.c_float(-1)
    early = error("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
    for event in (start, end):
        call("cuEventRecord", event, stream)
    call("cuStreamWaitEvent", stream, end, 0)
    call("cuEventElapsedTime", ctypes.byref(milliseconds), start, end)
    return [
        early,
        milliseconds.value >= 0,
        *(error("cuStreamQuery", stream), error("cuStreamDestroy_v2", stream)),
        # Uses of destroyed handles are errors.
        *(error("cuStreamQuery", stream), error("cuStreamDestroy_v2", stream)),
        *(error("cuEventDestroy_v2", end), error("cuEventQuery", end), error("cuEventDestroy_v2", end)),
    ]


def entry_points() -> list[bool]:
    def address(name: bytes, version: int) -> int | None:
        pointer = ctypes.c_void_p()
        CUDA.cuGetProcAddress_v2(name, ctypes.byref(pointer), version, ctypes.c_uint64(0), None)
        return pointer.value

    def symbol(name: str) -> int | None:
        return ctypes.cast(getattr(CUDA, name), ctypes.c_void_p).value

    return [
        address(b"cuMemAlloc", 13000) == symbol("cuMemAlloc_v2"),
        address(b"cuCtxCreate", 12000) == symbol("cuCtxCreate_v3"),
        address(b"cuCtxCreate", 13000) == symbol("cuCtxCreate_v4"),
        address(b"cuCtxSynchronize", 12000) == symbol("cuCtxSynchronize"),
        address(b"cuLaunchKernel", 4000) == symbol("cuLaunchKernel"),
        address(b"cuNothing", 13000) is None,
    ]


def not_supported() -> list[int]:
    return [error("cuGraphCreate", ctypes.byref(ctypes.c_void_p()), 0) for _ in range(2)]


def a_forked_child() -> list[int]:
    child = os.fork()
    if not child:
        os._exit(error("cuInit", 0) * 10 + error("cuCtxSynchronize"))
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), error("cuCtxSynchronize")]


def attributes() -> list[Any]:
    name = ctypes.create_string_buffer(100)
    call("cuDeviceGetName", name, 100, 0)
    numbers = [ask("cuDeviceGetAttribute", number, 0, kind=ctypes.c_int) for number in (75, 76, 97, 39)]
    many_registers = kernel(FILL.replace(b"%r<4>", b"%r<400>"))
    blocks = [
        ask("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, SIZE(0), kind=ctypes.c_int)
        for function, threads in ((kernel(), 256), (many_registers, 1024))
    ]
    return [name.value.decode(), numbers, *blocks]


if __name__ == "__main__":
    results: dict[str, Any] = {}
    for function_name, function in [*globals().items()]:
        if getattr(function, "__module__", "") == "__main__" and function_name not in ("reset", "_attribute"):
            try:
                results[function_name] = function()
            except DriverError as failure:
                results[function_name] = f"error {failure}"
    print(json.dumps(results))
