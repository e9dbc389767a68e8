"""Ask libNVVM what it compiles to; numba-cuda calls it for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats.ptx import read_header
from numba_ptxlink._locks import in_tool

from . import packages

if TYPE_CHECKING:
    from numba_ptxlink._arch import Arch, PtxVersion

# The target and the version of the IR that the NVVM IR specification asks every module for.
_EMPTY_MODULE = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64\
:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
define void @f() { ret void }
!nvvmir.version = !{!0}
!0 = !{i32 2, i32 0}
"""


@in_tool()
def emitted_isa(arch: Arch) -> PtxVersion | None:
    """
    Return the version of the PTX ISA that libNVVM emits for *arch*, None if it does not compile for it.

    Raises:
        LinkError: libNVVM cannot be loaded.
    """
    try:
        from cuda.bindings import nvvm

        program = nvvm.create_program()
    except Exception as error:
        name = "nvidia-nvvm" if packages.major() > 12 else "nvidia-cuda-nvcc"
        raise packages.missing("libNVVM", name, error) from error
    try:
        nvvm.add_module_to_program(program, _EMPTY_MODULE.encode(), len(_EMPTY_MODULE), "empty")
        nvvm.compile_program(program, 1, [f"-arch={arch.compute}"])
        ptx = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, ptx)
    except nvvm.nvvmError:
        return None
    finally:
        nvvm.destroy_program(program)
    return read_header(ptx.decode()).version
