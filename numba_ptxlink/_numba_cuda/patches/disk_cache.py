"""
`@cuda.jit(cache=True)` for kernels with link files, and with every option in the key.

numba-cuda's per-function index of compiled kernels is kept; its keys gain the inputs that they lack.
"""

from __future__ import annotations

import functools
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import notes
from numba_ptxlink._numba_cuda.linker import source_options


def _wrap_enable_caching(original: Any) -> Any:
    @functools.wraps(original)
    def enable_caching(self: Any) -> None:
        original(self)
        options = dict(self.targetoptions)
        noted = notes(self._cache)
        # Compiling adds files of numba-cuda's own to the list.
        noted.link = tuple(options.pop("link", None) or ())
        noted.options = {name: value for name, value in options.items() if name != "extensions"}

    return enable_caching


def _wrap_index_key(original: Any) -> Any:
    @functools.wraps(original)
    def _index_key(self: Any, sig: Any, codegen: Any) -> Any:
        from numba_ptxlink._front_end import disk_keys

        noted = notes(self)
        key = original(self, sig, codegen)
        # A kernel is saved by what it was looked up by, though its link files may have changed meanwhile.
        if noted.options is not None and key not in noted.digests:
            tools = ["nvvm", "nvJitLink", *(["nvrtc"] if noted.link else ())]
            digest = disk_keys.of_kernel("jit", noted.options, noted.link, source_options, tools)
            # What cannot be told is found by this process alone.
            noted.digests[key] = digest or f"{id(noted)}"
        return (*key, ("numba-ptxlink", noted.digests.get(key)))

    return _index_key


def _wrap_reduce_states(original: Any) -> Any:
    @functools.wraps(original)
    def _reduce_states(self: Any) -> Any:
        from numba.cuda.memory_management.nrt import NRT_LIBRARY

        files = self._linking_files - {NRT_LIBRARY}
        given = notes(self).link
        # Code that a function refers to by a global cannot be compared with the global of a later process.
        comparable = all(isinstance(file, str) or file in given for file in files)
        if not files or self._setup_functions or self._teardown_functions or not comparable:
            return original(self)
        stamps = {file: _stamp(file) for file in files if isinstance(file, str)}
        linked, self._linking_files = self._linking_files, self._linking_files - files
        try:
            return {**original(self), "ptxlink_files": [*files], "ptxlink_stamps": stamps}
        finally:
            self._linking_files = linked

    return _reduce_states


def _wrap_rebuild(original: Any) -> Any:
    def _rebuild(cls: Any, ptxlink_files: Any = (), ptxlink_stamps: Any = None, **state: Any) -> Any:
        for path, stamp in (ptxlink_stamps or {}).items():
            if not stamp or stamp != _stamp(path):
                # To numba-cuda, a kernel that raises OSError is none, and it compiles another one.
                raise OSError(f"{path} is not what a kernel was linked with")
        library = original.__func__(cls, **state)
        # A device of another architecture links them again.
        library._linking_files = {*library._linking_files, *ptxlink_files}
        return library

    return classmethod(_rebuild)  # type: ignore[arg-type]


def _stamp(path: str) -> str:
    from numba_ptxlink._front_end import disk_keys

    return disk_keys.stamp(path, source_options)


SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.dispatcher",
        "CUDADispatcher.enable_caching",
        _wrap_enable_caching,
        "`cache=True` knows the decorator's options and link files.",
        purpose="cache",
    ),
    Substitution(
        "numba.cuda.dispatcher",
        "CUDACache._index_key",
        _wrap_index_key,
        "The key of a kernel on disk has all options, the contents of its link files, and the tools.",
        purpose="cache",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary._reduce_states",
        _wrap_reduce_states,
        "`cache=True` keeps kernels with link files, which numba-cuda refuses.",
        purpose="cache",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary._rebuild",
        _wrap_rebuild,
        "They get their link files back; one whose link files changed is compiled again.",
        purpose="cache",
    ),
)
