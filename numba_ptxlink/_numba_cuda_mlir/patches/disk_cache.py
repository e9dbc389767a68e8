"""
`@cuda.jit(cache=True)` for kernels with link files, and with every option in the key.

numba-cuda-mlir's per-function index of compiled kernels is kept; its keys gain the inputs that they lack.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import entered, requested_cc
from numba_ptxlink._numba_cuda_mlir.linker import source_options

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        calls_back = any(
            getattr(item, name, None)
            for item in _linked(cres)
            for name in ("setup_callback", "teardown_callback")
        )
        return not (calls_back or cres.metadata.get("use_cooperative"))

    return check_cachable


def _linked(cres: Any) -> tuple[Any, ...]:
    """Return what was linked with a kernel, that of declared functions included."""
    metadata = cres.metadata
    items = metadata.get("linked_external_link_items", metadata.get("targetoptions", {}).get("link"))
    return tuple(items or ())


def _link_items(cache: Any) -> Iterator[Any]:
    """Yield the link files of a kernel's decorator, and of the functions that it can reach."""
    from numba_ptxlink._export import choice

    yield from cache._targetoptions.get("link") or ()
    for _, _, value in choice.names([cache._py_func]):
        yield from (getattr(value, "targetoptions", None) or {}).get("link") or ()
        if type(value).__name__ == "ExternFunction":
            yield from value.link or ()


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
    return disk_keys.of_kernel("jit-mlir", options, _link_items(cache), source_options, tools)


SUBSTITUTIONS = (
    Substitution(
        "numba_cuda_mlir.caching",
        "MLIRCache._index_key",
        _wrap_index_key,
        "The key of a kernel on disk has all options, the contents of its link files, those of declared "
        "functions included, and the tools.",
        purpose="cache",
    ),
    Substitution(
        "numba_cuda_mlir.caching",
        "MLIRCacheImpl.check_cachable",
        _wrap_check_cachable,
        "`cache=True` keeps kernels with link files, which numba-cuda-mlir refuses.",
        purpose="cache",
    ),
)
