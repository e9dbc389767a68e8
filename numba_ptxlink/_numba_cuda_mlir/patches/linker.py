"""
Link with this package: what numba-cuda-mlir's linkers ask of cuda.core and NVRTC.

Its classes of linkers are bound where they are used, so they stay; they look these names up in each link.
"""

from __future__ import annotations

import functools
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir import linker
from numba_ptxlink._numba_cuda_mlir.release import DRIVER


def _wrap_linker(_original: Any) -> Any:
    return linker.CoreLinker


def _wrap_compile(original: Any) -> Any:
    @functools.wraps(original)
    def compile(src: Any, name: Any, cc: Any, ltoir: Any = False, **others: Any) -> Any:  # noqa: A001
        return linker.compile_source(src, name, cc, lto=bool(ltoir), **others)

    return compile


def _wrap_cached_file_read(original: Any) -> Any:
    @functools.wraps(original)
    def cached_file_read(filepath: Any, how: str = "r") -> Any:
        return linker.content_of(filepath) if how == "rb" else original(filepath, how)

    return cached_file_read


def _wrap_add_data(original: Any) -> Any:
    @functools.wraps(original)
    def add_data(self: Any, data: Any, kind: Any, name: Any) -> None:
        linker.remember(data, name)
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
        "cached_file_read",
        _wrap_cached_file_read,
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
