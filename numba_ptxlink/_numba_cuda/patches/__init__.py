"""
The table of all patches of numba-cuda, joined from the tables of the modules here.

The plugin applies each patch once the patched module of numba-cuda is imported. The documentation lists the
patches, and a test compares the source of each patched function with that for which its patch was written.
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
"""The patches, grouped by purpose."""
