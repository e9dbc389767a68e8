"""Link with this package: the methods of numba-cuda-mlir's linkers, whose class is bound at import."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir import links
from numba_ptxlink._numba_cuda_mlir.release import DRIVER
from numba_ptxlink._numba_cuda_mlir.requests import current


def _wrap_complete(original: Any) -> Any:
    @functools.wraps(original)
    def complete(self: Any) -> Any:
        if not current().links:
            return SimpleNamespace(code=None)
        return links.complete(self)

    return complete


def _wrap_get_linked_ptx(original: Any) -> Any:
    @functools.wraps(original)
    def get_linked_ptx(self: Any) -> bytes:
        return links.linked_ptx(self)

    return get_linked_ptx


def _wrap_materialize_pending_cu(original: Any) -> Any:
    @functools.wraps(original)
    def _materialize_pending_cu(self: Any) -> None:
        # Without a link nobody reads the result.
        if current().links:
            links.compile_sources(self)

    return _materialize_pending_cu


def _wrap_add_cu_file(original: Any) -> Any:
    @functools.wraps(original)
    def add_cu_file(self: Any, path: Any) -> None:
        name = links.PlacedName(Path(path).name)
        name.folder = Path(path).parent
        self.add_cu(links.content_of(path), name)

    return add_cu_file


def _wrap_add_file(original: Any) -> Any:
    @functools.wraps(original)
    def add_file(self: Any, path: Any, kind: Any) -> None:
        self.add_data(links.content_of(path), kind, Path(path).name)

    return add_file


def _wrap_add_data(original: Any) -> Any:
    @functools.wraps(original)
    def add_data(self: Any, data: Any, kind: Any, name: Any) -> None:
        links.remember(data, name)
        original(self, data, kind, name)

    return add_data


SUBSTITUTIONS = (
    Substitution(
        DRIVER,
        "_Linker.complete",
        _wrap_complete,
        "Kernels are assembled and linked in process, checked and cached; errors name the cure.",
    ),
    Substitution(
        DRIVER,
        "_Linker.get_linked_ptx",
        _wrap_get_linked_ptx,
        "The PTX after link-time optimisation needs no driver; errors name the cure.",
    ),
    Substitution(
        DRIVER,
        "_Linker._materialize_pending_cu",
        _wrap_materialize_pending_cu,
        "CUDA C++ is compiled once in a process, without a driver; errors quote it.",
    ),
    Substitution(
        DRIVER,
        "_Linker.add_cu_file",
        _wrap_add_cu_file,
        'A CUDA C++ file finds what it includes as "..." beside itself, and is read whenever it is linked.',
    ),
    Substitution(
        DRIVER,
        "_Linker.add_file",
        _wrap_add_file,
        "A link file is read whenever it is linked, where numba-cuda-mlir keeps the first content of a path, "
        "and compared with the manifest of an export beside it.",
    ),
    Substitution(
        DRIVER,
        "_Linker.add_data",
        _wrap_add_data,
        "Link files keep their names for errors, where numba-cuda-mlir forgets them.",
    ),
)
