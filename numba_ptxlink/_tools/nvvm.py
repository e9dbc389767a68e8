"""Compile LLVM IR with libNVVM, and ask it what it compiles to. numba-cuda has a call of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch
from numba_ptxlink._formats.ptx import read_header
from numba_ptxlink._formats.ptx.header import release_of
from numba_ptxlink.errors import ExportError

from . import find

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import PtxVersion

# The target and the version of the IR that the NVVM IR specification asks every module for.
_EMPTY_MODULE = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64\
:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
define void @f() { ret void }
!nvvmir.version = !{!0}
!0 = !{i32 2, i32 0}
"""


def emitted_isa(arch: Arch) -> PtxVersion | None:
    """
    Return the version of the PTX ISA that libNVVM emits for *arch*, None if it does not compile for it.

    Raises:
        LinkError: libNVVM cannot be loaded.
    """
    try:
        return read_header(_compile([_EMPTY_MODULE], [f"-arch={arch.compute}"], b"").decode()).version
    except ExportError:
        return None


def version() -> tuple[int, int] | None:
    """
    Return the CUDA release of libNVVM, as its PTX tells; None where that does not tell.

    Raises:
        LinkError: libNVVM cannot be loaded.
    """
    emitted = emitted_isa(Arch(9, 0))
    return release_of(emitted) if emitted else None


def compile_ir(modules: Sequence[str], options: Sequence[str], libdevice: bytes) -> bytes:
    """
    Compile the LLVM IR of one program to PTX or LTO-IR, or read it from the cache. Needs no driver.

    Args:
        modules: The program.
        options: libNVVM's options, such as "-arch=compute_90".
        libdevice: The bitcode of the mathematical functions that the program may call.

    Raises:
        ExportError: libNVVM refused the program. Carries its log.
        LinkError: libNVVM cannot be loaded.
    """
    parts: dict[str, Any] = {
        "package": cache.package_version(),
        "tool": ("NVVM", find.build_of("nvvm")),
        "libdevice": libdevice,
        "flags": list(options),
        **{f"module {i}": module for i, module in enumerate(modules, start=1)},
    }
    key = cache.Key.of("nvvm", parts)
    return cache.cached(key, lambda: cache.Entry({}, _compile(modules, list(options), libdevice))).code


def _compile(modules: Sequence[str], options: list[str], libdevice: bytes) -> bytes:
    nvvm = _binding()
    program = nvvm.create_program()
    try:
        for number, module in enumerate(modules):
            text = module.encode()
            nvvm.add_module_to_program(program, text, len(text), f"module{number}")
        if libdevice:
            nvvm.lazy_add_module_to_program(program, libdevice, len(libdevice), "libdevice")
        try:
            nvvm.verify_program(program, len(options), options)
            nvvm.compile_program(program, len(options), options)
        except nvvm.nvvmError as error:
            log = bytearray(nvvm.get_program_log_size(program))
            nvvm.get_program_log(program, log)
            said = log.rstrip(b"\0").decode(errors="replace").strip()
            reason = " ".join(said.split()) or str(error)
            raise ExportError(reason, flags=tuple(options), log=said) from error
        code = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, code)
    finally:
        nvvm.destroy_program(program)
    return bytes(code)


def _binding() -> Any:
    return find.binding("nvvm")
