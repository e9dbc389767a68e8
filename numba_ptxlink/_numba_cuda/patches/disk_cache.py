"""
`@cuda.jit(cache=True)` for kernels with link files, and with every option in the key.

numba-cuda's per-function index of compiled kernels is kept; its keys gain the inputs that they lack.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.describe import describe, describe_stateless
from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import CacheNotes, LibraryNotes, notes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


log = logging.getLogger(__name__)

_UNKNOWN = "unknown"


def _wrap_enable_caching(original: Callable[..., None]) -> Callable[..., None]:
    """Record the options in the dispatcher's cache, before compiling adds numba-cuda's own files to them."""

    @functools.wraps(original)
    def enable_caching(self: Any) -> None:
        original(self)
        options = dict(self.targetoptions)
        noted = notes(self._cache, CacheNotes)
        noted.link = tuple(options.pop("link", None) or ())
        noted.options = options

    return enable_caching


def _wrap_index_key(original: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options, the link files' contents and the tools to the key of a kernel."""

    @functools.wraps(original)
    def _index_key(self: Any, sig: Any, codegen: Any) -> Any:
        key = original(self, sig, codegen)
        noted = notes(self, CacheNotes)
        if noted.options is not None:
            noted.key = _digest(noted.options, noted.link)
            key += (("numba-ptxlink", noted.key),)
        return key

    return _index_key


def _wrap_refreshing_load(original: Callable[..., Any]) -> Callable[..., Any]:
    """Load a kernel without importing what compiles, which a compile after a miss asks for itself."""

    @functools.wraps(original)
    def load_overload(self: Any, sig: Any, target_context: Any) -> Any:
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
        return None  # where the guard has swallowed an exception

    return load_overload


def _wrap_load_overload(original: Callable[..., Any]) -> Callable[..., Any]:
    """Record the key at look-up, so that saving can detect inputs that changed during compilation."""

    @functools.wraps(original)
    def _load_overload(self: Any, sig: Any, target_context: Any) -> Any:
        kernel = original(self, sig, target_context)
        noted = notes(self, CacheNotes)
        noted.before = noted.key
        return None if noted.key == _UNKNOWN else kernel

    return _load_overload


def _wrap_save_overload(original: Callable[..., None]) -> Callable[..., None]:
    """Save no kernel whose link files changed during compilation, or cannot be digested."""

    @functools.wraps(original)
    def _save_overload(self: Any, sig: Any, kernel: Any) -> None:
        noted = notes(self, CacheNotes)
        if noted.before and noted.options is not None:
            key = _digest(noted.options, noted.link)
            if key != noted.before or key == _UNKNOWN:
                if key != _UNKNOWN:
                    log.info("cache: %s is not kept: its link files changed meanwhile", self._name)
                return
            _mark_given(kernel, noted.link)
        original(self, sig, kernel)

    return _save_overload


def _wrap_rebuild_kernel(original: Callable[..., Any]) -> Callable[..., Any]:
    """Load a kernel from the cache only if the files it was linked with are unchanged."""

    @functools.wraps(original)
    def rebuild(self: Any, target_context: Any, payload: Any) -> Any:
        kernel = original(self, target_context, payload)
        stamps = notes(kernel._codelibrary, LibraryNotes).stamps
        if all(stamp == file_digest(path) for path, stamp in stamps.items()):
            return kernel
        log.info("cache: a file linked into %s changed; it is compiled again", payload.get("name"))
        return None

    return rebuild


def _wrap_reduce_states(original: Callable[..., Any]) -> Callable[..., Any]:
    """Pickle code libraries with link files, where the link files alone determine what is linked."""

    @functools.wraps(original)
    def _reduce_states(self: Any) -> Any:
        from numba.cuda.memory_management.nrt import NRT_LIBRARY

        files = self._linking_files
        given = notes(self, LibraryNotes).given
        runs_code = self._setup_functions or self._teardown_functions
        # Code that a function refers to by a global cannot be compared with the global of a later process.
        comparable = all(isinstance(file, str) or file is NRT_LIBRARY or file in given for file in files)
        if not files or runs_code or not comparable:
            return original(self)
        stamps = {file: file_digest(file) for file in files if isinstance(file, str)}
        if _UNKNOWN in stamps.values():
            return original(self)
        self._linking_files = set()
        try:
            state = original(self)
        finally:
            self._linking_files = files
        state["nrt"] = NRT_LIBRARY in files
        state["ptxlink_files"] = [file for file in files if file is not NRT_LIBRARY]
        state["ptxlink_stamps"] = stamps
        return state

    return _reduce_states


def _wrap_rebuild_library(original: Any) -> Any:
    """Restore the link files of a code library: a device of another arch links them again."""

    def _rebuild(cls: Any, ptxlink_files: Any = (), ptxlink_stamps: Any = None, **state: Any) -> Any:
        library = original.__func__(cls, **state)
        library._linking_files = {*library._linking_files, *ptxlink_files}
        noted = notes(library, LibraryNotes)
        noted.given = tuple(file for file in ptxlink_files if not isinstance(file, str))
        noted.stamps = dict(ptxlink_stamps or {})
        return library

    return classmethod(_rebuild)  # type: ignore[arg-type]


def file_digest(path: str) -> str:
    """Return a digest of the file at *path* and, for CUDA C++, of its includes; `_UNKNOWN` on failure."""
    from numba_ptxlink._front_end import link_digests

    return link_digests.of_file(path, _search_path) or _UNKNOWN


def _search_path(folder: Path | None) -> tuple[str, ...]:
    from numba_ptxlink._numba_cuda.include_dirs import source_options

    return source_options(folder=folder).search_path()


def _mark_given(kernel: Any, link: Sequence[Any]) -> None:
    library = getattr(kernel, "_codelibrary", None)
    if library is not None:
        notes(library, LibraryNotes).given = tuple(code for code in link if not isinstance(code, str))


def _digest(options: dict[str, Any], link: Sequence[Any]) -> str:
    from numba_ptxlink._front_end import disk_keys

    tools = ["nvvm", "nvJitLink", *(["nvrtc"] if link else ())]
    key = disk_keys.of_kernel("jit", options, link, described=_option, search_path=_search_path, tools=tools)
    return key or _UNKNOWN


def _option(name: str, value: Any) -> str:
    # Extensions convert arguments at launch: the machine code is the same, but the pickle contains them.
    return describe_stateless(value or ()) if name == "extensions" else describe(value)


SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.dispatcher",
        "CUDADispatcher.enable_caching",
        _wrap_enable_caching,
        "`cache=True` knows the decorator's options and link files.",
    ),
    Substitution(
        "numba.cuda.dispatcher",
        "CUDACache._index_key",
        _wrap_index_key,
        "The key of a kernel on disk has all options, the contents of its link files, and the tools.",
    ),
    Substitution(
        "numba.cuda.dispatcher",
        "Cache.load_overload",
        _wrap_refreshing_load,
        "A kernel on disk is loaded without importing what only compiling needs.",
    ),
    Substitution(
        "numba.cuda.dispatcher",
        "Cache._load_overload",
        _wrap_load_overload,
        "What the kernel depends on is noted when it is looked up.",
    ),
    Substitution(
        "numba.cuda.dispatcher",
        "Cache._save_overload",
        _wrap_save_overload,
        "A kernel whose link files changed while it was compiled is not kept.",
    ),
    Substitution(
        "numba.cuda.dispatcher",
        "CUDACacheImpl.rebuild",
        _wrap_rebuild_kernel,
        "A kernel on disk whose link files changed is compiled again.",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary._reduce_states",
        _wrap_reduce_states,
        "`cache=True` keeps kernels with link files, which numba-cuda refuses.",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary._rebuild",
        _wrap_rebuild_library,
        "They get their link files back, which another kind of device may need.",
    ),
)
