"""
The table of what is replaced in numba-cuda-mlir; each module of wrappers ends with its rows.

The plugin applies it, the import hook waits for its modules, the documentation shows it, and a test compares
the source of each replaced function with the one that its wrapper was written for.
"""

from __future__ import annotations

from . import back_end, calls, compile_c, core_linker, disk_cache, driverless, lowering, results

TABLE = (
    *core_linker.SUBSTITUTIONS,
    *driverless.SUBSTITUTIONS,
    *back_end.BACK_END,
    *disk_cache.SUBSTITUTIONS,
    *lowering.LOWERING,
    *calls.EXTERNS,
    *compile_c.COMPILE,
    *results.RESULTS,
)
"""The rows, by purpose."""
