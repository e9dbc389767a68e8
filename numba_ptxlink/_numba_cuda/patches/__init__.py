"""
The table of all patches of numba-cuda, joined from those of each module.

The plugin applies it after imports of its modules, the documentation shows it, and a test compares the source
of each patched function with the one that the patch was written for.
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
"""The patches, by purpose."""
