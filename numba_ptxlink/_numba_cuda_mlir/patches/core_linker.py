"""
Link with this package: what numba-cuda-mlir's linkers ask of cuda.core and NVRTC.

Its classes of linkers are bound where they are used, so they stay; they look these names up in each link.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir import links
from numba_ptxlink._numba_cuda_mlir.release import DRIVER
from numba_ptxlink._numba_cuda_mlir.requests import current


def _wrap_linker(_original: Any) -> Any:
    return links.CoreLinker


def _wrap_compile(original: Any) -> Any:
    @functools.wraps(original)
    def compile(src: Any, name: Any, cc: Any, ltoir: Any = False, **others: Any) -> Any:  # noqa: A001
        return links.compile_source(src, name, cc, lto=bool(ltoir), **others)

    return compile


def _wrap_materialize_pending_cu(original: Any) -> Any:
    @functools.wraps(original)
    def _materialize_pending_cu(self: Any) -> None:
        # Without a link nobody reads the result.
        if current().links:
            original(self)

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
        "Linker",
        _wrap_linker,
        "Kernels are assembled and linked in process, checked and cached; errors name the cure.",
    ),
    Substitution(
        "numba_cuda_mlir.numba_cuda.cudadrv.nvrtc",
        "compile",
        _wrap_compile,
        "CUDA C++ is compiled once in a process, without a driver; errors quote it.",
    ),
    Substitution(
        DRIVER,
        "_Linker._materialize_pending_cu",
        _wrap_materialize_pending_cu,
        "CUDA C++ is not compiled for a link that nobody asked for.",
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
