"""
Let `@cuda.jit(cache=True)` store kernels with link files, and put every option into their keys.

numba-cuda stores the kernels of each Python function in files with an index. Here, the keys of the index are
extended by the inputs that they lack; see `_front_end.disk_keys`.
"""

from __future__ import annotations

from typing import Any

from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda.context import notes
from numba_ptxlink._numba_cuda.linker import source_options

PATCHES = PatchTable("cache")


@PATCHES.around("numba.cuda.dispatcher", "CUDADispatcher.enable_caching")
def _enable_caching(original: Any, self: Any) -> None:
    """Record the decorator's options and link files for `cache=True`."""
    original(self)
    options = dict(self.targetoptions)
    cache_notes = notes(self._cache)
    # Copy the list, since a compilation adds numba-cuda's own files to it.
    cache_notes.link = tuple(options.pop("link", None) or ())
    # Extensions are objects that prepare arguments of launches; the compiled code does not depend on them.
    cache_notes.options = {name: value for name, value in options.items() if name != "extensions"}


@PATCHES.around("numba.cuda.dispatcher", "CUDACache.load_overload")
def _load_overload(original: Any, self: Any, sig: Any, target_context: Any) -> Any:
    """Read a kernel's link files before it is compiled; restore the list of them in a stored kernel."""
    from numba_ptxlink._front_end import disk_keys

    cache_notes = notes(self)
    disk_keys.look_up(self, cache_notes.options, cache_notes.link, source_options)
    kernel = original(self, sig, target_context)
    if kernel is not None:
        # The stored kernel has a cubin for one architecture. To link it again for a device of another one, it
        # needs the files.
        library = kernel._codelibrary
        library._linking_files = {*library._linking_files, *cache_notes.link}
    return kernel


@PATCHES.around("numba.cuda.dispatcher", "CUDACache._index_key")
def _index_key(original: Any, self: Any, sig: Any, codegen: Any) -> Any:
    """Add all options, the contents of the link files and the tools to the key of a kernel on disk."""
    from numba_ptxlink._front_end import disk_keys

    return disk_keys.extend_key(original(self, sig, codegen), self)


@PATCHES.around("numba.cuda.dispatcher", "Cache.save_overload")
def _save_overload(original: Any, self: Any, sig: Any, kernel: Any) -> None:
    """
    Store a kernel only if its key describes all files that it has linked.

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
    # A kernel may link NRT_LIBRARY, Numba's memory manager, which is a file of numba-cuda itself.
    if not disk_keys.describes_kernel(self, linked - {NRT_LIBRARY}):
        return
    # For a kernel with any other link file, numba-cuda raises an error.
    library._linking_files = linked & {NRT_LIBRARY}
    try:
        original(self, sig, kernel)
    finally:
        library._linking_files = linked
