"""
The table of everything that is replaced in numba-cuda; each module of wrappers has its own.

The plugin applies it, the import hook waits for its modules, the documentation shows it, and a test compares
the source of each replaced function with the one that its wrapper was written for.
"""

from __future__ import annotations

from numba_ptxlink._numba_cuda import linker

from . import c_abi, cpu_device, disk_cache, driverless, first_kernel, nvvm_cache

TABLE = (
    *linker.PATCHES,
    *driverless.DRIVERLESS,
    *c_abi.C_ABI,
    *c_abi.PATCHES,
    *first_kernel.PATCHES,
    *nvvm_cache.PATCHES,
    *disk_cache.PATCHES,
    *cpu_device.PATCHES,
)
"""The rows, by purpose."""
