"""The files that numba-cuda's code libraries link, and its memory manager for device code."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numba_ptxlink._export import link_files, linkable
from numba_ptxlink._formats.kinds import CU

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numba_ptxlink._front_end.protocol import LinkFile

_INTERNAL = "numba.cuda._internal."


def of_libraries(libraries: Iterable[Any]) -> Iterator[Any]:
    """Yield the files that *libraries* link, each once; without the memory manager."""
    from numba.cuda.memory_management.nrt import NRT_LIBRARY

    for file in dict.fromkeys(file for library in libraries for file in library._linking_files):
        if file is not NRT_LIBRARY:
            # The one of its halves warns of missing tools for LTO; nobody has to do that elsewhere.
            callback = getattr(getattr(file, "setup_callback", None), "__module__", None) or ""
            own = callback.startswith(_INTERNAL)
            yield replace(linkable.read(file), has_callbacks=False) if own else file


def brought_by_bindings(library: Any) -> list[LinkFile]:
    """Return the files that no user names: Numba's halves and other bindings bring them into *library*."""
    sources = [file for file in of_libraries([library]) if getattr(file, "kind", None) == CU]
    return list(filter(link_files.is_shims, map(linkable.read, sources)))


def declarations(context: Any) -> Iterator[tuple[str, tuple[Any, ...], Any]]:
    """Yield name, parameters and result of what `cuda.declare_device` declared, the latest first."""
    for key in reversed([*context._defns]):
        if hasattr(key, "name") and hasattr(key, "sig"):
            yield key.name, tuple(key.sig.args), key.sig.return_type
