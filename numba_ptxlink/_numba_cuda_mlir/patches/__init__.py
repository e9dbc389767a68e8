"""
The table of what is replaced in numba-cuda-mlir; each module of wrappers ends with its rows.

The plugin applies it, the import hook waits for its modules, the documentation shows it, and a test compares
the source of each replaced function with the one that its wrapper was written for.
"""

from __future__ import annotations

from numba_ptxlink._numba_cuda_mlir import linker

from . import c_abi, disk_cache, driverless, first_kernel

TABLE = (
    *linker.SUBSTITUTIONS,
    *driverless.SUBSTITUTIONS,
    *first_kernel.SUBSTITUTIONS,
    *disk_cache.SUBSTITUTIONS,
    *c_abi.C_ABI,
    *c_abi.SUBSTITUTIONS,
)
"""The rows, by purpose."""
