"""
`@cuda.jit(cache=True)` for kernels with link files, and with every option in the key.

numba-cuda-mlir's per-function index of compiled kernels is kept; its keys gain the inputs that they lack.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda_mlir.context import entered, requested_cc
from numba_ptxlink._numba_cuda_mlir.linker import source_options

PATCHES = PatchTable("cache")


@PATCHES.around("numba_cuda_mlir.caching", "MLIRCache._index_key")
def _index_key(original: Any, self: Any, sig: Any, codegen: Any) -> Any:
    """Have all options, the contents of the decorator's link files and the tools in the key on disk."""
    from numba_ptxlink._front_end import disk_keys

    with entered(cc=requested_cc(self._targetoptions)):
        key = original(self, sig, codegen)
    # Extensions convert arguments at launch, and are pickled with the kernel. numba-cuda-mlir's own functions
    # are of its release, which is in the index.
    options = {
        name: value.__qualname__ if inspect.isfunction(value) else value
        for name, value in self._targetoptions.items()
        if name not in ("link", "cache", "extensions")
    }
    given = self._targetoptions.get("link") or ()
    return disk_keys.completed(key, self, options, given, source_options)


@PATCHES.around("numba_cuda_mlir.caching", "MLIRCacheImpl.check_cachable")
def _check_cachable(_original: Any, _self: Any, cres: Any) -> bool:
    """Keep kernels with link files, which `cache=True` of numba-cuda-mlir refuses."""
    # What the original keeps says nothing of a cooperative launch.
    given = cres.metadata.get("targetoptions", {}).get("link") or ()
    return not cres.metadata.get("use_cooperative") and not any(
        getattr(item, "setup_callback", None)
        or getattr(item, "teardown_callback", None)
        # Code in memory that a function declares cannot be compared with that of a later process.
        or not (_is_path(item) or item in given)
        for item in _linked(cres)
    )


@PATCHES.around("numba_cuda_mlir.caching", "MLIRCacheImpl.reduce")
def _reduce(original: Any, self: Any, cres: Any) -> Any:
    """Note the contents of the files that a kernel has linked, whoever asked for them."""
    from numba_ptxlink._front_end import disk_keys

    files = (os.fspath(item) for item in _linked(cres) if _is_path(item))
    return {**original(self, cres), "ptxlink_stamps": disk_keys.stamps(files, source_options)}


@PATCHES.around("numba_cuda_mlir.caching", "MLIRCacheImpl.rebuild")
def _rebuild(original: Any, self: Any, target_context: Any, payload: Any) -> Any:
    """Compile a kernel again whose link files have changed."""
    from numba_ptxlink._front_end import disk_keys

    fresh = disk_keys.are_fresh(payload.get("ptxlink_stamps", {"": ""}), source_options)
    # None is no kernel, and numba-cuda-mlir compiles another one.
    return original(self, target_context, payload) if fresh else None


def _is_path(item: Any) -> bool:
    return isinstance(item, (str, os.PathLike))


def _linked(cres: Any) -> tuple[Any, ...]:
    """Return what was linked with a kernel, that of declared functions included."""
    metadata = cres.metadata
    items = metadata.get("linked_external_link_items", metadata.get("targetoptions", {}).get("link"))
    return tuple(items or ())
