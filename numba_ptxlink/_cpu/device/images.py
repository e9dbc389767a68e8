"""
Read the PTX of an image, text or a fat binary, at the address that cuModuleLoadData gets.

Messages of faults name arguments of Python functions. For each kernel parameter, a comment in the PTX has the
name of the argument.
"""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import fatbin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numba_ptxlink._arch import Arch

_ARGUMENTS = re.compile(r"^// numba_ptxlink: arguments of (\S+): (.*)$", re.MULTILINE)
_ENTRY = re.compile(rb"\.entry\s+([\w$]+)")
_ELF_MAGIC = 0x464C457F
_WRAPPED_ADDRESS = 8  # the offset of the content's address in a wrapper
_CURE = "build it with PTX, such as nvcc -gencode arch=compute_75,code=compute_75"


class NoPtxError(Exception):
    """An image has no PTX that the device can run. The message has the cause and the cure."""


def ptx_at(address: int, arch: Arch) -> str:
    """
    Return the PTX of the image at *address*: of a fat binary the newest for *arch*.

    Raises:
        NoPtxError: The image has no such PTX.
        LinkError: A fat binary is damaged, or cannot be decompressed.
    """
    magic = ctypes.c_uint32.from_address(address).value
    if magic == fatbin.WRAPPER_MAGIC:
        address = ctypes.c_uint64.from_address(address + _WRAPPED_ADDRESS).value
        magic = ctypes.c_uint32.from_address(address).value
    if magic == _ELF_MAGIC:
        raise NoPtxError(
            f"The image is machine code of a GPU, which the CPU device cannot run; {_CURE}, or link "
            "LTO-IR to PTX (nvJitLink -lto -ptx)."
        )
    if magic == fatbin.MAGIC:
        *_, head, size = fatbin.HEADER.unpack(ctypes.string_at(address, fatbin.HEADER.size))
        members = fatbin.ptx_members(ctypes.string_at(address, head + size))
        if not members:
            raise NoPtxError(f"The fat binary contains only machine code of GPUs; {_CURE}.")
        usable = [member for member in members if member.arch <= arch.number]
        if not usable:
            oldest = min(member.arch for member in members)
            raise NoPtxError(_too_new("The fat binary", oldest, arch))
        return max(usable)[1].decode(errors="surrogateescape")
    text = ctypes.string_at(address).decode(errors="surrogateescape")
    target = re.search(r"^\s*\.target\s+sm_(\d+)", text, re.MULTILINE)
    if target and int(target[1]) > arch.number:
        raise NoPtxError(_too_new("The PTX", int(target[1]), arch))
    return text


def kernel_names(ptx: bytes) -> list[str]:
    """Return the names of the kernels in PTX."""
    return [name.decode() for name in _ENTRY.findall(ptx)]


def argument_comment(kernel: str, names: Iterable[str]) -> bytes:
    """Return a PTX comment with the argument name of each parameter of a kernel."""
    return f"\n// numba_ptxlink: arguments of {kernel}: {' '.join(name or '-' for name in names)}".encode()


def argument_names(text: str) -> Mapping[str, list[str]]:
    """Return the argument names in the comments of `argument_comment`, by kernel."""
    return {kernel: names.split() for kernel, names in _ARGUMENTS.findall(text)}


def _too_new(image: str, number: int, arch: Arch) -> str:
    return (
        f"{image} is for compute_{number}, and the CPU device is {arch.sm}; set "
        f"NUMBA_PTXLINK_CPU_ARCH={number // 10}.{number % 10} (numba-ptxlink cpu --arch)."
    )
