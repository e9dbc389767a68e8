"""
The table of everything that is replaced in numba-cuda; each module of wrappers ends with its rows.

The plugin applies it, the import hook waits for its modules, the documentation shows it, and a test compares
the source of each replaced function with the one that its wrapper was written for.
"""

from __future__ import annotations

from . import (
    code_library,
    compile_c,
    corrections,
    disk_cache,
    driverless,
    error_model,
    linker_class,
    nvvm_cache,
    results,
    unloaded_tools,
)

TABLE = (
    *linker_class.SUBSTITUTIONS,
    *driverless.DRIVERLESS,
    *driverless.SUBSTITUTIONS,
    *error_model.ERROR_MODEL,
    *code_library.SUBSTITUTIONS,
    *nvvm_cache.NVVM,
    *disk_cache.SUBSTITUTIONS,
    *corrections.CODE,
    *corrections.SUBSTITUTIONS,
    *results.RESULTS,
    *compile_c.SUBSTITUTIONS,
    *unloaded_tools.SUBSTITUTIONS,
)
"""The rows, by purpose."""

HOOKED = frozenset(row.module for row in TABLE)
"""The modules of numba-cuda whose import the plugin waits for."""
