"""Patch numba-cuda-mlir for programs whose CUDA device is the CPU."""

from __future__ import annotations

from typing import Any

from numba_ptxlink._cpu import device
from numba_ptxlink._front_end.patch import PatchTable

PATCHES = PatchTable("CPU device")


@PATCHES.around("numba_cuda_mlir.descriptor", "_raise_as_cuda_error")
def _raise_as_cuda_error(original: Any, error: Any) -> None:
    """Raise the fault of a kernel on the CPU, with its source line."""
    with device.raising_kernel_faults():
        original(error)


@PATCHES.replace("numba_cuda_mlir.descriptor", "MLIRDispatcher._disassemble_cubin")
def _disassemble_cubin(original: Any) -> Any:
    """Explain why a kernel of the CPU device has no SASS."""

    def disassemble(cres: Any) -> Any:
        device.check_machine_code()
        return original.__func__(cres)

    return staticmethod(disassemble)
