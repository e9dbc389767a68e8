"""
`@cuda.jit(cache=True)` for kernels with link files, and with every option in the key.

numba-cuda-mlir's per-function index of compiled kernels is kept; its keys gain the inputs that they lack.
"""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any
from weakref import WeakKeyDictionary

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import entered, requested_cc
from numba_ptxlink._numba_cuda_mlir.linker import source_options

# The digests that the kernels of each cache were looked up by, by the keys of numba-cuda-mlir.
_digests: WeakKeyDictionary[Any, dict[Any, str]] = WeakKeyDictionary()


def _wrap_index_key(original: Any) -> Any:
    @functools.wraps(original)
    def _index_key(self: Any, sig: Any, codegen: Any) -> Any:
        with entered(cc=requested_cc(self._targetoptions)):
            key = original(self, sig, codegen)
        # A kernel is saved by what it was looked up by, though its link files may have changed meanwhile.
        digests = _digests.setdefault(self, {})
        if key not in digests:
            # What cannot be told is found by this process alone.
            digests[key] = _digest(self) or f"{id(digests)}"
        return (*key, ("numba-ptxlink", digests[key]))

    return _index_key


def _wrap_check_cachable(original: Any) -> Any:
    @functools.wraps(original)
    def check_cachable(self: Any, cres: Any) -> bool:
        del self
        # The original refuses all link files. What it keeps says nothing of a cooperative launch.
        given = cres.metadata.get("targetoptions", {}).get("link") or ()
        return not cres.metadata.get("use_cooperative") and not any(
            getattr(item, "setup_callback", None)
            or getattr(item, "teardown_callback", None)
            # Code in memory that a function declares cannot be compared with that of a later process.
            or not (_is_path(item) or item in given)
            for item in _linked(cres)
        )

    return check_cachable


def _wrap_reduce(original: Any) -> Any:
    @functools.wraps(original)
    def reduce(self: Any, cres: Any) -> Any:
        files = [os.fspath(item) for item in _linked(cres) if _is_path(item)]
        return {**original(self, cres), "ptxlink_stamps": {file: _stamp(file) for file in files}}

    return reduce


def _wrap_rebuild(original: Any) -> Any:
    @functools.wraps(original)
    def rebuild(self: Any, target_context: Any, payload: Any) -> Any:
        stamps = payload.get("ptxlink_stamps", {"": ""})
        # None is no kernel, and numba-cuda-mlir compiles another one.
        fresh = all(stamp and stamp == _stamp(file) for file, stamp in stamps.items())
        return original(self, target_context, payload) if fresh else None

    return rebuild


def _is_path(item: Any) -> bool:
    return isinstance(item, (str, os.PathLike))


def _stamp(file: str) -> str:
    from numba_ptxlink._front_end import disk_keys

    return disk_keys.stamp(file, source_options)


def _linked(cres: Any) -> tuple[Any, ...]:
    """Return what was linked with a kernel, that of declared functions included."""
    metadata = cres.metadata
    items = metadata.get("linked_external_link_items", metadata.get("targetoptions", {}).get("link"))
    return tuple(items or ())


def _digest(cache: Any) -> str | None:
    from numba_ptxlink._front_end import disk_keys

    # Extensions convert arguments at launch, and are pickled with the kernel. numba-cuda-mlir's own functions
    # are of its release, which is in the index.
    options = {
        name: value.__qualname__ if inspect.isfunction(value) else value
        for name, value in cache._targetoptions.items()
        if name not in ("link", "cache", "extensions")
    }
    tools = ["nvvm", "nvJitLink", "nvrtc"]
    given = cache._targetoptions.get("link") or ()
    return disk_keys.of_kernel("jit-mlir", options, given, source_options, tools)


SUBSTITUTIONS = (
    Substitution(
        "numba_cuda_mlir.caching",
        "MLIRCache._index_key",
        _wrap_index_key,
        "The key of a kernel on disk has all options, the contents of the decorator's link files, and the "
        "tools.",
        purpose="cache",
    ),
    Substitution(
        "numba_cuda_mlir.caching",
        "MLIRCacheImpl.check_cachable",
        _wrap_check_cachable,
        "`cache=True` keeps kernels with link files, which numba-cuda-mlir refuses.",
        purpose="cache",
    ),
    Substitution(
        "numba_cuda_mlir.caching",
        "MLIRCacheImpl.reduce",
        _wrap_reduce,
        "It notes the contents of the files that a kernel has linked, whoever asked for them.",
        purpose="cache",
    ),
    Substitution(
        "numba_cuda_mlir.caching",
        "MLIRCacheImpl.rebuild",
        _wrap_rebuild,
        "A kernel whose link files have changed is compiled again.",
        purpose="cache",
    ),
)
