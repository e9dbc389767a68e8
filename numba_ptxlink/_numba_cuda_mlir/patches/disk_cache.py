"""
`@cuda.jit(cache=True)` for kernels with link files, and with every option in the key.

numba-cuda-mlir's per-function index of compiled kernels is kept; its keys gain the inputs that they lack.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from numba_ptxlink._front_end import link_digests
from numba_ptxlink._front_end.describe import describe, describe_stateless
from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.requests import entered, requested_cc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


log = logging.getLogger(__name__)

_UNKNOWN = "unknown"
_CODE = ("cubin", "ptx", "ltoir", "func_name")

# The digest that each cache looked its last kernel up by.
_sought: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


def _wrap_index_key(original: Any) -> Any:
    """Add the options, the link files' contents and the tools to the key of a kernel."""

    @functools.wraps(original)
    def _index_key(self: Any, sig: Any, codegen: Any) -> Any:
        with entered(cc=requested_cc(self._targetoptions)):
            return (*original(self, sig, codegen), ("numba-ptxlink", _digest(self)))

    return _index_key


def _wrap_load_overload(original: Any) -> Any:
    """Record the digest at look-up, so that saving can detect inputs that changed during compilation."""

    @functools.wraps(original)
    def _load_overload(self: Any, sig: Any, target_context: Any) -> Any:
        if not _is_mlir(self):
            return original(self, sig, target_context)
        digest = _sought[self] = _digest(self)
        return None if digest == _UNKNOWN else original(self, sig, target_context)

    return _load_overload


def _wrap_save_overload(original: Any) -> Any:
    """Save no kernel whose link files changed during compilation, or cannot be digested."""

    @functools.wraps(original)
    def _save_overload(self: Any, sig: Any, data: Any) -> None:
        if _is_mlir(self):
            digest = _digest(self)
            if digest == _UNKNOWN or digest != _sought.get(self, digest):
                if digest != _UNKNOWN:
                    log.info("cache: %s is not kept: its link files changed meanwhile", self._name)
                return
            if not _comparable(self, data):
                log.info("cache: %s is not kept: a later process cannot compare what it links", self._name)
                return
        original(self, sig, data)

    return _save_overload


def _wrap_check_cachable(original: Any) -> Any:
    @functools.wraps(original)
    def check_cachable(self: Any, cres: Any) -> bool:
        del self
        # The original refuses all link files.
        return not any(_calls_back(item) for item in _linked(cres))

    return check_cachable


def _wrap_reduce(original: Any) -> Any:
    @functools.wraps(original)
    def reduce(self: Any, cres: Any) -> Any:
        payload = original(self, cres)
        payload["use_cooperative"] = cres.metadata.get("use_cooperative", False)
        stamps = {item: _file_digest(item) for item in _linked(cres) if isinstance(item, str)}
        payload["numba-ptxlink"] = {"code": _code_digest(payload), "files": stamps}
        return payload

    return reduce


def _wrap_rebuild(original: Any) -> Any:
    """Load a kernel only if its code is what was saved, and the files it was linked with are unchanged."""

    @functools.wraps(original)
    def rebuild(self: Any, target_context: Any, payload: Any) -> Any:
        noted = payload.get("numba-ptxlink")
        if noted is None or noted["code"] != _code_digest(payload):
            log.info("cache: %s is damaged; it is compiled again", payload.get("func_name"))
            return None
        if any(stamp != _file_digest(path) for path, stamp in noted["files"].items()):
            log.info("cache: a file linked into %s changed; it is compiled again", payload.get("func_name"))
            return None
        cres = original(self, target_context, payload)
        cres.metadata["use_cooperative"] = payload["use_cooperative"]
        return cres

    return rebuild


def _wrap_load_index(original: Any) -> Any:
    @functools.wraps(original)
    def _load_index(self: Any) -> Any:
        try:
            return original(self)
        except Exception as error:  # noqa: BLE001 - unpickling raises anything, and a cache fails no build
            log.info("cache: the index %s cannot be read: %s", self._index_path, error)
            return {}

    return _load_index


def _wrap_load_data(original: Any) -> Any:
    @functools.wraps(original)
    def _load_data(self: Any, name: str) -> Any:
        try:
            return original(self, name)
        except Exception as error:
            # As if it were not there.
            raise FileNotFoundError(f"{name} cannot be read: {error}") from error

    return _load_data


def _is_mlir(cache: Any) -> bool:
    return hasattr(cache, "_targetoptions")


def _linked(cres: Any) -> tuple[Any, ...]:
    """Return what was linked with a kernel, that of declared functions included."""
    metadata = cres.metadata
    items = metadata.get("linked_external_link_items", metadata.get("targetoptions", {}).get("link"))
    return tuple(items or ())


def _calls_back(item: Any) -> bool:
    return any(getattr(item, name, None) for name in ("setup_callback", "teardown_callback"))


def _comparable(cache: Any, cres: Any) -> bool:
    """Return whether all that was linked is in the key, or a file that is compared when it is read."""
    known = {id(item) for item in _link_items(cache)}
    return all(isinstance(item, str) or id(item) in known for item in _linked(cres))


def _link_items(cache: Any) -> Iterator[Any]:
    """Yield the link files of a kernel's decorator, and of the functions that it can reach."""
    from numba_ptxlink._export import reached

    yield from cache._targetoptions.get("link") or ()
    for _, _, value in reached.names([cache._py_func]):
        yield from (getattr(value, "targetoptions", None) or {}).get("link") or ()
        if type(value).__name__ == "ExternFunction":
            yield from value.link or ()


def _file_digest(path: str) -> str:
    return link_digests.of_file(path, _search_path) or _UNKNOWN


def _search_path(folder: Path | None) -> tuple[str, ...]:
    from numba_ptxlink._numba_cuda_mlir.include_dirs import source_options

    return source_options(folder=folder).search_path()


def _code_digest(payload: dict[str, Any]) -> str:
    return hashlib.sha256(repr([payload.get(name) for name in _CODE]).encode()).hexdigest()


def _digest(cache: Any) -> str:
    from numba_ptxlink._front_end import disk_keys

    options = {name: value for name, value in cache._targetoptions.items() if name not in ("link", "cache")}
    key = disk_keys.of_kernel(
        "jit-mlir",
        options,
        _link_items(cache),
        described=_option,
        search_path=_search_path,
        tools=["nvvm", "nvJitLink", "nvrtc"],
    )
    return key or _UNKNOWN


def _option(name: str, value: Any) -> str:
    # Extensions convert arguments at launch: the machine code is the same, but the pickle contains them.
    if name == "extensions":
        return describe_stateless(value or ())
    # numba-cuda-mlir's own functions are of its release, which is in the index.
    own = inspect.isfunction(value) and value.__module__.startswith("numba_cuda_mlir.")
    return f"{value.__module__}.{value.__qualname__}" if own else describe(value)


_CACHING = "numba_cuda_mlir.caching"
_CORE = "numba_cuda_mlir.numba_cuda.core.caching"

SUBSTITUTIONS = (
    Substitution(
        _CACHING,
        "MLIRCache._index_key",
        _wrap_index_key,
        "The key of a kernel on disk has all options, the contents of its link files, those of declared "
        "functions included, and the tools.",
    ),
    Substitution(
        _CORE,
        "Cache._load_overload",
        _wrap_load_overload,
        "What the kernel depends on is noted when it is looked up.",
    ),
    Substitution(
        _CORE,
        "Cache._save_overload",
        _wrap_save_overload,
        "A kernel whose link files changed while it was compiled is not kept.",
    ),
    Substitution(
        _CORE,
        "IndexDataCacheFile._load_index",
        _wrap_load_index,
        "A damaged index is an empty one, where numba-cuda-mlir fails.",
    ),
    Substitution(
        _CORE,
        "IndexDataCacheFile._load_data",
        _wrap_load_data,
        "A damaged kernel on disk is compiled again, where numba-cuda-mlir fails.",
    ),
    Substitution(
        _CACHING,
        "MLIRCacheImpl.check_cachable",
        _wrap_check_cachable,
        "`cache=True` keeps kernels with link files, which numba-cuda-mlir refuses.",
    ),
    Substitution(
        _CACHING,
        "MLIRCacheImpl.reduce",
        _wrap_reduce,
        "A kernel on disk keeps a digest of its code, its files' and whether its launch is cooperative.",
    ),
    Substitution(
        _CACHING,
        "MLIRCacheImpl.rebuild",
        _wrap_rebuild,
        "A kernel on disk is compared with its digest, and compiled again if its link files changed.",
    ),
)
