"""The files that numba-cuda's code libraries link, and its memory manager for device code."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numba_ptxlink._export import link_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_INTERNAL = "numba.cuda._internal."


def of_libraries(libraries: Iterable[Any]) -> Iterator[Any]:
    """Yield the files that *libraries* link, each once; without the memory manager."""
    from numba.cuda.memory_management.nrt import NRT_LIBRARY

    for file in dict.fromkeys(file for library in libraries for file in library._linking_files):
        if file is not NRT_LIBRARY:
            # The one of its halves warns of missing tools for LTO; nobody has to do that elsewhere.
            callback = getattr(getattr(file, "setup_callback", None), "__module__", None) or ""
            own = callback.startswith(_INTERNAL)
            yield replace(link_files.read(file), has_callbacks=False) if own else file


def declarations(context: Any) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Yield name, parameters and result of what `cuda.declare_device` declared, the latest first."""
    for key in reversed([*context._defns]):
        if hasattr(key, "name") and hasattr(key, "sig"):
            yield key.name, tuple(key.sig.args), key.sig.return_type
