"""
Read the PTX of the image that a program passes to cuModuleLoadData: PTX itself, or a fat binary.

Messages of faults name the arguments of Python functions. For this, `_numba_cuda/linker.py` adds a comment to
the PTX for each kernel, with the name of the argument that each parameter belongs to.
"""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import fatbin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numba_ptxlink._arch import Arch

# The comment of `argument_comment`: "// numba_ptxlink: arguments of saxpy: x y n".
_ARGUMENTS = re.compile(r"^// numba_ptxlink: arguments of (\S+): (.*)$", re.MULTILINE)
_ENTRY = re.compile(rb"\.entry\s+([\w$]+)")
_ELF_MAGIC = 0x464C457F  # "\x7fELF", as a little-endian number.
# nvcc wraps a fat binary in a structure, which has the address of the fat binary at this offset in bytes.
_CONTENT_ADDRESS_OFFSET = 8
_CURE = "build it with PTX, such as nvcc -gencode arch=compute_75,code=compute_75"


class NoPtxError(Exception):
    """An image has no PTX that the device can run. The message has the cause and the cure."""


def ptx_at(address: int, arch: Arch) -> str:
    """
    Return the PTX of an image; of a fat binary, the newest PTX that the device can run.

    Args:
        address: The address of the image.
        arch: The architecture of the device.

    Raises:
        NoPtxError: The image has no such PTX.
        LinkError: A fat binary is damaged, or cannot be decompressed.
    """
    magic = ctypes.c_uint32.from_address(address).value
    if magic == fatbin.WRAPPER_MAGIC:
        address = ctypes.c_uint64.from_address(address + _CONTENT_ADDRESS_OFFSET).value
        magic = ctypes.c_uint32.from_address(address).value
    # A cubin is an ELF file.
    if magic == _ELF_MAGIC:
        raise NoPtxError(
            f"The image is machine code of a GPU, which the CPU device cannot run; {_CURE}, or link "
            "LTO-IR to PTX (nvJitLink -lto -ptx)."
        )
    if magic == fatbin.MAGIC:
        *_, header_size, content_size = fatbin.HEADER.unpack(ctypes.string_at(address, fatbin.HEADER.size))
        members = fatbin.ptx_members(ctypes.string_at(address, header_size + content_size))
        if not members:
            raise NoPtxError(f"The fat binary contains only machine code of GPUs; {_CURE}.")
        usable = [member for member in members if member.arch <= arch.number]
        if not usable:
            oldest = min(member.arch for member in members)
            raise NoPtxError(_too_new_message("The fat binary", oldest, arch))
        newest = max(usable)  # Members are compared by their architectures first.
        return newest.ptx.decode(errors="surrogateescape")
    text = ctypes.string_at(address).decode(errors="surrogateescape")
    target = re.search(r"^\s*\.target\s+sm_(\d+)", text, re.MULTILINE)
    if target and int(target[1]) > arch.number:
        raise NoPtxError(_too_new_message("The PTX", int(target[1]), arch))
    return text


def kernel_names(ptx: bytes) -> list[str]:
    """Return the names of the kernels in PTX."""
    return [name.decode() for name in _ENTRY.findall(ptx)]


def argument_comment(kernel: str, names: Iterable[str]) -> bytes:
    """Return a PTX comment with the argument name of each parameter of a kernel, "-" for an empty name."""
    return f"\n// numba_ptxlink: arguments of {kernel}: {' '.join(name or '-' for name in names)}".encode()


def argument_names(text: str) -> Mapping[str, list[str]]:
    """Return the argument names in the comments of `argument_comment`, by kernel."""
    return {kernel: names.split() for kernel, names in _ARGUMENTS.findall(text)}


def _too_new_message(image: str, ptx_arch: int, arch: Arch) -> str:
    """
    Return the error for PTX that needs a later architecture than that of the device.

    Args:
        image: "The PTX" or "The fat binary".
        ptx_arch: The number of the PTX's architecture: 75 for sm_75.
        arch: The architecture of the device.
    """
    return (
        f"{image} is for compute_{ptx_arch}, and the CPU device is {arch.sm}; set "
        f"NUMBA_PTXLINK_CPU_ARCH={ptx_arch // 10}.{ptx_arch % 10} (numba-ptxlink cpu --arch)."
    )
