"""Patch numba-cuda for programs whose CUDA device is the CPU."""

from __future__ import annotations

from typing import Any

from numba_ptxlink._cpu import device
from numba_ptxlink._front_end.patch import PatchTable

PATCHES = PatchTable("CPU device")


@PATCHES.around("numba.cuda.codegen", "run_nvdisasm")
def _run_nvdisasm(original: Any, cubin: Any, flags: Any) -> Any:
    """Explain why a kernel of the CPU device has no SASS."""
    device.check_machine_code()
    return original(cubin, flags)
