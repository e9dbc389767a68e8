"""
`@cuda.jit(cache=True)` for kernels with link files, and with every option in the key.

numba-cuda's per-function index of compiled kernels is kept; its keys gain the inputs that they lack.
"""

from __future__ import annotations

from typing import Any

from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda.context import notes
from numba_ptxlink._numba_cuda.linker import source_options

PATCHES = PatchTable("cache")


@PATCHES.around("numba.cuda.dispatcher", "CUDADispatcher.enable_caching")
def _enable_caching(original: Any, self: Any) -> None:
    """Let `cache=True` know the decorator's options and link files."""
    original(self)
    options = dict(self.targetoptions)
    noted = notes(self._cache)
    # Compiling adds files of numba-cuda's own to the list.
    noted.link = tuple(options.pop("link", None) or ())
    noted.options = {name: value for name, value in options.items() if name != "extensions"}


@PATCHES.around("numba.cuda.dispatcher", "CUDACache.load_overload")
def _load_overload(original: Any, self: Any, sig: Any, target_context: Any) -> Any:
    """Read the link files of a kernel before it is compiled; give a kernel on disk its link files back."""
    from numba_ptxlink._front_end import disk_keys

    noted = notes(self)
    disk_keys.look_up(self, noted.options, noted.link, source_options)
    kernel = original(self, sig, target_context)
    if kernel is not None:
        # A device of another architecture links them again.
        library = kernel._codelibrary
        library._linking_files = {*library._linking_files, *noted.link}
    return kernel


@PATCHES.around("numba.cuda.dispatcher", "CUDACache._index_key")
def _index_key(original: Any, self: Any, sig: Any, codegen: Any) -> Any:
    """Have all options, the contents of the link files and the tools in the key of a kernel on disk."""
    from numba_ptxlink._front_end import disk_keys

    return disk_keys.extended(original(self, sig, codegen), self)


@PATCHES.around("numba.cuda.dispatcher", "Cache.save_overload")
def _save_overload(original: Any, self: Any, sig: Any, kernel: Any) -> None:
    """
    Keep a kernel whose key describes all that it has linked, and no other one.

    numba-cuda refuses `cache=True` for all kernels with link files.
    """
    from numba.cuda.dispatcher import CUDACache
    from numba.cuda.memory_management.nrt import NRT_LIBRARY

    from numba_ptxlink._front_end import disk_keys

    if not isinstance(self, CUDACache):
        original(self, sig, kernel)
        return
    library = kernel._codelibrary
    linked = library._linking_files
    if not disk_keys.describes(self, linked - {NRT_LIBRARY}):
        return
    library._linking_files = linked & {NRT_LIBRARY}
    try:
        original(self, sig, kernel)
    finally:
        library._linking_files = linked
