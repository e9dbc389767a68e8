"""
`@cuda.jit(cache=True)` for kernels with link files, and with every option in the key.

numba-cuda's index of a function's compiled kernels stays; here its keys gain what they lack.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import config
from numba_ptxlink._numba_cuda.context import CacheNotes, LibraryNotes, notes
from numba_ptxlink._numba_cuda.describe import IndescribableError, describe, describe_stateless
from numba_ptxlink._numba_cuda.include_dirs import source_options
from numba_ptxlink._tools import build_id, include_scan, nvptxcompiler
from numba_ptxlink.cache.key import Key, package_version

from .substitution import Substitution

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

_UNKNOWN = "unknown"


def _wrap_enable_caching(original: Callable[..., None]) -> Callable[..., None]:
    """Tell a dispatcher's cache the options, before compiling adds files of numba-cuda's own to them."""

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


def _wrap_load_overload(original: Callable[..., Any]) -> Callable[..., Any]:
    """Remember what a kernel that is about to be compiled will depend on."""

    @functools.wraps(original)
    def _load_overload(self: Any, sig: Any, target_context: Any) -> Any:
        found = original(self, sig, target_context)
        noted = notes(self, CacheNotes)
        noted.before = noted.key
        return None if noted.key == _UNKNOWN else found

    return _load_overload


def _wrap_save_overload(original: Callable[..., None]) -> Callable[..., None]:
    """Keep nothing whose link files changed while it was compiled, or have contents that cannot be told."""

    @functools.wraps(original)
    def _save_overload(self: Any, sig: Any, kernel: Any) -> None:
        noted = notes(self, CacheNotes)
        if noted.before and noted.options is not None:
            now = _digest(noted.options, noted.link)
            if now != noted.before or now == _UNKNOWN:
                if now != _UNKNOWN:
                    log.info("cache: %s is not kept: its link files changed meanwhile", self._name)
                return
            _mark_given(kernel, noted.link)
        original(self, sig, kernel)

    return _save_overload


def _wrap_rebuild_kernel(original: Callable[..., Any]) -> Callable[..., Any]:
    """Take a kernel out of the cache only if the files it was linked with are the same still."""

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
    """Let code libraries with link files be pickled, where the files are all there is to them."""

    @functools.wraps(original)
    def _reduce_states(self: Any) -> Any:
        from numba.cuda.memory_management.nrt import NRT_LIBRARY

        files = self._linking_files
        given = notes(self, LibraryNotes).given
        runs_code = self._setup_functions or self._teardown_functions
        # Code that a function found in memory, by a global, cannot be compared with what is there next time.
        known = all(isinstance(each, str) or each is NRT_LIBRARY or each in given for each in files)
        if not files or runs_code or not known:
            return original(self)
        stamps = {each: file_digest(each) for each in files if isinstance(each, str)}
        if _UNKNOWN in stamps.values():
            return original(self)
        self._linking_files = set()
        try:
            state = original(self)
        finally:
            self._linking_files = files
        state["nrt"] = NRT_LIBRARY in files
        state["ptxlink_files"] = [each for each in files if each is not NRT_LIBRARY]
        state["ptxlink_stamps"] = stamps
        return state

    return _reduce_states


def _wrap_rebuild_library(original: Any) -> Any:
    """Give a code library back its link files, which another device of another kind may need."""

    def _rebuild(cls: Any, ptxlink_files: Any = (), ptxlink_stamps: Any = None, **state: Any) -> Any:
        library = original.__func__(cls, **state)
        library._linking_files = {*library._linking_files, *ptxlink_files}
        noted = notes(library, LibraryNotes)
        noted.given = tuple(each for each in ptxlink_files if not isinstance(each, str))
        noted.stamps = dict(ptxlink_stamps or {})
        return library

    return classmethod(_rebuild)  # type: ignore[arg-type]


def file_digest(path: str) -> str:
    """Return a digest of the file at *path*, and of all that CUDA C++ may include; `_UNKNOWN` without one."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return _UNKNOWN
    digest = hashlib.sha256(content).hexdigest()
    return _with_includes(digest, content) if Path(path).suffix == ".cu" else digest


def _with_includes(digest: str, content: bytes) -> str:
    # NVRTC is told the file's name, not where it is.
    included = include_scan.manifest(content, Path(), source_options().search_path(), {})
    return _UNKNOWN if included is None else f"{digest} {hashlib.sha256(repr(included).encode()).hexdigest()}"


def _code_digest(code: Any) -> str:
    if isinstance(code, (str, os.PathLike)):
        return f"{Path(code).name} {file_digest(os.fspath(code))}"
    content = code.data
    content = content.encode() if isinstance(content, str) else bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    found = _with_includes(digest, content) if code.kind == "cu" else digest
    return f"{code.kind} {code.name} {found}"


def _mark_given(kernel: Any, link: Sequence[Any]) -> None:
    library = getattr(kernel, "_codelibrary", None)
    if library is not None:
        notes(library, LibraryNotes).given = tuple(each for each in link if not isinstance(each, str))


def _digest(options: dict[str, Any], link: Sequence[Any]) -> str:
    try:
        return _key(options, link).digest.hex()
    except IndescribableError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - the cache never fails a build
        reason = f"{type(error).__name__}: {error}"
    log.info("cache: a kernel is not kept: %s", reason)
    return _UNKNOWN


def _key(options: dict[str, Any], link: Sequence[Any]) -> Key:
    files = [_code_digest(each) for each in link]
    if any(_UNKNOWN in each.split() for each in files):
        raise IndescribableError("a link file cannot be read, or what it includes cannot be told")
    asked = dataclasses.asdict(config())
    tools = ["nvvm", "nvJitLink", *(["nvrtc"] if link else ())]
    return Key.of(
        "jit",
        {
            "package": package_version(),
            "config": [f"{name}={asked[name]!r}" for name in asked if not name.startswith(("cache", "log"))],
            "tools": [*nvptxcompiler.identity(), *map(build_id.loaded, tools)],
            "options": [f"{name}={_option(name, options[name])}" for name in sorted(options)],
            "files": files,
        },
    )


def _option(name: str, value: Any) -> str:
    try:
        # Extensions convert arguments at a launch; the kernel is the same, but brings them back with it.
        return describe_stateless(value or ()) if name == "extensions" else describe(value)
    except IndescribableError as error:
        raise IndescribableError(f"its option {name} holds {error}") from None


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
