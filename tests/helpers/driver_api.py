"""The CUDA driver API by ctypes, for programs that run on the CPU device."""

from __future__ import annotations

import ctypes
from typing import Any

CUDA = ctypes.CDLL("libcuda.so.1")
SIZE, POINTER = ctypes.c_size_t, ctypes.c_uint64
HEAD = ".version 7.5\n.target sm_75\n.address_size 64\n"
# Stores tid + n to a[tid].
FILL = (
    HEAD
    + """
.visible .global .align 4 .u32 counter = 3;
.const .align 4 .u32 fixed = 4;
.visible .entry fill(.param .u64 a, .param .u32 n)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [a];
    ld.param.u32 %r2, [n];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    add.u32 %r3, %r1, %r2;
    st.global.u32 [%rd3], %r3;
    ret;
}
.visible .entry spin() .maxntid 64
{
loop:
    bra loop;
}
"""
).encode()


class DriverError(Exception):
    """A function returned an error, whose code is the argument."""


def call(name: str, *args: Any) -> None:
    """Call a function of the driver; raise its error."""
    result = getattr(CUDA, name)(*args)
    if result:
        raise DriverError(result)


def ask(name: str, *args: Any, kind: Any = ctypes.c_void_p) -> Any:
    """Return the value that a function writes to its first argument."""
    value = kind()
    call(name, ctypes.byref(value), *args)
    return value.value


def error(name: str, *args: Any) -> int:
    """Return the code that a function returns."""
    return int(getattr(CUDA, name)(*args))


def text_of(code: int) -> str:
    """Return the driver's text for an error."""
    value = ctypes.c_char_p()
    call("cuGetErrorString", code, ctypes.byref(value))
    return (value.value or b"").decode()


def start(device: int = 0) -> ctypes.c_void_p:
    """Initialise the driver; make the primary context of a device the current one."""
    call("cuInit", 0)
    context = ctypes.c_void_p(ask("cuDevicePrimaryCtxRetain", device))
    call("cuCtxSetCurrent", context)
    return context


def allocate(size: int) -> int:
    """Return the address of new device memory."""
    return int(ask("cuMemAlloc_v2", SIZE(size), kind=POINTER))


def kernel(ptx: bytes = FILL, name: bytes = b"fill") -> ctypes.c_void_p:
    """Return a function of a new module."""
    module = ctypes.c_void_p(ask("cuModuleLoadData", ptx))
    return ctypes.c_void_p(ask("cuModuleGetFunction", module, name))


def launch(function: ctypes.c_void_p, *args: Any, block: int = 1, grid: int = 1, shared: int = 0) -> int:
    """Launch a kernel; return the code."""
    pointers = (ctypes.c_void_p * (len(args) + 1))(*map(ctypes.addressof, args))
    return error("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, None, pointers, None)


def read(address: int, count: int) -> list[int]:
    """Return 32-bit numbers in device memory."""
    target = (ctypes.c_uint32 * count)()
    call("cuMemcpyDtoH_v2", target, POINTER(address), SIZE(4 * count))
    return list(target)
