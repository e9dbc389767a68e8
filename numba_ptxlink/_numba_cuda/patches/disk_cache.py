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


@PATCHES.around("numba.cuda.dispatcher", "CUDACache._index_key")
def _index_key(original: Any, self: Any, sig: Any, codegen: Any) -> Any:
    """Have all options, the contents of the link files and the tools in the key of a kernel on disk."""
    from numba_ptxlink._front_end import disk_keys

    noted, key = notes(self), original(self, sig, codegen)
    return disk_keys.completed(key, self, noted.options, noted.link, source_options)


@PATCHES.around("numba.cuda.codegen", "CUDACodeLibrary._reduce_states")
def _reduce_states(original: Any, self: Any) -> Any:
    """Keep kernels with link files, which `cache=True` of numba-cuda refuses."""
    from numba.cuda.memory_management.nrt import NRT_LIBRARY

    from numba_ptxlink._front_end import disk_keys

    files = self._linking_files - {NRT_LIBRARY}
    given = notes(self).link
    # Code that a function refers to by a global cannot be compared with the global of a later process.
    comparable = all(isinstance(file, str) or file in given for file in files)
    if not files or self._setup_functions or self._teardown_functions or not comparable:
        return original(self)
    stamps = disk_keys.stamps((file for file in files if isinstance(file, str)), source_options)
    linked, self._linking_files = self._linking_files, self._linking_files - files
    try:
        return {**original(self), "ptxlink_files": [*files], "ptxlink_stamps": stamps}
    finally:
        self._linking_files = linked


@PATCHES.replace("numba.cuda.codegen", "CUDACodeLibrary._rebuild")
def _rebuilding(original: Any) -> Any:
    """Give them their link files back; compile one again whose link files changed."""

    def _rebuild(cls: Any, ptxlink_files: Any = (), ptxlink_stamps: Any = (), **state: Any) -> Any:
        from numba_ptxlink._front_end import disk_keys

        if not disk_keys.are_fresh(dict(ptxlink_stamps), source_options):
            # To numba-cuda, a kernel that raises OSError is none, and it compiles another one.
            raise OSError(f"{', '.join(ptxlink_stamps)}: not what a kernel was linked with")
        library = original.__func__(cls, **state)
        # A device of another architecture links them again.
        library._linking_files = {*library._linking_files, *ptxlink_files}
        return library

    return classmethod(_rebuild)  # type: ignore[arg-type]
