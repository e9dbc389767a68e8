"""Compile LLVM IR with libNVVM, and ask it what it compiles to. numba-cuda has a call of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._arch import Arch, dotted
from numba_ptxlink._formats.ptx import read_header
from numba_ptxlink._formats.ptx.isa import release_of
from numba_ptxlink._locks import in_tool
from numba_ptxlink.errors import ExportError

from . import build_id, packages

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
    ptx = compile_empty(arch)
    return None if ptx is None else read_header(ptx.decode()).version


@in_tool()
def compile_empty(arch: Arch, *options: str) -> bytes | None:
    """
    Return the PTX of an empty function, or what *options* ask for; None if libNVVM does not compile it.

    Raises:
        LinkError: libNVVM cannot be loaded.
    """
    nvvm = _binding()
    program = nvvm.create_program()
    try:
        nvvm.add_module_to_program(program, _EMPTY_MODULE.encode(), len(_EMPTY_MODULE), "empty")
        vector = [f"-arch={arch.compute}", *options]
        nvvm.compile_program(program, len(vector), vector)
        code = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, code)
    except nvvm.nvvmError:
        return None
    finally:
        nvvm.destroy_program(program)
    return bytes(code)


def too_new(linker: tuple[int, int]) -> tuple[str, str] | None:
    """
    Return what is wrong and what helps where libNVVM is of a later major version of CUDA than *linker*.

    So it is where the package of it is missing and a toolkit of the machine has one, or where packages of two
    major versions are installed. None where *linker* is not of this environment's own major version.

    Args:
        linker: nvJitLink's version.
    """
    try:
        emitted, path = emitted_isa(Arch(9, 0)), build_id.library_path("nvvm")
    except Exception:  # noqa: BLE001 - pathfinder raises a different type for each way of not finding it
        return None
    release = release_of(emitted) if emitted else None
    if release is None or not packages.major() == linker[0] < release[0]:
        return None
    what = f"NVVM is of CUDA {dotted(release)} ({path}), and nvJitLink of CUDA {dotted(linker)}"
    wanted, other = (packages.package("nvidia-nvvm", major) for major in (linker[0], release[0]))
    if packages.location("nvidia-nvvm", linker[0]) is None:
        return what, f"install {wanted}, as with `{packages.install(linker[0])}`"
    if packages.location("nvidia-nvvm", release[0]) is not None:
        return what, f"`pip uninstall {other}`, so that the library of {wanted} is found"
    return what, f"have the library of {wanted} found before that one, which a variable may name"


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
        "tool": ("NVVM", _identity()),
        "libdevice": libdevice,
        "flags": list(options),
        **{f"module {i}": module for i, module in enumerate(modules, start=1)},
    }
    key = cache.Key.of("nvvm", parts)
    return cache.cached(key, lambda: cache.Entry({}, _compile(modules, list(options), libdevice))).code


def _identity() -> str:
    try:
        return build_id.of_library("nvvm")
    except Exception as error:
        raise _missing(error) from error


@in_tool()
def _compile(modules: Sequence[str], options: list[str], libdevice: bytes) -> bytes:
    nvvm = _binding()
    program = nvvm.create_program()
    try:
        for number, module in enumerate(modules):
            text = module.encode()
            nvvm.add_module_to_program(program, text, len(text), f"module{number}")
        nvvm.lazy_add_module_to_program(program, libdevice, len(libdevice), "libdevice")
        try:
            nvvm.verify_program(program, len(options), options)
            nvvm.compile_program(program, len(options), options)
        except nvvm.nvvmError as error:
            log = bytearray(nvvm.get_program_log_size(program))
            nvvm.get_program_log(program, log)
            said = log.rstrip(b"\0").decode(errors="replace").strip()
            reason = said.partition("\n")[0] or str(error)
            raise ExportError(reason, flags=tuple(options), log=said) from error
        code = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, code)
    finally:
        nvvm.destroy_program(program)
    return bytes(code)


def _binding() -> Any:
    try:
        packages.check("nvvm")
        from cuda.bindings import nvvm

        nvvm.version()
    except Exception as error:
        raise _missing(error) from error
    return nvvm


def _missing(error: Exception) -> Exception:
    return packages.missing("libNVVM", "nvidia-nvvm", error)
