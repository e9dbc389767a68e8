"""The front end that compiles Python functions: numba-cuda, with all that the package uses of it."""

from __future__ import annotations

from ._numba_cuda import build, release
from ._numba_cuda.compile import CompileOptions
from ._numba_cuda.patches import substitution
from ._numba_cuda.patches.table import HOOKED, TABLE
from ._numba_cuda.ptx_linker import PtxLinker, served
from ._numba_cuda.signatures import Typed, describe, typed

__all__ = [
    "HOOKED",
    "TABLE",
    "CompileOptions",
    "PtxLinker",
    "Typed",
    "build",
    "describe",
    "release",
    "served",
    "substitution",
    "typed",
]
