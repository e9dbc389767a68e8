"""
Let `@cuda.jit(cache=True)` store kernels with link files, and put every option into their keys.

numba-cuda-mlir stores the kernels of each Python function in files with an index. Here, the keys of the index
are extended by the inputs that they lack; see `_front_end.disk_keys`.
"""

from __future__ import annotations

import inspect
from typing import Any

from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda_mlir.context import override, requested_cc
from numba_ptxlink._numba_cuda_mlir.linker import source_options

PATCHES = PatchTable("cache")
_CACHE = "numba_cuda_mlir.numba_cuda.core.caching"


@PATCHES.around(_CACHE, "Cache.load_overload")
def _load_overload(original: Any, self: Any, sig: Any, target_context: Any) -> Any:
    """Read the link files of a kernel before it is compiled."""
    from numba_cuda_mlir.caching import MLIRCache

    from numba_ptxlink._front_end import disk_keys

    if isinstance(self, MLIRCache):
        # Extensions convert arguments at launch, and are pickled with the kernel: the code does not depend on
        # them. The value of an option may be a function of numba-cuda-mlir. The index contains the release of
        # numba-cuda-mlir, so the function's name identifies it.
        options = {
            name: value.__qualname__ if inspect.isfunction(value) else value
            for name, value in self._targetoptions.items()
            if name not in ("link", "cache", "extensions")
        }
        disk_keys.look_up(self, options, self._targetoptions.get("link") or (), source_options)
    return original(self, sig, target_context)


@PATCHES.around("numba_cuda_mlir.caching", "MLIRCache._index_key")
def _index_key(original: Any, self: Any, sig: Any, codegen: Any) -> Any:
    """Add all options, the contents of the decorator's link files and the tools to the key on disk."""
    from numba_ptxlink._front_end import disk_keys

    with override(cc=requested_cc(self._targetoptions)):
        return disk_keys.extend_key(original(self, sig, codegen), self)


@PATCHES.around(_CACHE, "Cache.save_overload")
def _save_overload(original: Any, self: Any, sig: Any, cres: Any) -> None:
    """Store a kernel only if its key describes all files that it has linked."""
    from numba_cuda_mlir.caching import MLIRCache

    if not isinstance(self, MLIRCache) or _is_described(self, cres.metadata):
        original(self, sig, cres)


def _is_described(cache: Any, metadata: Any) -> bool:
    """Return whether key and entry on disk would describe the kernel with *metadata* completely."""
    from numba_ptxlink._front_end import disk_keys

    linked, linker = metadata["linked_external_link_items"], metadata["linker"]
    # LTO-IR that the implementation of an `@overload` links is in the linker, but not in the list, so that no
    # key describes it.
    is_complete = len(linked) == len(linker._object_codes) + len(linker._pending_cu)
    # The entry on disk does not record that a kernel needs a cooperative launch.
    return is_complete and not metadata.get("use_cooperative") and disk_keys.describes_kernel(cache, linked)


@PATCHES.around("numba_cuda_mlir.caching", "MLIRCacheImpl.check_cachable")
def _check_cachable(_original: Any, _self: Any, _cres: Any) -> bool:
    """Store kernels with link files, which `cache=True` of numba-cuda-mlir refuses."""
    return True
